// Judges the order and completeness of numbered messages, and keeps what was found.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stream_check {

// Faults in words: the first 64, and how many there were.
class FaultLog {
 public:
  void add(std::string text);
  uint64_t total() const { return total_; }
  const std::vector<std::string>& first() const { return first_; }

 private:
  uint64_t total_ = 0;
  std::vector<std::string> first_;
};

struct Counts {
  uint64_t received = 0;  // arrived with the right bytes, each message once
  uint64_t lost = 0;      // never arrived; filled in by SequenceJudge::finish()
  uint64_t duplicated = 0;
  uint64_t out_of_order = 0;  // arrived after a later one
  uint64_t corrupted = 0;     // arrived, but with wrong bytes, length or immediate
  uint64_t bytes = 0;         // of `received`

  Counts& operator+=(const Counts& other);
  bool clean() const { return lost + duplicated + out_of_order + corrupted == 0; }
};

// One sequence of messages 0, 1, 2, ... which must arrive exactly once and in order.
class SequenceJudge {
 public:
  // `name` begins each fault, for example "qp 3 write".
  SequenceJudge(std::string name, FaultLog* faults) : name_(std::move(name)), faults_(faults) {}

  // A message with the right bytes arrived.
  void arrived(uint64_t sequence, uint64_t bytes);
  // Message `sequence` arrived, or what stands in its place, with wrong bytes. It is not lost.
  void arrived_corrupted(uint64_t sequence, const std::string& detail);
  // Something impossible arrived that stands in no message's place.
  void stray(const std::string& detail);
  // A message that already counts as arrived was delivered a second time.
  void arrived_again(uint64_t sequence, const std::string& detail);
  // A message that already counts as arrived was announced too late.
  void announced_late(uint64_t sequence, const std::string& detail);
  // The sender says that it sent [0, sent). What is missing is lost. Call once, at the end.
  void finish(uint64_t sent);

  uint64_t next() const { return next_; }
  const Counts& counts() const { return counts_; }
  uint64_t missing() const { return missing_total_; }

 private:
  void note(uint64_t sequence, const std::string& what);
  void skip_to(uint64_t sequence);
  bool take_missing(uint64_t sequence);

  std::string name_;
  FaultLog* faults_;
  uint64_t next_ = 0;
  std::map<uint64_t, uint64_t> missing_;  // begin -> end of each gap
  uint64_t missing_total_ = 0;
  Counts counts_;
};

}  // namespace stream_check
