#include "receiver.h"

#include <string>

namespace stream_check {
namespace {

SequenceJudge make_judge(const StreamId& from, Op op, FaultLog* faults) {
  return {"qp " + std::to_string(from.qp) + " " + op_name(op), faults};
}

}  // namespace

Receiver::Receiver(const StreamId& from, uint32_t max_length, uint8_t* write_ring,
                   size_t slot_bytes, uint64_t write_slots, FaultLog* faults)
    : from_(from),
      max_length_(max_length),
      write_ring_(write_ring),
      slot_bytes_(slot_bytes),
      write_slots_(write_slots),
      judges_{make_judge(from, Op::kSend, faults), make_judge(from, Op::kWrite, faults),
              make_judge(from, Op::kRead, faults), make_judge(from, Op::kControl, faults)} {
  for (uint64_t s = 0; s < write_slots_; ++s) poison(slot(s));
}

std::optional<Credits> Receiver::on_send(const uint8_t* buffer, uint32_t byte_len,
                                         std::optional<uint32_t> immediate) {
  const Inspection found = inspect_message(buffer, from_, max_length_);
  const Header& header = found.header;
  if (found.state != Inspection::State::kGood) {
    // Which message it was is not known; the next one is the best guess.
    ++messages_consumed_;
    judge(Op::kSend).arrived_corrupted(
        judge(Op::kSend).next(),
        found.state == Inspection::State::kEmpty ? "receive completed without data" : found.detail);
    return std::nullopt;
  }
  if (header.op != Op::kControl) ++messages_consumed_;
  if (header.op != Op::kSend && header.op != Op::kControl) {
    judge(Op::kSend).arrived_corrupted(
        judge(Op::kSend).next(),
        std::string("a SEND brought a message of op ") + op_name(header.op));
    return std::nullopt;
  }
  settle_writes(header.credits.writes_before);
  if (header.flags() & kLastOfQp) last_seen_ = true;
  const bool wants_immediate = carries_immediate(header.op, header.sequence);
  if (byte_len != header.length) {
    judge(header.op).arrived_corrupted(
        header.sequence,
        "byte_len " + std::to_string(byte_len) + ", header says " + std::to_string(header.length));
  } else if (wants_immediate != immediate.has_value() ||
             (immediate && *immediate != static_cast<uint32_t>(header.sequence))) {
    judge(header.op).arrived_corrupted(header.sequence, "immediate missing or wrong");
  } else {
    judge(header.op).arrived(header.sequence, header.length);
  }
  return header.credits;
}

std::optional<Credits> Receiver::on_write_with_immediate(uint32_t immediate, uint32_t byte_len) {
  ++messages_consumed_;
  // The sequence nearest to the expected one that has these low 32 bits.
  const auto ahead = static_cast<int32_t>(immediate - static_cast<uint32_t>(next_write_));
  const uint64_t sequence = next_write_ + static_cast<uint64_t>(int64_t{ahead});
  if (!carries_immediate(Op::kWrite, sequence) ||
      (ahead >= 0 && sequence - released_writes_ >= write_slots_)) {
    judge(Op::kWrite).stray("impossible immediate " + std::to_string(immediate));
    return std::nullopt;
  }
  if (ahead < 0) {
    // Judged already. Either a later message overtook this completion (counted then), or this is
    // its second completion.
    if (unannounced_.erase(sequence) == 0) {
      judge(Op::kWrite).arrived_again(sequence, "its immediate came again");
    }
    return std::nullopt;
  }
  settle_writes(sequence);
  const auto credits = judge_slot(sequence);
  if (byte_len != message_length(from_, Op::kWrite, sequence, max_length_)) {
    judge(Op::kWrite)
        .arrived_corrupted(sequence,
                           "byte_len " + std::to_string(byte_len) + " of its completion is wrong");
  }
  return credits;
}

void Receiver::on_read(const uint8_t* buffer, uint64_t sequence) {
  const Inspection found = inspect_message(buffer, from_, max_length_);
  SequenceJudge& reads = judge(Op::kRead);
  switch (found.state) {
    case Inspection::State::kEmpty:
      reads.arrived_corrupted(sequence, "READ completed without data");
      return;
    case Inspection::State::kCorrupt: reads.arrived_corrupted(sequence, found.detail); return;
    case Inspection::State::kGood: break;
  }
  if (found.header.op != Op::kRead) {
    reads.arrived_corrupted(
        sequence, std::string("READ brought a message of op ") + op_name(found.header.op));
    return;
  }
  reads.arrived(found.header.sequence, found.header.length);
}

void Receiver::settle_writes(uint64_t before) {
  if (before > released_writes_ + write_slots_) {
    judge(Op::kWrite).stray("the peer claims more WRITEs than it has slots");
    return;
  }
  while (next_write_ < before) {
    const uint64_t sequence = next_write_;
    const bool announced_by_completion = carries_immediate(Op::kWrite, sequence);
    if (judge_slot(sequence) && announced_by_completion) {
      judge(Op::kWrite).announced_late(sequence, "a later message completed before its immediate");
      unannounced_.insert(sequence);
    }
  }
}

std::optional<Credits> Receiver::judge_slot(uint64_t sequence) {
  SequenceJudge& writes = judge(Op::kWrite);
  const Inspection found = inspect_message(slot(sequence), from_, max_length_);
  std::optional<Credits> credits;
  if (found.state == Inspection::State::kCorrupt) {
    writes.arrived_corrupted(sequence, found.detail);
  } else if (found.state == Inspection::State::kGood && found.header.op != Op::kWrite) {
    writes.arrived_corrupted(
        sequence, std::string("WRITE brought a message of op ") + op_name(found.header.op));
  } else if (found.state == Inspection::State::kGood) {
    writes.arrived(found.header.sequence, found.header.length);
    if (found.header.sequence == sequence) credits = found.header.credits;
  }
  // An empty slot: the gap in the sequence tells, at the next message or at the end.
  poison(slot(sequence));
  next_write_ = sequence + 1;
  return credits;
}

uint64_t Receiver::release_writes() {
  const uint64_t held = write_slots_ / 4;
  if (next_write_ > held) release_up_to(next_write_ - held);
  return released_writes_;
}

void Receiver::release_up_to(uint64_t end) {
  for (; released_writes_ < end; ++released_writes_) {
    if (is_poisoned(slot(released_writes_))) continue;
    judge(Op::kWrite)
        .arrived_again(released_writes_, "its slot was written again after it was judged");
    poison(slot(released_writes_));
  }
}

bool Receiver::complete(const std::array<uint64_t, kOps>& sent) const {
  return last_seen_ && judge(Op::kSend).next() >= sent[static_cast<size_t>(Op::kSend)] &&
         judge(Op::kSend).missing() == 0 && next_write_ >= sent[static_cast<size_t>(Op::kWrite)];
}

void Receiver::finish(const std::array<uint64_t, kOps>& sent) {
  // Without the peer's last message WRITEs may be here that nothing has announced.
  settle_writes(sent[static_cast<size_t>(Op::kWrite)]);
  release_up_to(next_write_);
  for (const Op op : {Op::kSend, Op::kWrite, Op::kRead}) {
    judge(op).finish(sent[static_cast<size_t>(op)]);
  }
  judge(Op::kControl).finish(judge(Op::kControl).next());
  for (const uint64_t sequence : unannounced_) {
    judge(Op::kWrite).arrived_corrupted(sequence, "its immediate never came");
  }
}

}  // namespace stream_check
