#pragma once

#include <infiniband/verbs.h>

#include <cerrno>

#include "device/objects.h"
#include "hca/objects.h"

namespace ferry::hca {

class Qp : public device::Qp, public Ended {
 public:
  // `begins_anew`: what begins_anew() (hca/rxe.h) says of the device.
  Qp(Names& names, bool begins_anew) : names_(names), begins_anew_(begins_anew) {}
  // init->cap gets what was granted.
  int create(device::QpInit* init);
  // Opens a target that is there already.
  int open(ibv_context* context, device::Xrcd& xrcd, std::uint32_t qpn);
  std::uint32_t qpn() const override { return real->qp_num; }
  ibv_qp_state state() const override { return real->state; }
  int post_send(ibv_send_wr* list, ibv_send_wr** bad) override {
    if (names_.has_windows.load(std::memory_order_relaxed)) return post_named(list, bad);
    return post(list, bad);
  }
  int post_all(ibv_send_wr* list) override;
  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override {
    return real->context->ops.post_recv(real, list, bad);
  }
  int modify(const ibv_qp_attr& attributes, int mask) override;
  int query(ibv_qp_attr* attributes) const override;
  int limit_rate(const ibv_qp_rate_limit_attr& attributes) override;
  int attach_mcast(const ibv_gid& gid, std::uint16_t lid) override {
    return error_of(ibv_attach_mcast(real, &gid, lid));
  }
  int detach_mcast(const ibv_gid& gid, std::uint16_t lid) override {
    return error_of(ibv_detach_mcast(real, &gid, lid));
  }
  int bind_mw(device::Mw* window, const device::MwBind& bind, std::uint32_t* rkey) override;
  int end() override { return error_of(ibv_destroy_qp(real)); }
  ibv_qp* real = nullptr;

 protected:
  int post(ibv_send_wr* list, ibv_send_wr** bad) {
    const int error = real->context->ops.post_send(real, list, bad);
    if (error == EACCES) [[unlikely]]
      return posted_silently(*bad);
    return error;
  }
  // Posts copies of the requests, in which stock objects replace the numbers of AHs, MWs and MRs.
  int post_named(ibv_send_wr* list, ibv_send_wr** bad);

 private:
  // Tells the kernel of the requests before `bad` (null: of all), which are in the queue, but of which
  // the provider could not tell it. 0 or errno.
  int posted_silently(const ibv_send_wr* bad) const;
  // Puts stock objects into a copy of a request. False: the request names an object that does not exist.
  bool name(ibv_send_wr* request) const;
  // Builds a request by the calls of ibv_qp_ex.
  void build(const ibv_send_wr& request) const;

  // Binds a window without giving it another key.
  int bind_again(const ibv_mw_bind& bind, ibv_mw* window);

  Names& names_;
  const bool begins_anew_;
  ibv_qp_ex* ex_ = nullptr;  // the same QP, if it was made for post_all()
};

// A QP of UD, whose requests name AHs.
class DatagramQp final : public Qp {
 public:
  using Qp::Qp;
  int post_send(ibv_send_wr* list, ibv_send_wr** bad) override { return post_named(list, bad); }
};

}  // namespace ferry::hca
