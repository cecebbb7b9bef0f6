// One RC QP with its memory: posts this side's messages, hands what arrives to the Receiver.
//
// Memory of a stream, in slots of the largest message:
//   send      kSendDepth      one per send request; a READ lands in its slot
//   receive   kReceiveDepth
//   write     kWriteSlots     target of the peer's WRITEs
//   read      kReadSlots      source of the peer's READs
//
// Flow control: no payload is posted unless the peer has a receive or slot for it (Credits, which
// every message that completes a receive carries). Control messages return credits when no payload
// does; they have receives of their own, and rnr_retry 7 behind these.
//
// READ: slot n % kReadSlots is filled with message n, then published by a credit; it is filled anew
// after the peer has released it. Nobody writes to a slot that may be read.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "device.h"
#include "receiver.h"

namespace stream_check {

inline constexpr uint32_t kSendDepth = 32;
inline constexpr uint32_t kReceiveWindow = 32;  // of payload
inline constexpr uint32_t kReceiveDepth = kReceiveWindow + 16;
inline constexpr uint32_t kWriteSlots = 32;
inline constexpr uint32_t kReadSlots = 16;

// wr_id = receive:1 qp:15 op:8 index:40; the index counts the requests of the queue.
struct WorkId {
  bool receive = false;
  uint16_t qp = 0;
  Op op = Op::kSend;  // of a send request
  uint64_t index = 0;

  uint64_t pack() const;
  static WorkId unpack(uint64_t wr_id);
  std::string text() const;
};

// What this process found wrong with completions and calls, not with messages.
struct RequestFaults {
  uint64_t error_completions = 0;  // status other than success
  uint64_t completion_faults = 0;  // missing, doubled or contradictory completions
  uint64_t call_errors = 0;        // a verbs call failed, or a fatal asynchronous event came
  FaultLog log;

  uint64_t total() const { return error_completions + completion_faults + call_errors; }
};

class Stream {
 public:
  struct Plan {
    StreamId to;    // this side's messages
    StreamId from;  // the peer's
    uint32_t max_length = 0;
    uint64_t messages = 0;  // per op; 0: no limit
    std::array<bool, kOps> ops{};
    uint32_t timeout = 14;  // ibv_qp_attr::timeout
  };

  // Creates QP and memory. Throws Failure.
  Stream(Device* device, const Plan& plan, FaultLog* message_faults, RequestFaults* faults);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const QpEndpoint& endpoint() const { return endpoint_; }
  // INIT, receives posted, RTR, RTS. Throws Failure.
  void connect(const Endpoint& local, const Endpoint& peer, const QpEndpoint& qp);

  // Posts what may be posted. No more payload after `stopping`, nor beyond `budget` messages of it.
  void post(bool stopping, uint64_t budget);
  // A completion of this QP. Returns the payload bytes that it stands for.
  uint64_t complete(const ibv_wc& wc);
  void finish(const std::array<uint64_t, kOps>& sent_by_peer);

  // All own payload is acknowledged, and so is the message that says so.
  bool done() const { return last_sent_ && outstanding() == 0; }
  // Everything that the peer says to have sent is here.
  bool complete(const std::array<uint64_t, kOps>& sent_by_peer) const {
    return receiver_.complete(sent_by_peer);
  }
  bool failed() const { return failed_; }
  uint64_t outstanding() const { return posted_ - completed_; }
  const std::array<uint64_t, kOps>& sent() const { return sent_; }
  uint64_t bytes_sent() const { return bytes_sent_; }
  const Receiver& receiver() const { return receiver_; }

 private:
  struct Request {
    Op op;
    bool signaled;
    uint64_t sequence;
    uint32_t length;
  };
  // A list of requests for one ibv_post_send.
  struct Chain;

  uint8_t* send_slot(uint64_t index) { return memory_.get() + index % kSendDepth * slot_bytes_; }
  uint8_t* receive_slot(uint64_t index);
  uint8_t* write_ring() { return memory_.get() + (kSendDepth + kReceiveDepth) * slot_bytes_; }
  uint8_t* read_slot(uint64_t sequence);
  bool may_post(Op op) const;
  bool limit_reached() const;
  uint64_t payload_sent() const;
  bool credits_due();
  Credits take_credits();
  void append(Chain* chain, Op op, uint8_t flags);
  void post_chain(Chain* chain);
  void post_receive(uint64_t index);
  void publish_reads();
  uint64_t complete_request(const ibv_wc& wc, const WorkId& id);
  uint64_t complete_receive(const ibv_wc& wc, const WorkId& id);
  void completion_fault(const ibv_wc& wc, const std::string& what);
  void call_error(const std::string& call, int error);

  Plan plan_;
  size_t slot_bytes_;
  RequestFaults* faults_;
  std::unique_ptr<uint8_t, Destroyer<free>> memory_;
  Receiver receiver_;
  std::unique_ptr<ibv_mr, Destroyer<ibv_dereg_mr>> local_mr_;
  std::unique_ptr<ibv_mr, Destroyer<ibv_dereg_mr>> write_mr_;
  std::unique_ptr<ibv_mr, Destroyer<ibv_dereg_mr>> read_mr_;
  std::unique_ptr<ibv_qp, Destroyer<ibv_destroy_qp>> qp_;
  uint32_t max_inline_ = 0;
  int gid_index_;
  uint32_t reads_initiated_;
  QpEndpoint endpoint_;
  QpEndpoint peer_;

  uint64_t posted_ = 0;      // send requests
  uint64_t completed_ = 0;   // send requests known to be complete
  uint64_t unsignaled_ = 0;  // since the last signaled one
  std::array<Request, kSendDepth> requests_{};
  std::array<uint64_t, kOps> sent_{};
  size_t next_op_ = 0;
  uint64_t receives_used_ = 0;  // receives at the peer that our payload takes
  uint64_t receives_posted_ = 0;
  uint64_t receives_completed_ = 0;
  uint64_t reads_published_ = 0;
  uint64_t reads_done_ = 0;
  uint64_t bytes_sent_ = 0;
  Credits given_;  // last sent to the peer
  Credits got_;    // last received
  bool last_sent_ = false;
  bool failed_ = false;
};

}  // namespace stream_check
