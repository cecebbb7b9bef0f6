#pragma once

#include <infiniband/verbs.h>

namespace ferry::hca {

// Tells the kernel that requests wait in the send queue of `qp`, for a provider that does so by
// write(2) (rdma_rxe's): the kernel refuses that, with EACCES, to threads whose credentials are not
// the very ones with which the device was opened, as those of a restored process are. It takes the
// same command by ioctl(2) from any thread. 0 or errno.
int ring_doorbell(const ibv_qp& qp);

}  // namespace ferry::hca
