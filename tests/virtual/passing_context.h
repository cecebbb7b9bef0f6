#pragma once

#include <map>
#include <memory>
#include <utility>

#include "device/objects.h"

namespace ferry::virt::testing {

// A device whose context passes every call on to another one. Who derives from it says what is different.
class PassingContext : public device::Context {
 public:
  int query_device(ibv_device_attr_ex* out) override { return inner_->query_device(out); }
  int query_port(std::uint8_t port, ibv_port_attr* out) override {
    return inner_->query_port(port, out);
  }
  int query_gid(std::uint8_t port, unsigned index, ibv_gid_entry* out) override {
    return inner_->query_gid(port, index, out);
  }
  int query_pkey(std::uint8_t port, int index, std::uint16_t* out) override {
    return inner_->query_pkey(port, index, out);
  }
  int alloc_pd(device::Pd** out) override { return inner_->alloc_pd(out); }
  int reg_mr(const device::MrInit& init, device::Mr** out) override {
    return inner_->reg_mr(init, out);
  }
  int alloc_mw(device::Pd* pd, ibv_mw_type type, device::Mw** out) override {
    return inner_->alloc_mw(pd, type, out);
  }
  int create_cq(const device::CqInit& init, device::Cq** out) override {
    return inner_->create_cq(init, out);
  }
  int create_qp(device::QpInit* init, device::Qp** out) override {
    return inner_->create_qp(init, out);
  }
  int create_srq(device::SrqInit* init, device::Srq** out) override {
    return inner_->create_srq(init, out);
  }
  int open_xrcd(const device::XrcdInit& init, device::Xrcd** out) override {
    return inner_->open_xrcd(init, out);
  }
  int destroy(device::Object* object) override { return inner_->destroy(object); }
  void abandon() override { inner_->abandon(); }

 protected:
  explicit PassingContext(std::unique_ptr<device::Context> inner = nullptr)
      : inner_(std::move(inner)) {}

  std::unique_ptr<device::Context> inner_;
};

// A QP that passes every call on to another one.
class PassingQp : public device::Qp {
 public:
  explicit PassingQp(device::Qp& qp) : inner(qp) {}
  std::uint32_t qpn() const override { return inner.qpn(); }
  ibv_qp_state state() const override { return inner.state(); }
  int post_send(ibv_send_wr* list, ibv_send_wr** bad) override {
    return inner.post_send(list, bad);
  }
  int post_all(ibv_send_wr* list) override { return inner.post_all(list); }
  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override {
    return inner.post_recv(list, bad);
  }
  int modify(const ibv_qp_attr& attributes, int mask) override {
    return inner.modify(attributes, mask);
  }
  int query(ibv_qp_attr* attributes) const override { return inner.query(attributes); }
  int bind_mw(device::Mw* window, const device::MwBind& bind, std::uint32_t* rkey) override {
    return inner.bind_mw(window, bind, rkey);
  }
  device::Qp& inner;
};

// A device whose QPs are PassingQps: those that wrap() makes.
class WrappingContext : public PassingContext {
 public:
  int create_qp(device::QpInit* init, device::Qp** out) override {
    device::Qp* made = nullptr;
    if (const int error = inner_->create_qp(init, &made)) return error;
    auto wrapped = wrap(*made);
    *out = wrapped.get();
    qps_.emplace(*out, std::move(wrapped));
    return 0;
  }
  int destroy(device::Object* object) override {
    const auto qp = qps_.find(object);
    if (qp == qps_.end()) return inner_->destroy(object);
    const int error = inner_->destroy(&qp->second->inner);
    if (error == 0) qps_.erase(qp);
    return error;
  }

 protected:
  using PassingContext::PassingContext;
  virtual std::unique_ptr<PassingQp> wrap(device::Qp& qp) = 0;

 private:
  std::map<device::Object*, std::unique_ptr<PassingQp>> qps_;
};

}  // namespace ferry::virt::testing
