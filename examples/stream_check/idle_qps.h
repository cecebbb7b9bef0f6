// RC QPs beside the streams that carry nothing until the end of the run; then one message of no byte each
// way tells that they still work.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device.h"
#include "side_channel.h"

namespace stream_check {

class IdleQps {
 public:
  // `first`: the number of the first one, for messages to people. Throws Failure.
  IdleQps(const Device& device, uint32_t first, uint32_t count);

  const std::vector<QpEndpoint>& endpoints() const { return endpoints_; }
  // Throws Failure.
  void connect(const Endpoint& local, const Endpoint& peer, const std::vector<QpEndpoint>& theirs,
               uint32_t timeout);

  // The run is over for this side. Further calls do nothing.
  void send_last();
  // Looks at completions. What is wrong with one or with a call, for people; empty: nothing.
  std::string look();
  // What this side has sent is acknowledged.
  bool is_sent() const { return has_sent_ && sent_ == qps_.size(); }
  // The peer's message has come on all of them.
  bool is_complete() const { return received_ == qps_.size(); }
  uint64_t missing() const { return qps_.size() - received_; }

 private:
  using Qp = std::unique_ptr<ibv_qp, Destroyer<ibv_destroy_qp>>;

  const uint32_t first_;
  const int gid_index_;
  const uint32_t reads_initiated_;
  std::unique_ptr<ibv_cq, Destroyer<ibv_destroy_cq>> cq_;
  std::vector<Qp> qps_;
  std::vector<QpEndpoint> endpoints_;
  std::string call_error_;
  bool has_sent_ = false;
  uint64_t sent_ = 0, received_ = 0;
};

}  // namespace stream_check
