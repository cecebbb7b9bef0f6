#pragma once

#include <infiniband/verbs.h>

#include "rnic/engine/requests/receive_queue.h"
#include "transport/types.h"
#include "wire/bytes.h"

// What the queues of QPs and SRQs share: how an application's requests get into them, and how
// receive queues are saved (docs/image.md "Receive queue").
namespace ferry::rnic {

void copy_sges(const ibv_sge* from, int count, transport::Sge* to);

// Posts a list of receive WQEs. EINVAL: one has too many elements; ENOMEM: the queue is full. *bad
// is then the first that was not posted.
int push_receives(ibv_recv_wr* list, std::uint32_t max_sge, ReceiveQueue& queue, ibv_recv_wr** bad);

void save_receives(const ReceiveQueue& queue, wire::ByteWriter& out);
// Replaces what is in the queue. False: malformed, or more than `max_wr` WQEs or `max_sge`
// elements.
bool load_receives(wire::ByteReader& in, std::uint32_t max_wr, std::uint32_t max_sge,
                   ReceiveQueue* queue);

}  // namespace ferry::rnic
