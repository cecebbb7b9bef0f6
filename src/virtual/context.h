#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "device/movable.h"
#include "virtual/objects.h"

// A decorator: it is a device, and has one of any kind (hca/, rnic/, a fake). The application holds
// shadows of its objects. So far the shadows let everything through, and no program moves: quiesce()
// refuses, so that a stop fails and the program goes on.
namespace ferry::virt {

class Context final : public device::MovableContext, private device::EventSink {
 public:
  // Opens the device behind. Null and *error (errno): it cannot be opened.
  static std::unique_ptr<Context> open(device::Rnic& rnic, device::EventSink& sink, int* error);
  ~Context() override;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int query_device(ibv_device_attr_ex* out) override { return inner_->query_device(out); }
  int query_port(std::uint8_t port_number, ibv_port_attr* out) override {
    return inner_->query_port(port_number, out);
  }
  int query_gid(std::uint8_t port_number, unsigned index, ibv_gid_entry* out) override {
    return inner_->query_gid(port_number, index, out);
  }
  int query_pkey(std::uint8_t port_number, int index, std::uint16_t* out) override {
    return inner_->query_pkey(port_number, index, out);
  }
  int alloc_pd(device::Pd** out) override;
  int reg_mr(const device::MrInit& init, device::Mr** out) override;
  int create_cq(const device::CqInit& init, device::Cq** out) override;
  int create_qp(device::QpInit* init, device::Qp** out) override;
  int alloc_null_mr(device::Pd* pd, device::Mr** out) override;
  int rereg_mr(device::Mr* mr, int flags, const device::MrInit& init) override;
  int alloc_mw(device::Pd* pd, ibv_mw_type type, device::Mw** out) override;
  int create_ah(device::Pd* pd, const ibv_ah_attr& attributes, device::Ah** out) override;
  int create_srq(device::SrqInit* init, device::Srq** out) override;
  int open_xrcd(device::Xrcd** out) override;
  int completion_vectors() const override { return inner_->completion_vectors(); }
  int create_channel(device::Channel** out) override;
  int asynchronous_descriptor() const override { return inner_->asynchronous_descriptor(); }
  int take_asynchronous(device::AsynchronousEvent* out) override;
  void acknowledge(const device::AsynchronousEvent& event) override;
  int command_descriptor() const override { return inner_->command_descriptor(); }
  bool checks_requests() const override { return inner_->checks_requests(); }
  std::uint64_t clock() const override { return inner_->clock(); }
  int destroy(device::Object* object) override;
  bool survives_fork() const override { return inner_->survives_fork(); }
  void abandon() override { inner_->abandon(); }
  void leave() override { inner_->leave(); }
  void counters(std::vector<device::Counter>* out) override { inner_->counters(out); }

  void prepare() override {}
  int quiesce(std::chrono::nanoseconds /*limit*/, std::uint32_t* /*unacked_psns*/) override {
    return EOPNOTSUPP;
  }
  int park(device::Parcel* /*out*/) override { return EOPNOTSUPP; }
  int unpark(const device::Parcel& /*parcel*/) override { return EOPNOTSUPP; }
  void resume(bool /*rollback*/) override {}
  int describe(std::vector<std::byte>* /*out*/, int* /*count*/) override { return EOPNOTSUPP; }
  int restore(device::ObjectType /*type*/, device::RestoreCommand /*command*/,
              std::span<const std::byte> /*record*/, device::Object** /*object*/) override {
    return EOPNOTSUPP;
  }
  void status(std::vector<device::QpStatus>* out) override;
  device::Parcel place() override { return {}; }

 private:
  explicit Context(device::EventSink& sink) : sink_(sink) {}

  void completion(device::Cq& cq) override;
  void asynchronous(ibv_event_type type, device::Object* object) override;

  // Makes the shadow of an object behind, unless that has failed (`error`). 0 or errno.
  template <typename T, typename Base, typename... Arguments>
  int keep(int error, Base* made, Base** out, Arguments... arguments);

  device::EventSink& sink_;
  std::mutex mutex_;  // guards objects_
  std::unordered_map<device::Object*, std::unique_ptr<device::Object>> objects_;
  std::unique_ptr<device::Context> inner_;  // ends first: it may raise events
};

}  // namespace ferry::virt
