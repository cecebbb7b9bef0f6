#pragma once

#include <infiniband/verbs.h>

namespace ferry::hca {

// Tells the kernel by ioctl(2) that requests wait in the send queue of `qp`. rdma_rxe's provider uses
// write(2) for that, which the kernel refuses (EACCES) to threads whose credentials are not the very
// ones with which the device was opened: each thread of a restored process has credentials of its own.
// The kernel takes the same command by ioctl(2) from any thread. 0 or errno.
int ring_doorbell(const ibv_qp& qp);

}  // namespace ferry::hca
