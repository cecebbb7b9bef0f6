#pragma once

#include <infiniband/verbs.h>

#include <string_view>

// What Linux's rdma_rxe does otherwise than other devices of the kernel.
namespace ferry::hca {

// Whether the device carries requests out anew that are behind one whose packet was lost: binds of windows
// as well, which it refuses when the window has another key by then. It takes binds that leave the key
// as it is. That is rdma_rxe of Linux 6.0 and later; before, it refuses those.
bool begins_anew(ibv_context& context);

// `release`: as of uname(2). False when it is not understood.
bool takes_same_key(std::string_view release);

}  // namespace ferry::hca
