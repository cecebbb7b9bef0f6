#pragma once

#include <cstdint>
#include <utility>

#include "transport/opcodes.h"
#include "transport/streams/qp_attributes.h"
#include "transport/types.h"
#include "wire/header.h"

namespace ferry::transport {

// How far the peer's requests have come, and the message that is being received, of RC and UC alike.
struct ReceiveStream {
  ReceiveStream(QpAttributes& qp_, ReceiveRequest storage) : qp(qp_), receive(std::move(storage)) {}

  QpAttributes& qp;
  std::uint32_t expected_psn = 0;
  std::uint32_t msn = 0;

  RequestKind message = RequestKind::kNone;  // kSend or kWrite
  bool has_receive = false;
  bool requests_received = false;
  bool established_raised = false;
  std::uint32_t receive_srqn = 0;  // XRC: whose WQE it is
  std::uint64_t offset = 0;        // bytes of it received
  wire::Reth write;                // kWrite
  ReceiveRequest receive;
  std::uint64_t receive_length = 0;  // bytes the scatter list takes

  // After receive was filled.
  void begin_receive() {
    has_receive = true;
    receive_length = receive.length();
  }
  // The WQE in use completes with this status; false: there is none.
  bool end_receive(Status status);
  // XRC target: names the SRQ of a request to the Host; false: not of its domain.
  bool select_srq(std::uint32_t srqn) {
    return qp.limits.type != ConnectionType::kXrcTarget || qp.path.host.select_srq(srqn);
  }
  // In RTR, with the first packet of the peer.
  void raise_established();
};

}  // namespace ferry::transport
