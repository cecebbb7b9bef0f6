#include "late_pages/ranges.h"

#include <algorithm>
#include <iterator>

namespace ferry::late_pages {

std::optional<Range> Ranges::find(std::uint64_t page) const {
  const auto after = ranges_.upper_bound(page);
  if (after == ranges_.begin()) return std::nullopt;
  const auto& [start, rest] = *std::prev(after);
  if (page >= rest.end) return std::nullopt;
  return Range{page, rest.end, rest.content + (page - start), rest.is_doubtful};
}

std::optional<Range> Ranges::behind(std::uint64_t address) const {
  if (auto here = find(address)) return here;
  const auto after = ranges_.lower_bound(address);
  if (after == ranges_.end()) return std::nullopt;
  return Range{after->first, after->second.end, after->second.content, after->second.is_doubtful};
}

std::vector<Range> Ranges::within(std::uint64_t start, std::uint64_t end) const {
  std::vector<Range> parts;
  while (start < end) {
    auto range = behind(start);
    if (!range || range->start >= end) break;
    range->end = std::min(range->end, end);
    parts.push_back(*range);
    start = range->end;
  }
  return parts;
}

// A range that has this address inside becomes two.
void Ranges::split(std::uint64_t address) {
  const auto right = find(address);
  if (!right || ranges_.contains(address)) return;
  std::prev(ranges_.upper_bound(address))->second.end = address;
  ranges_.emplace(address, Rest{right->end, right->content, right->is_doubtful});
}

void Ranges::put(const Range& range) {
  cut(range.start, range.end);
  ranges_.emplace(range.start, Rest{range.end, range.content, range.is_doubtful});
}

void Ranges::add(const Range& range) {
  std::uint64_t at = range.start;
  const auto fill = [&](std::uint64_t end) {
    if (at < end) put({at, end, range.content + (at - range.start), range.is_doubtful});
  };
  for (const auto& there : within(range.start, range.end)) {
    fill(there.start);
    at = there.end;
  }
  fill(range.end);
}

std::vector<Range> Ranges::cut(std::uint64_t start, std::uint64_t end) {
  if (start >= end) return {};
  split(start);
  split(end);
  auto parts = within(start, end);
  ranges_.erase(ranges_.lower_bound(start), ranges_.lower_bound(end));
  return parts;
}

}  // namespace ferry::late_pages
