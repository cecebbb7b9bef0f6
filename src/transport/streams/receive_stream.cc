#include "transport/streams/receive_stream.h"

namespace ferry::transport {

bool ReceiveStream::end_receive(Status status) {
  if (!has_receive) return false;
  has_receive = false;
  qp.path.host.complete_receive({.wr_id = receive.wr_id, .status = status, .srqn = receive_srqn});
  return true;
}

void ReceiveStream::raise_established() {
  if (qp.qp_state != QpState::kRtr || established_raised) return;
  established_raised = true;
  qp.path.host.raise(Host::Event::kCommunicationEstablished);
}

}  // namespace ferry::transport
