// One UC or UD queue pair with its buffers: sends numbered messages, judges what comes in.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device.h"
#include "ledger.h"
#include "message.h"
#include "side_channel.h"

namespace datagram_check {

class Link {
 public:
  // `size`: of the largest message; UD: at most the MTU. Throws stream_check::Failure.
  Link(stream_check::Device* device, ibv_qp_type type, uint32_t size,
       const stream_check::StreamId& to, const stream_check::StreamId& from);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  stream_check::QpEndpoint endpoint() const;
  void connect(const stream_check::Endpoint& local, const stream_check::Endpoint& peer,
               const stream_check::QpEndpoint& qp);

  // Sends the next message when there is room; false: no room now.
  bool send();
  // Takes completions; how many.
  int poll();

  const std::vector<Sending>& sendings() const { return sendings_; }
  const Arrivals& arrivals() const { return arrivals_; }
  bool all_sent() const { return completed_ == sendings_.size(); }
  uint64_t corrupted() const { return corrupted_; }
  // What failed first, in words; empty: nothing.
  const std::string& error() const { return error_; }

 private:
  void modify(ibv_qp_attr attributes, int mask, const char* what);
  void post_receive(uint64_t index);
  uint8_t* receive_slot(uint64_t index) { return memory_.get() + index * slot_bytes_; }
  uint8_t* send_slot(uint64_t index);
  void take_receive(const ibv_wc& wc);
  void fail(const std::string& text);

  stream_check::Device& device_;
  const ibv_qp_type type_;
  const uint32_t size_, slot_bytes_;
  const stream_check::StreamId to_, from_;
  std::unique_ptr<uint8_t[]> memory_;
  std::unique_ptr<ibv_mr, stream_check::Destroyer<ibv_dereg_mr>> mr_;
  std::unique_ptr<ibv_qp, stream_check::Destroyer<ibv_destroy_qp>> qp_;
  std::unique_ptr<ibv_ah, stream_check::Destroyer<ibv_destroy_ah>> ah_;
  uint32_t psn_ = 0;
  uint32_t peer_qpn_ = 0;
  std::vector<Sending> sendings_;
  uint64_t completed_ = 0;
  uint64_t corrupted_ = 0;
  Arrivals arrivals_;
  std::string error_;
};

}  // namespace datagram_check
