#include "precopy/page_ranges.h"

#include <algorithm>
#include <iterator>

namespace ferry::precopy {

void PageRanges::add(std::uint64_t start, std::uint64_t end) {
  if (start >= end) return;
  auto next = ranges_.upper_bound(start);
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (before->second >= end) return;
    if (before->second >= start) {
      start = before->first;
      next = before;
    }
  }
  while (next != ranges_.end() && next->first <= end) {
    end = std::max(end, next->second);
    bytes_ -= next->second - next->first;
    next = ranges_.erase(next);
  }
  ranges_.emplace_hint(next, start, end);
  bytes_ += end - start;
}

void PageRanges::remove(std::uint64_t start, std::uint64_t end) {
  if (start >= end) return;
  auto next = ranges_.upper_bound(start);
  if (next != ranges_.begin() && std::prev(next)->second > start) --next;
  while (next != ranges_.end() && next->first < end) {
    const auto [first, last] = *next;
    next = ranges_.erase(next);
    bytes_ -= last - first;
    if (first < start) {
      ranges_.emplace_hint(next, first, start);
      bytes_ += start - first;
    }
    if (last > end) {
      ranges_.emplace_hint(next, end, last);
      bytes_ += last - end;
    }
  }
}

void PageRanges::add(const PageRanges& other) {
  for (const auto& [start, end] : other) add(start, end);
}

void PageRanges::remove(const PageRanges& other) {
  for (const auto& [start, end] : other) remove(start, end);
}

bool PageRanges::contains(std::uint64_t start, std::uint64_t end) const {
  const auto next = ranges_.upper_bound(start);
  return next != ranges_.begin() && std::prev(next)->second >= end;
}

PageRanges PageRanges::within(const PageRanges& other) const {
  PageRanges both;
  auto mine = ranges_.begin(), theirs = other.ranges_.begin();
  while (mine != ranges_.end() && theirs != other.ranges_.end()) {
    both.add(std::max(mine->first, theirs->first), std::min(mine->second, theirs->second));
    if (mine->second < theirs->second)
      ++mine;
    else
      ++theirs;
  }
  return both;
}

}  // namespace ferry::precopy
