// Brings an RC QP from INIT to RTS.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "side_channel.h"

namespace stream_check {

struct Connection {
  uint32_t number = 0;  // of the QP, for messages to people
  Endpoint local, peer;
  QpEndpoint local_qp, peer_qp;
  int gid_index = 0;
  uint32_t reads_initiated = 0;  // at a time, as requester
  uint32_t timeout = 14;         // ibv_qp_attr::timeout
};

// From RESET; then receives can be posted. Throws Failure.
void to_init(ibv_qp* qp, uint32_t number);
// Throws Failure.
void connect(ibv_qp* qp, const Connection& connection);

}  // namespace stream_check
