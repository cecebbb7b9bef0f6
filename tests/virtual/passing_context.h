#pragma once

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
  int destroy(device::Object* object) override { return inner_->destroy(object); }
  void abandon() override { inner_->abandon(); }

 protected:
  explicit PassingContext(std::unique_ptr<device::Context> inner = nullptr)
      : inner_(std::move(inner)) {}

  std::unique_ptr<device::Context> inner_;
};

}  // namespace ferry::virt::testing
