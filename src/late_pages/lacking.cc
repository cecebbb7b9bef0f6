#include "late_pages/lacking.h"

#include <algorithm>
#include <utility>

namespace ferry::late_pages {

Lacking::Lacking(const precopy::PageRanges& pages) {
  for (const auto& [start, end] : pages) old_.put({start, end, start});
}

std::optional<Range> Lacking::find(std::uint64_t page) const {
  auto range = fresh_.find(page);
  return range ? range : old_.find(page);
}

std::optional<Range> Lacking::next(std::uint64_t address) const {
  for (const std::uint64_t from : {address, std::uint64_t{0}}) {
    const auto old = old_.behind(from), fresh = fresh_.behind(from);
    if (old && fresh) return old->start < fresh->start ? old : fresh;
    if (old || fresh) return old ? old : fresh;
  }
  return std::nullopt;
}

void Lacking::filled(std::uint64_t start, std::uint64_t end) {
  old_.cut(start, end);
  fresh_.cut(start, end);
}

void Lacking::removed(std::uint64_t start, std::uint64_t end) {
  filled(start, end);
  for (auto& move : moves_) move.removed.push_back({start, end});
}

// mremap() has unmapped the end of what it was about to move, but kernels before 6.15 tell of the whole length.
bool Lacking::is_end_of(const Move& move, std::uint64_t start, std::uint64_t end) {
  return move.from < start && move.from + move.length == end;
}

void Lacking::unmapped(std::uint64_t start, std::uint64_t end) {
  for (auto& move : moves_) {
    if (!is_end_of(move, start, end)) continue;
    const std::uint64_t end_there = move.to + move.length, from_there = end_there - (end - start);
    fresh_.cut(from_there, end_there);
    for (const auto& range : overwritten_.cut(from_there, end_there)) old_.put(range);
    for (const auto& range : move.removed) {
      old_.cut(std::max(range.start, from_there), std::min(range.end, end_there));
    }
    move.length -= end - start;
  }
  unmaps_.push_back({start, end});
  for (const auto& range : old_.cut(start, end)) unmapped_.put(range);
  // What a move has brought here may have come before, or after.
  for (auto range : fresh_.within(start, end)) {
    range.is_doubtful = true;
    fresh_.put(range);
  }
}

void Lacking::moved(std::uint64_t from, std::uint64_t to, std::uint64_t length,
                    const IsMapped& is_mapped) {
  Move move{from, to, length, false, {}, {}, {}};
  // If something has come to `from` and is there this move was before, and took what was there then.
  Ranges arrived;
  for (const auto& other : moves_) {
    const std::uint64_t start = std::max(from, other.to);
    const std::uint64_t end = std::min(from + length, other.to + other.length);
    if (start < end && is_mapped(start)) arrived.put({start, end});
  }
  move.taken = overwritten_.cut(from, from + length);
  std::uint64_t at = from;
  const auto take = [&](std::uint64_t end) {
    for (auto* ranges : {&fresh_, &old_}) {
      const auto parts = ranges->cut(at, end);
      move.taken.insert(move.taken.end(), parts.begin(), parts.end());
    }
  };
  for (const auto& range : arrived.all()) {
    take(range.start);
    at = range.end;
  }
  take(from + length);
  move.is_over = std::any_of(unmaps_.begin(), unmaps_.end(), [&](const Range& unmap) {
    return unmap.start == to && unmap.end <= to + length;
  });
  move.displaced = unmapped_.cut(to, to + length);
  for (auto* ranges : {&old_, &fresh_}) {
    for (const auto& range : ranges->cut(to, to + length)) {
      if (!range.is_doubtful) overwritten_.put(range);
    }
  }
  for (const auto& range : move.taken) {
    fresh_.put({range.start - from + to, range.end - from + to, range.content, range.is_doubtful});
  }
  moves_.push_back(std::move(move));
}

// On what a child lacks.
void Lacking::undo(const Move& move) {
  old_.cut(move.to, move.to + move.length);
  for (const auto* ranges : {&move.displaced, &move.taken}) {
    for (const auto& range : *ranges) old_.put(range);
  }
}

Lacking Lacking::forked(const IsMapped& is_mapped) const {
  Lacking child;
  child.old_ = old_;
  for (const auto& range : fresh_.all()) child.old_.put(range);
  for (const auto* ranges : {&unmapped_, &overwritten_}) {
    for (const auto& range : ranges->all()) child.old_.add(range);
  }
  for (auto move = moves_.rbegin(); move != moves_.rend(); ++move) {
    const bool is_later = move->is_over ? is_mapped(move->from) : !is_mapped(move->to);
    if (is_later) {
      child.undo(*move);
    } else {
      child.moves_.push_back({move->from,
                              move->to,
                              move->length,
                              false,
                              {},
                              overwritten_.within(move->to, move->to + move->length),
                              {}});
    }
  }
  return child;
}

void Lacking::parent_moved(std::uint64_t from, std::uint64_t to, std::uint64_t length,
                           const IsMapped& is_mapped) {
  if (is_mapped(from)) return;
  const auto taken = old_.cut(from, from + length);
  moves_.push_back({from, to, length, false, {}, old_.cut(to, to + length), {}});
  for (const auto& range : taken) {
    old_.put({range.start - from + to, range.end - from + to, range.content});
  }
}

void Lacking::parent_unmapped(std::uint64_t start, std::uint64_t end) {
  for (const auto& move : moves_) {
    if (!is_end_of(move, start, end)) continue;
    const std::uint64_t end_there = move.to + move.length, from_there = end_there - (end - start);
    old_.cut(from_there, end_there);
    Ranges displaced;
    for (const auto& range : move.displaced) displaced.put(range);
    for (const auto& range : displaced.within(from_there, end_there)) old_.put(range);
  }
}

void Lacking::settle() {
  for (const auto& range : fresh_.all()) old_.put(range);
  fresh_.clear();
  overwritten_.clear();
  unmapped_.clear();
  unmaps_.clear();
  moves_.clear();
}

}  // namespace ferry::late_pages
