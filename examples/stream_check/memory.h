// Memory that a program has beside its messages, of which some is written all the time: to see that
// none of it gets lost where the program is moved. Pages know what they have to be.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace stream_check {

class Memory {
 public:
  // `mebibytes` of it, and `percent` of it are rewritten each second. `storm`: mappings are moved,
  // replaced, protected and dropped as well. Throws Failure.
  Memory(uint64_t mebibytes, double percent, bool storm);
  ~Memory();

  // Ends the rewriting; pages that are not as they were last written.
  uint64_t count_corrupted();
  uint64_t pages_written() const { return written_; }

 private:
  struct Block {
    std::byte* start;
    std::vector<uint32_t> versions;  // by page; 0: zeros
  };
  void write_page(size_t block, size_t page);
  void disturb(Block& block);
  void run(double pages_per_second);

  const bool storm_;
  std::vector<Block> blocks_;
  uint64_t random_ = 1;
  uint32_t version_ = 0;
  std::atomic<uint64_t> written_{0};
  std::atomic<bool> ending_{false};
  std::thread writer_;
};

}  // namespace stream_check
