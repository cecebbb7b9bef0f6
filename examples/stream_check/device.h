// The RDMA device, and what all QPs of the run share.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "options.h"
#include "side_channel.h"

namespace stream_check {

template <auto kDestroy>
struct Destroyer {
  template <typename T>
  void operator()(T* object) const {
    kDestroy(object);
  }
};

class Device {
 public:
  // Opens the device and port 1. Throws Failure.
  explicit Device(const Options& options);

  // Creates the CQ for this many completions, and the channel when the run sleeps on events.
  void create_completion_queue(uint32_t entries);

  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  ibv_cq* cq() const { return cq_.get(); }
  ibv_comp_channel* channel() const { return channel_.get(); }  // null when polling
  const char* name() const { return ibv_get_device_name(context_->device); }
  int gid_index() const { return gid_index_; }
  // This side's GID, LID, MTU and the READs in progress that its QPs serve.
  const Endpoint& endpoint() const { return endpoint_; }
  // READs that a QP may have in progress as requester.
  uint32_t reads_initiated() const { return reads_initiated_; }

 private:
  void choose_gid(int wanted, const ibv_port_attr& port);

  bool events_;
  int gid_index_ = 0;
  Endpoint endpoint_;
  uint32_t reads_initiated_ = 1;
  // Destroyed in the opposite order.
  std::unique_ptr<ibv_context, Destroyer<ibv_close_device>> context_;
  std::unique_ptr<ibv_pd, Destroyer<ibv_dealloc_pd>> pd_;
  std::unique_ptr<ibv_comp_channel, Destroyer<ibv_destroy_comp_channel>> channel_;
  std::unique_ptr<ibv_cq, Destroyer<ibv_destroy_cq>> cq_;
};

// 256 for IBV_MTU_256 and so on, and back.
uint32_t mtu_bytes(ibv_mtu mtu);
ibv_mtu mtu_code(uint32_t bytes);

}  // namespace stream_check
