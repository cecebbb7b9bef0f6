#pragma once

#include <cstdint>
#include <utility>

#include "transport/send_queue.h"
#include "transport/streams/path.h"
#include "transport/streams/qp_attributes.h"
#include "transport/types.h"

namespace ferry::transport {

// PSNs of the requester are extended (send_queue.h). The first round starts here, so that a PSN
// minus one never underflows.
inline constexpr std::uint64_t kPsnRound = 1ull << 24;
// The number of PSNs that may be outstanding at once (clause 9.7.1): half of the circle, less one
// so that the PSN after them, too, compares as later.
inline constexpr std::uint64_t kPsnWindow = (1ull << 23) - 1;

// The request packet at PSN `psn` of the WQE `index`. It takes `psns` PSNs (more than one for a
// READ) and has `bytes` of payload (a READ: those of its responses) from `offset` of the message
// on.
struct RequestPacket {
  std::uint64_t index = 0, psn = 0;
  std::uint64_t offset_psns = 0, offset = 0;
  std::uint32_t psns = 0, bytes = 0;
  std::int64_t cost() const { return bytes + kPacketOverhead * std::int64_t{psns}; }
};

// The send queue as a stream of request packets: how far it was sent and how far it was completed;
// for RC and UC. Local operations are carried out when they are the next to be sent.
struct SendStream {
  SendStream(QpAttributes& qp_, SendQueue storage) : qp(qp_), queue(std::move(storage)) {}

  QpAttributes& qp;
  SendQueue queue;
  std::uint64_t una = kPsnRound;       // first unacknowledged PSN; UC: where the message begins
  std::uint64_t next = kPsnRound;      // next PSN to send; goes back on loss
  std::uint64_t max_sent = kPsnRound;  // one after the last PSN ever sent
  std::uint64_t cursor = 0;            // the WQE that `next` belongs to, or queue.assigned()
  std::uint64_t next_ssn = 1;          // first SSN of the next WQE to be assigned
  std::int64_t completed_ssn = 0;      // last SSN of the last WQE that completed
  unsigned pending_rd_atomics = 0;     // WQEs with has_response() in [head, assigned)
  bool drained_raised = false;

  void start(std::uint32_t first_psn);
  bool all_begun() const { return cursor == queue.tail(); }
  bool at_fresh_wqe() const { return cursor == queue.assigned(); }
  RequestPacket packet_at(std::uint64_t index, std::uint64_t psn) const;
  RequestPacket next_packet() const { return packet_at(cursor, next); }
  void build_request(const RequestPacket& packet, OutPacket* out) const;
  void start_wqe();
  void carry_out(Wqe& wqe);  // `wqe` is the local operation at `cursor`
  // Moves `cursor` past local operations that were carried out: it never rests on one.
  void skip_local();
  void rewind();  // goes back to una
  void complete_oldest();
  // Completes the oldest WQEs as long as they are local operations that were carried out. False:
  // the oldest one then has a local_error.
  bool settle();
  // Completes every WQE: `failed` with `status`, the others with kFlush.
  void flush(std::uint64_t failed, Status status);
  void check_drained();  // raises kSqDrained once in SQD
  // False if all WQEs are unsignaled messages that were sent completely: they may have arrived, and
  // nobody waits for them.
  bool is_waited_for() const;
};

}  // namespace ferry::transport
