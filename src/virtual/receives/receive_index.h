#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "virtual/receives/posted_receives.h"

namespace ferry::virt {

// Finds the receive of an SRQ that a completion is about. The QPs of an SRQ consume its receives in an order that no
// CQ tells. So the application itself has nothing but the wr_id to tell them apart, and neither has this class: where
// receives with one wr_id have other elements, it finds none of them. Looks at the latest half of the ring of receives,
// because the thread that posts writes into the other half meanwhile. Any thread may call any function.
class ReceiveIndex {
 public:
  // std::nullopt: the latest half has no such receive, or it has several. Throws std::bad_alloc.
  std::optional<PostedReceives::Receive> find(PostedReceives& noted, std::uint64_t wr_id);
  // While the lock lives, nobody looks at the ring.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

 private:
  struct Entry {
    std::uint32_t at = 0;  // the latest receive with this wr_id, as PostedReceives counts
    std::optional<std::uint32_t> another;  // the latest one before it that has other elements
  };

  // With mutex_:
  static std::optional<PostedReceives::Receive> recent(PostedReceives& noted, std::uint32_t at);
  void catch_up(PostedReceives& noted);
  void enter(PostedReceives& noted, std::uint32_t at);

  std::mutex mutex_;  // guards what follows
  std::uint32_t entered_ = 0;
  std::unordered_map<std::uint64_t, Entry> entries_;
};

}  // namespace ferry::virt
