#pragma once

#include <memory>

#include "rdmacm/service.h"

// rdma_cm of this process: /dev/infiniband/rdma_cm, emulated. The stock librdmacm opens it, writes
// commands to it and polls it; open() and its like lead to open_rdma_cm(), write(), close() and
// fstat() are interposed in rdma_cm.cc.
namespace ferry::verbs {

// A descriptor, or -1 and errno.
int open_rdma_cm(int flags);

// Null when the program has not opened it.
rdmacm::Service* rdma_cm_if_any();

// Around fork(). In the child the descriptors are the parent's and fail with ENODEV; what the child
// opens works.
void rdma_cm_before_fork();
void rdma_cm_in_parent();
void rdma_cm_in_child();

}  // namespace ferry::verbs
