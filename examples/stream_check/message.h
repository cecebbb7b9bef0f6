// The messages that stream_check exchanges: how one is built and how one is judged.
//
//   message  = header pattern
//   header   = 64 bytes, host byte order (both ends are the same program), see Header
//   pattern  = length - 64 bytes, a function of session, qp, direction, op and sequence
//
// Everything in a message except the credit fields is a function of (stream, op, sequence), so the
// receiver knows each byte it must find, its length included, without having been told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace stream_check {

// What carries a message. kControl is a small SEND that only returns credits.
enum class Op : uint8_t { kSend = 0, kWrite = 1, kRead = 2, kControl = 3 };
inline constexpr size_t kOps = 4;
const char* op_name(Op op);

inline constexpr uint32_t kMagic = 0x5ca1ab1e;
// Written over a buffer's magic before a message may land there, and again after it was judged.
inline constexpr uint32_t kPoison = 0xdeadc0de;
inline constexpr uint8_t kLastOfQp = 1;  // Header::flags: no payload follows on this QP

// One direction of one QP. `session` differs from run to run, so that a message of an earlier run
// never passes for one of this run.
struct StreamId {
  uint32_t session = 0;
  uint16_t qp = 0;
  uint8_t direction = 0;  // 0: what the client provides, 1: what the server provides
};

// All counts are cumulative since the start of the run; they never decrease.
struct Credits {
  uint64_t writes_before = 0;      // WRITEs posted on this QP before this message
  uint64_t messages_consumed = 0;  // receives consumed by payload, and posted again
  uint64_t writes_consumed = 0;    // WRITE slots judged, free for the peer
  uint64_t reads_published = 0;    // READ slots filled: [0, reads_published) may be read
  uint64_t reads_released = 0;     // READs done: these slots may be filled anew
};

struct Header {
  uint32_t magic = kMagic;
  uint16_t qp = 0;
  uint8_t direction_and_flags = 0;  // bit 7: direction, bits 0-6: flags
  Op op = Op::kSend;
  uint64_t sequence = 0;
  uint32_t length = 0;    // bytes, header included
  uint32_t checksum = 0;  // over the whole message, with this field 0
  Credits credits;

  uint8_t flags() const { return direction_and_flags & 0x7f; }
  uint8_t direction() const { return direction_and_flags >> 7; }
};
static_assert(sizeof(Header) == 64);
inline constexpr uint32_t kMinLength = sizeof(Header);

// Bytes of message `sequence`: [64, max_length], every 16th exactly max_length; control: 64.
uint32_t message_length(const StreamId& id, Op op, uint64_t sequence, uint32_t max_length);

// Every second SEND and every fourth WRITE carries the low 32 bits of its sequence as immediate.
bool carries_immediate(Op op, uint64_t sequence);

// Writes the message to `to` (room for max_length bytes, 8-byte aligned); returns its length.
uint32_t build_message(uint8_t* to, const StreamId& id, Op op, uint64_t sequence, uint8_t flags,
                       const Credits& credits, uint32_t max_length);

struct Inspection {
  enum class State { kGood, kEmpty, kCorrupt };
  State state = State::kEmpty;
  Header header;       // meaningful for kGood only
  std::string detail;  // for kCorrupt: what is wrong
};

// Judges the bytes at `from` (max_length readable, 8-byte aligned) as a message of `id`, whichever
// its op and sequence. kEmpty: nothing has landed since poison().
Inspection inspect_message(const uint8_t* from, const StreamId& id, uint32_t max_length);

void poison(uint8_t* buffer);
bool is_poisoned(const uint8_t* buffer);

}  // namespace stream_check
