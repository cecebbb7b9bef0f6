#pragma once

#include <memory>

#include "rdmacm/service.h"

// rdma_cm of this process: /dev/infiniband/rdma_cm, emulated, or the kernel's (relayed_cm.h). The stock librdmacm opens
// that file, writes commands to it and polls it; open() and its like lead to open_rdma_cm() or open_kernels_rdma_cm(),
// and rdma_cm.cc interposes write(), close() and fstat().
namespace ferry::verbs {

// A descriptor, or -1 and errno.
int open_rdma_cm(int flags);

// The same for a program that has devices of the kernel alone.
int open_kernels_rdma_cm(int flags);

// Null when the program has not opened rdma_cm.
rdmacm::Service* rdma_cm_if_any();

// Around fork(). In the child the descriptors are the parent's and fail with ENODEV; what the child
// opens works.
void rdma_cm_before_fork();
void rdma_cm_in_parent();
void rdma_cm_in_child();

}  // namespace ferry::verbs
