#include "virtual/stop/send_marker.h"

#include <utility>

namespace ferry::virt {
namespace {

// Gives a Q_Key other than `qkey`, without the highest bit: a request whose Q_Key has that bit is sent with
// the Q_Key of its QP (IBTA vol. 1, 10.2.5).
std::uint32_t another_qkey(std::uint32_t qkey) {
  return (qkey ^ 1) & 0x7FFFFFFF;
}

}  // namespace

int SendMarker::post(device::Qp& qp, device::Mw* window, const device::Mr* region) {
  if (id_ != 0) return 0;
  const std::uint64_t id = returns_.add_marker();
  device::MwBind bind;  // of no byte: the window stays bound to nothing
  bind.mr = region;
  bind.wr_id = id;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.is_marker = true;
  std::uint32_t rkey = 0;
  const int error = qp.bind_mw(window, bind, &rkey);
  if (error != 0) {
    returns_.withdraw(id);
  } else {
    id_ = id;
  }
  return error;
}

int SendMarker::post_datagram(device::Qp& qp, const device::Ah& to_itself, std::uint32_t qkey) {
  if (id_ != 0) return 0;
  const std::uint64_t id = returns_.add_marker();
  ibv_ah ah{};
  ah.handle = to_itself.handle();
  ibv_send_wr request{};
  request.wr_id = id;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.ud = {&ah, qp.qpn(), another_qkey(qkey)};
  ibv_send_wr* bad = nullptr;
  const int error = qp.post_send(&request, &bad);
  if (error != 0) {
    returns_.withdraw(id);
  } else {
    id_ = id;
  }
  return error;
}

bool SendMarker::is_out() {
  if (id_ != 0 && !returns_.is_out(id_)) id_ = 0;
  return id_ != 0;
}

void SendMarker::withdraw() {
  if (id_ != 0) returns_.withdraw(std::exchange(id_, 0));
}

}  // namespace ferry::virt
