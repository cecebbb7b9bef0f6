#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>

#include "device/movable.h"

// What the application holds: a shadow of each object of the device behind. The cookie of an object
// behind is its shadow, by which events find it.
namespace ferry::virt {

// A shadow, of whatever class.
class Shadowing {
 public:
  virtual ~Shadowing() = default;
  virtual device::Object* object_behind() = 0;
};

template <typename Base>
class Shadow : public Base, public Shadowing {
 public:
  explicit Shadow(Base& object) : inner(&object) {
    object.cookie = static_cast<device::Object*>(this);
  }
  device::Object* object_behind() override { return inner; }
  Base* inner;
};

// Null for null. `shadow` is one of virt::Context's.
template <typename Base>
Base* behind(Base* shadow) {
  return shadow != nullptr ? static_cast<Shadow<Base>*>(shadow)->inner : nullptr;
}

// Null: the application does not know the object yet.
template <typename Base>
Base* shadow_of(Base& object) {
  return static_cast<Base*>(static_cast<device::Object*>(object.cookie));
}

using Pd = Shadow<device::Pd>;
using Xrcd = Shadow<device::Xrcd>;

class Mr final : public Shadow<device::Mr> {
 public:
  using Shadow::Shadow;
  std::uint32_t lkey() const override { return inner->lkey(); }
  std::uint32_t rkey() const override { return inner->rkey(); }
};

class Mw final : public Shadow<device::Mw> {
 public:
  using Shadow::Shadow;
  std::uint32_t rkey() const override { return inner->rkey(); }
  std::uint32_t handle() const override { return inner->handle(); }
};

class Ah final : public Shadow<device::Ah> {
 public:
  using Shadow::Shadow;
  std::uint32_t handle() const override { return inner->handle(); }
};

class Channel final : public Shadow<device::Channel> {
 public:
  using Shadow::Shadow;
  int descriptor() const override { return inner->descriptor(); }
  int take(device::Cq** out) override;
};

class Cq final : public Shadow<device::Cq> {
 public:
  using Shadow::Shadow;
  int poll(int count, ibv_wc* out) override { return inner->poll(count, out); }
  int poll_one(ibv_wc* out, device::CompletionTimes* times) override {
    return inner->poll_one(out, times);
  }
  int take_one(ibv_wc* out, device::CompletionTimes* times) override {
    return inner->take_one(out, times);
  }
  int arm(bool solicited_only) override { return inner->arm(solicited_only); }
  int resize(int cqe) override { return inner->resize(cqe); }
  int capacity() const override { return inner->capacity(); }
  int moderate(std::uint16_t count, std::uint16_t period) override {
    return inner->moderate(count, period);
  }
  void acknowledge() override { inner->acknowledge(); }
};

class Srq final : public Shadow<device::Srq> {
 public:
  using Shadow::Shadow;
  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override {
    return inner->post_recv(list, bad);
  }
  int modify(const ibv_srq_attr& attributes, int mask) override {
    return inner->modify(attributes, mask);
  }
  int query(ibv_srq_attr* attributes) const override { return inner->query(attributes); }
  std::uint32_t number() const override { return inner->number(); }
};

class Qp final : public Shadow<device::Qp> {
 public:
  Qp(device::Qp& object, ibv_qp_type type) : Shadow(object), type_(type) {}
  std::uint32_t qpn() const override { return inner->qpn(); }
  ibv_qp_state state() const override { return inner->state(); }
  int post_send(ibv_send_wr* list, ibv_send_wr** bad) override {
    return inner->post_send(list, bad);
  }
  int post_all(ibv_send_wr* list) override { return inner->post_all(list); }
  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override {
    return inner->post_recv(list, bad);
  }
  int modify(const ibv_qp_attr& attributes, int mask) override;
  int query(ibv_qp_attr* attributes) const override { return inner->query(attributes); }
  int limit_rate(const ibv_qp_rate_limit_attr& attributes) override {
    return inner->limit_rate(attributes);
  }
  int attach_mcast(const ibv_gid& gid, std::uint16_t lid) override {
    return inner->attach_mcast(gid, lid);
  }
  int detach_mcast(const ibv_gid& gid, std::uint16_t lid) override {
    return inner->detach_mcast(gid, lid);
  }
  int bind_mw(device::Mw* window, const device::MwBind& bind, std::uint32_t* rkey) override;

  // What the device tells of the QP by itself, and what the application set.
  device::QpStatus status(device::Context& device) const;

 private:
  const ibv_qp_type type_;
  mutable std::mutex mutex_;  // guards what follows
  ibv_ah_attr path_{};
  std::uint32_t peer_qpn_ = 0;  // 0: not connected
};

}  // namespace ferry::virt
