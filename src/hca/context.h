#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "device/objects.h"
#include "hca/objects.h"
#include "hca/rxe.h"

namespace ferry::hca {

class Context final : public device::Context {
 public:
  // Takes over the stock context, and closes it in the destructor. The objects that the application
  // has not destroyed end then, too.
  explicit Context(ibv_context* context)
      : real_(context), begins_anew_(hca::begins_anew(*context)) {}
  ~Context() override;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int query_device(ibv_device_attr_ex* out) override;
  int query_port(std::uint8_t port_number, ibv_port_attr* out) override;
  int query_gid(std::uint8_t port_number, unsigned index, ibv_gid_entry* out) override;
  // Reads all GIDs by one call of the kernel, because the table of an rdma_rxe port has 1,024 entries.
  std::vector<ibv_gid_entry> gids() override;
  int query_pkey(std::uint8_t port_number, int index, std::uint16_t* out) override;
  int alloc_pd(device::Pd** out) override;
  int reg_mr(const device::MrInit& init, device::Mr** out) override;
  int create_cq(const device::CqInit& init, device::Cq** out) override;
  int create_qp(device::QpInit* init, device::Qp** out) override;
  int alloc_null_mr(device::Pd* pd, device::Mr** out) override;
  int rereg_mr(device::Mr* mr, int flags, const device::MrInit& init) override;
  int alloc_mw(device::Pd* pd, ibv_mw_type type, device::Mw** out) override;
  int create_ah(device::Pd* pd, const ibv_ah_attr& attributes, device::Ah** out) override;
  int create_srq(device::SrqInit* init, device::Srq** out) override;
  int open_xrcd(const device::XrcdInit& init, device::Xrcd** out) override;
  bool shares_xrcds() const override { return true; }
  int open_qp(device::Xrcd* xrcd, std::uint32_t qpn, device::Qp** out) override;
  int completion_vectors() const override { return real_->num_comp_vectors; }
  int create_channel(device::Channel** out) override;
  int asynchronous_descriptor() const override { return real_->async_fd; }
  int take_asynchronous(device::AsynchronousEvent* out) override;
  void acknowledge(const device::AsynchronousEvent& event) override;
  int command_descriptor() const override { return real_->cmd_fd; }
  bool checks_requests() const override { return true; }
  // The kernel pins the memory of MRs, and waits for the hardware at each QP. A thread that the one that has opened the
  // device starts has the credentials of that thread, so that the kernel takes its write(2), too (doorbell.h).
  unsigned useful_threads() const override;
  std::uint64_t clock() const override;
  int destroy(device::Object* object) override;
  bool survives_fork() const override { return true; }
  void abandon() override {}

 private:
  // Keeps `object`, and makes its stock object by create(*object). 0 or errno.
  template <typename T, typename DeviceObject, typename Create>
  int make(std::unique_ptr<T> object, DeviceObject** out, Create create);
  void forget(device::Object* object);

  ibv_context* const real_;
  const bool begins_anew_;
  Names names_;
  std::mutex mutex_;  // guards objects_
  std::unordered_map<device::Object*, std::unique_ptr<device::Object>> objects_;
};

}  // namespace ferry::hca
