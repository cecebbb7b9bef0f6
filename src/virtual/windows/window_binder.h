#pragma once

#include <functional>

#include "device/objects.h"
#include "virtual/stop/returns.h"
#include "virtual/windows/windows.h"

namespace ferry::virt {

// Binds the application's windows on a device that does not know them, by requests of Ferry's (as markers are,
// the application sees no completion of them). A window that cannot be bound again is bound to nothing from
// then on.
class WindowBinder {
 public:
  WindowBinder(Windows& windows, Returns& returns) : windows_(windows), returns_(returns) {}

  // Binds the windows of type 1, which need no particular QP: each PD gets a QP for it that is connected with
  // itself. The PDs, MRs and windows have their objects behind. 0 or errno.
  int bind_all_of_type_1(device::Context& device);

  // The following are about the windows of type 2 that are bound to one QP. `object`: the QP behind, in RTS.
  // `qpn`: as the application knows it. `sweep`: takes completions from the CQ of the QP; nobody else polls.
  using Sweep = std::function<void()>;
  // Binds those that are not bound behind. False: the QP has failed.
  bool bind(device::Qp& object, std::uint32_t qpn, const Numbers* numbers, const Sweep& sweep);
  // Invalidates them behind: the QP is about to be replaced, and a window that is bound may hold it
  // (rdma_rxe).
  void release(device::Qp& object, std::uint32_t qpn, const Numbers* numbers, const Sweep& sweep);

 private:
  // Whether the MR of a binding is there, and allows the binding. The device would let its QP fail.
  bool is_allowed(const Mw::Binding& binding, const device::Pd* pd);
  // Binds windows of one PD until one fails; *done counts those that are bound or cannot be bound.
  int bind_some_of_type_1(device::Context& device, const std::vector<Mw*>& windows,
                          std::size_t* done);
  // Posts a request, and waits for its completion. False: the QP has failed.
  bool carry_out(device::Qp& object, ibv_send_wr* request, const Sweep& sweep);

  Windows& windows_;
  Returns& returns_;
};

}  // namespace ferry::virt
