#pragma once

#include <cstdint>
#include <utility>

#include "transport/opcodes.h"
#include "transport/streams/qp_attributes.h"
#include "transport/types.h"
#include "wire/header.h"

namespace ferry::transport {

// How far the peer's requests have come, and the message that is being received; for RC and UC.
struct ReceiveStream {
  ReceiveStream(QpAttributes& qp_, ReceiveRequest storage) : qp(qp_), receive(std::move(storage)) {}

  QpAttributes& qp;
  std::uint32_t expected_psn = 0;
  std::uint32_t msn = 0;

  RequestKind message = RequestKind::kNone;  // kSend or kWrite
  bool has_receive = false;
  bool requests_received = false;
  bool established_raised = false;
  std::uint32_t receive_srqn = 0;  // XRC: the SRQ of the WQE in `receive`
  std::uint64_t offset = 0;        // bytes of the message that were received
  wire::Reth write;                // kWrite
  ReceiveRequest receive;
  std::uint64_t receive_length = 0;  // bytes that the scatter list takes

  // Called when `receive` was filled.
  void begin_receive() {
    has_receive = true;
    receive_length = receive.length();
  }
  // Completes the WQE in use with this status. False: there is none.
  bool end_receive(Status status);
  // XRC target: names the SRQ of a request to the Host. False: it is not of the QP's XRC domain.
  bool select_srq(std::uint32_t srqn) {
    return qp.limits.type != ConnectionType::kXrcTarget || qp.path.host.select_srq(srqn);
  }
  // Raises kCommunicationEstablished, if this is the first packet of the peer in RTR.
  void raise_established();
};

}  // namespace ferry::transport
