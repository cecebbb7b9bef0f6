#pragma once

#include <infiniband/verbs.h>

#include <string_view>

// What Linux's rdma_rxe does differently from other devices of the kernel.
namespace ferry::hca {

// Whether the device is rdma_rxe of Linux 6.0 or later. When a packet is lost, rdma_rxe carries out the
// requests behind it once more. It refuses a bind then if the window has another key by now; binds that
// leave the window its key it takes again. rdma_rxe of older Linux takes no binds that leave the key.
bool begins_anew(ibv_context& context);

// Whether rdma_rxe of a Linux release takes binds that leave a window its key. `release`: as uname(2)
// gives it. False also when the text is not understood.
bool takes_same_key(std::string_view release);

}  // namespace ferry::hca
