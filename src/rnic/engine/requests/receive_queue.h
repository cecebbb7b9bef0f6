#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "transport/types.h"

namespace ferry::rnic {

// Receive WQEs in a ring, each with room for the scatter elements that the QP was granted.
class ReceiveQueue {
 public:
  // Throws std::bad_alloc.
  ReceiveQueue(std::uint32_t entries, std::uint32_t max_sges);

  bool full() const { return count_ == entries_; }
  std::uint32_t count() const { return count_; }
  void push(std::uint64_t wr_id, std::span<const transport::Sge> sges);
  bool pop(transport::ReceiveRequest* out);
  // Copies the WQE that is `index` after the oldest, for records.
  void peek(std::uint32_t index, transport::ReceiveRequest* out) const;
  void clear() { count_ = 0; }
  // Changes the capacity and keeps the WQEs. False: more WQEs are in the queue than fit, and
  // nothing is changed. Throws std::bad_alloc.
  bool resize(std::uint32_t entries);

 private:
  struct Entry {
    std::uint64_t wr_id;
    std::uint8_t sge_count;
  };
  // The arrays come from calloc(): pages that were never used cost nothing.
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::uint32_t entries_, max_sges_;
  std::uint32_t head_ = 0, count_ = 0;
  std::unique_ptr<Entry[], Free> ring_;
  std::unique_ptr<transport::Sge[], Free> sges_;
};

}  // namespace ferry::rnic
