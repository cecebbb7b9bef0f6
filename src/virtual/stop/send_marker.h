#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "device/objects.h"
#include "virtual/stop/returns.h"

namespace ferry::virt {

// A request of Ferry's behind all others of a send queue: when its completion comes, the device has done
// those. An RC or UC QP binds a window of its own to no byte: a device may refuse binds of one window that it
// carries out in another order than they were posted in (rdma_rxe), as those of several QPs. A UD QP
// takes no binds: it sends itself a datagram of no byte with a Q_Key that is not its own, which it drops.
class SendMarker {
 public:
  explicit SendMarker(Returns& returns) : returns_(returns) {}
  SendMarker(const SendMarker&) = delete;
  SendMarker& operator=(const SendMarker&) = delete;

  // Posts it, unless there is one. 0, ENOMEM: the queue is full, try again; another errno: the QP does
  // nothing any more.
  int post(device::Qp& qp, device::Mw* window, const device::Mr* region);
  // `to_itself`: an AH for the port of the QP. `qkey`: that of the QP.
  int post_datagram(device::Qp& qp, const device::Ah& to_itself, std::uint32_t qkey);
  // Whether there is one whose completion has not come.
  bool is_out();
  // Its QP is at the beginning again.
  void withdraw();

 private:
  Returns& returns_;
  std::uint64_t id_ = 0;  // 0: there is none
};

}  // namespace ferry::virt
