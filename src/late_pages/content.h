#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "base/unique_fd.h"
#include "precopy/page_ranges.h"

namespace ferry::late_pages {

// The content of the pages of a process, in a file whose offsets are the addresses that they had when the process was
// restored (precopy/page_store.h).
class Content {
 public:
  // Throws std::runtime_error.
  Content(UniqueFd file, const precopy::PageRanges& pages);
  ~Content();
  Content(const Content&) = delete;

  // From this place on; it may end before `end`.
  std::span<const std::byte> get(std::uint64_t start, std::uint64_t end) const;

 private:
  const UniqueFd file_;
  std::map<std::uint64_t, const std::byte*> windows_;  // by first offset
};

}  // namespace ferry::late_pages
