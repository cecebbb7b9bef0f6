// Judges everything that one QP brings to this side: memory and completions in, counts out.
// It knows no verbs, so that tests can feed it every kind of fault.
//
// What it relies on (IBTA vol. 1, 9.5 and 10.8.3.3, RC): messages are executed in the order in
// which they were posted, so when the completion of a receive is seen, the data of all WRITEs that
// the peer posted before it is in memory. A plain WRITE is judged only then; that a WRITE is
// complete at its sender says nothing about when this CPU sees it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>

#include "judge.h"
#include "message.h"

namespace stream_check {

class Receiver {
 public:
  // `from`: the peer's direction of the QP. `write_ring`: write_slots slots of slot_bytes each, the
  // target of the peer's WRITEs; message s lands in slot s % write_slots. The constructor poisons
  // them, so it must run before the peer may write.
  Receiver(const StreamId& from, uint32_t max_length, uint8_t* write_ring, size_t slot_bytes,
           uint64_t write_slots, FaultLog* faults);

  // A receive was completed by a SEND; `immediate` in host byte order. Returns the peer's credits,
  // nothing when the message was corrupted. An empty buffer is a corrupted message.
  std::optional<Credits> on_send(const uint8_t* buffer, uint32_t byte_len,
                                 std::optional<uint32_t> immediate);
  // A receive was completed by a WRITE with immediate.
  std::optional<Credits> on_write_with_immediate(uint32_t immediate, uint32_t byte_len);
  // The READ of message `sequence` completed into `buffer`.
  void on_read(const uint8_t* buffer, uint64_t sequence);

  // How many WRITE slots the peer may use again. Each is held back for a quarter of the ring and
  // looked at once more before it goes back: a WRITE executed twice has landed on the poison.
  uint64_t release_writes();
  // Receives completed by payload (not by control messages).
  uint64_t messages_consumed() const { return messages_consumed_; }
  // The peer's last message arrived: what it says to have sent before must all be here.
  bool last_seen() const { return last_seen_; }
  // Whether everything that the peer says to have sent has arrived.
  bool complete(const std::array<uint64_t, kOps>& sent) const;
  // Ends the run; `sent[op]` is what the peer sent (for kRead: what this side asked for).
  void finish(const std::array<uint64_t, kOps>& sent);

  const Counts& counts(Op op) const { return judge(op).counts(); }
  uint64_t missing(Op op) const { return judge(op).missing(); }
  uint64_t next(Op op) const { return judge(op).next(); }

 private:
  SequenceJudge& judge(Op op) { return judges_[static_cast<size_t>(op)]; }
  const SequenceJudge& judge(Op op) const { return judges_[static_cast<size_t>(op)]; }
  uint8_t* slot(uint64_t sequence) const {
    return write_ring_ + sequence % write_slots_ * slot_bytes_;
  }
  void settle_writes(uint64_t before);
  void release_up_to(uint64_t end);
  std::optional<Credits> judge_slot(uint64_t sequence);

  StreamId from_;
  uint32_t max_length_;
  uint8_t* write_ring_;
  size_t slot_bytes_;
  uint64_t write_slots_;
  std::array<SequenceJudge, kOps> judges_;
  uint64_t messages_consumed_ = 0;
  uint64_t next_write_ = 0;         // the first WRITE not judged
  uint64_t released_writes_ = 0;    // [released_writes_, next_write_) is poisoned, not released
  std::set<uint64_t> unannounced_;  // judged, though their immediate had not come before
  bool last_seen_ = false;
};

}  // namespace stream_check
