#include "judge.h"

#include <iterator>

namespace stream_check {

void FaultLog::add(std::string text) {
  constexpr size_t kKept = 64;
  ++total_;
  if (first_.size() < kKept) first_.push_back(std::move(text));
}

Counts& Counts::operator+=(const Counts& other) {
  received += other.received;
  lost += other.lost;
  duplicated += other.duplicated;
  out_of_order += other.out_of_order;
  corrupted += other.corrupted;
  bytes += other.bytes;
  return *this;
}

void SequenceJudge::note(uint64_t sequence, const std::string& what) {
  faults_->add(name_ + ": sequence " + std::to_string(sequence) + " " + what);
}

void SequenceJudge::skip_to(uint64_t sequence) {
  if (sequence <= next_) return;
  missing_.emplace(next_, sequence);
  missing_total_ += sequence - next_;
  next_ = sequence;
}

bool SequenceJudge::take_missing(uint64_t sequence) {
  auto gap = missing_.upper_bound(sequence);
  if (gap == missing_.begin()) return false;
  gap = std::prev(gap);
  const uint64_t begin = gap->first;
  const uint64_t end = gap->second;
  if (sequence >= end) return false;
  missing_.erase(gap);
  if (begin < sequence) missing_.emplace(begin, sequence);
  if (sequence + 1 < end) missing_.emplace(sequence + 1, end);
  --missing_total_;
  return true;
}

void SequenceJudge::arrived(uint64_t sequence, uint64_t bytes) {
  if (sequence < next_) {
    if (!take_missing(sequence)) {
      arrived_again(sequence, "arrived when " + std::to_string(next_) + " was expected");
      return;
    }
    announced_late(sequence, "arrived when " + std::to_string(next_) + " was expected");
  } else {
    skip_to(sequence);
    ++next_;
  }
  ++counts_.received;
  counts_.bytes += bytes;
}

void SequenceJudge::arrived_corrupted(uint64_t sequence, const std::string& detail) {
  ++counts_.corrupted;
  note(sequence, "corrupted: " + detail);
  if (sequence < next_) {
    take_missing(sequence);
  } else {
    skip_to(sequence);
    ++next_;
  }
}

void SequenceJudge::stray(const std::string& detail) {
  ++counts_.corrupted;
  faults_->add(name_ + ": " + detail);
}

void SequenceJudge::arrived_again(uint64_t sequence, const std::string& detail) {
  ++counts_.duplicated;
  note(sequence, "duplicated: " + detail);
}

void SequenceJudge::announced_late(uint64_t sequence, const std::string& detail) {
  ++counts_.out_of_order;
  note(sequence, "out of order: " + detail);
}

void SequenceJudge::finish(uint64_t sent) {
  if (next_ > sent) {
    counts_.duplicated += next_ - sent;
    note(sent, "and later: " + std::to_string(next_ - sent) + " more arrived than were sent");
  }
  skip_to(sent);
  counts_.lost = missing_total_;
  for (const auto& [begin, end] : missing_) {
    note(begin, "lost" + (end - begin > 1 ? ", up to " + std::to_string(end - 1) : std::string()));
  }
}

}  // namespace stream_check
