#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "device/objects.h"
#include "virtual/stop/returns.h"

namespace ferry::virt {

// A request of Ferry's behind all others of a send queue: when its completion comes, the device has done
// the others. On a connected QP the marker binds a window to no byte. Each QP has a window of its own:
// rdma_rxe refuses binds of one window that it carries out in another order than that of their posts, and
// it gets to the markers of several QPs in any order. A UD QP takes no binds: there the marker is a
// datagram of no byte to the QP itself, with a Q_Key that is not the QP's own, so that the QP drops it.
class SendMarker {
 public:
  explicit SendMarker(Returns& returns) : returns_(returns) {}
  SendMarker(const SendMarker&) = delete;
  SendMarker& operator=(const SendMarker&) = delete;

  // Posts the marker, unless there is one (is_out()). 0; ENOMEM: the queue is full, try again; another
  // errno: the QP does nothing any more.
  int post(device::Qp& qp, device::Mw* window, const device::Mr* region);
  // The same for a UD QP. `to_itself`: an AH from the QP's port to that port. `qkey`: the QP's Q_Key.
  int post_datagram(device::Qp& qp, const device::Ah& to_itself, std::uint32_t qkey);
  // Whether there is a marker whose completion has not come.
  bool is_out();
  // The QP was reset or destroyed: no completion of the marker will come.
  void withdraw();

 private:
  Returns& returns_;
  std::uint64_t id_ = 0;  // 0: there is none
};

}  // namespace ferry::virt
