#pragma once

#include <infiniband/verbs.h>

#include "device/objects.h"
#include "hca/objects.h"

namespace ferry::hca {

// A completion channel: its descriptor is the kernel's.
class Channel final : public device::Channel, public Ended {
 public:
  int create(ibv_context* context);
  int descriptor() const override { return real->fd; }
  int take(device::Cq** out) override;
  int end() override { return error_of(ibv_destroy_comp_channel(real)); }
  ibv_comp_channel* real = nullptr;
};

class Cq final : public device::Cq, public Ended {
 public:
  int create(ibv_context* context, const device::CqInit& init);
  int poll(int count, ibv_wc* out) override { return real->context->ops.poll_cq(real, count, out); }
  int poll_one(ibv_wc* out, device::CompletionTimes* times) override;
  int arm(bool solicited_only) override {
    return real->context->ops.req_notify_cq(real, solicited_only ? 1 : 0);
  }
  int resize(int cqe) override { return error_of(ibv_resize_cq(real, cqe)); }
  int capacity() const override { return real->cqe; }
  int moderate(std::uint16_t count, std::uint16_t period) override;
  void acknowledge() override { ibv_ack_cq_events(real, 1); }
  int end() override { return error_of(ibv_destroy_cq(real)); }
  ibv_cq* real = nullptr;

 private:
  int create_extended(ibv_context* context, const device::CqInit& init);
  ibv_cq_ex* timed_ = nullptr;  // the CQ `real`, if it tells the times of completions; else null
  bool wallclock_ = false;
};

}  // namespace ferry::hca
