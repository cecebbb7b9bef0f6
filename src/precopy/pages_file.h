#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "precopy/page_sink.h"
#include "precopy/page_store.h"

// The pages of a process that CRIU has left out of its image, as a file beside those of the image:
//
//   ferry-pages-PID = magic:32 version:32 ranges:64 { start:64 end:64 } content    little-endian; ranges: sorted, and
//                     disjoint; content: the pages of all ranges, one after the other
namespace ferry::precopy {

inline constexpr std::uint32_t kPagesMagic = 0x47415046;  // "FPAG"
inline constexpr std::uint32_t kPagesVersion = 1;

// The name of the file. `process`: its pid in its own pid namespace.
std::string pages_file(std::int32_t process);
// Nothing: the file of this name is another one.
std::optional<std::int32_t> process_of_pages_file(const std::string& name);

// Gives the file with these pages, all of which are in the store, to `write`, piece by piece.
void write_pages(const PageStore& store, std::int32_t process, const PageRanges& pages,
                 const std::function<void(std::span<const std::byte>)>& write);

// Takes such a file piece by piece, and hands the pages on.
class PagesReader {
 public:
  PagesReader(std::int32_t process, PageSink& to) : process_(process), to_(to) {}

  // Throw std::runtime_error: it is no such file. add() throws what the sink throws as well.
  void add(std::span<const std::byte> piece);
  void end() const;  // no piece follows

 private:
  bool read_head();
  bool read_range();
  bool send_frame();

  const std::int32_t process_;
  PageSink& to_;
  std::vector<std::byte> buffer_;
  std::size_t used_ = 0;  // of the buffer
  bool has_head_ = false;
  std::uint64_t ranges_to_come_ = 0;
  std::uint64_t last_ = 0;  // end of the last range
  PageRanges pages_;        // whose content is to come
};

}  // namespace ferry::precopy
