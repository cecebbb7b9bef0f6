#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "relay/abi.h"
#include "relay/devices.h"
#include "relay/kernel.h"

namespace ferry::relay {

// Has the kernel carry out a query (QUERY_ROUTE, QUERY, INIT_QP_ATTR) for its ID `kernels`, and gives the answer with
// the GUID, index and paths that the program knows. `device`: the program's GUID of the ID's device, 0 if not known. 0
// or an errno value.
int ask_kernel(KernelFile& file, Devices& devices, Command query, std::uint32_t kernels,
               __be64 device, std::vector<std::byte>* answer);

// The program's GUID of the device of the kernel's ID; 0: it has none.
__be64 device_of(KernelFile& file, Devices& devices, std::uint32_t kernels);

// The QPN that the peer of the kernel's ID has named; 0: it has named none.
std::uint32_t peer_of(KernelFile& file, Devices& devices, std::uint32_t kernels, __be64 device);

// What the kernel would answer about an ID that it does not know any more.
class Answers {
 public:
  // Asks the kernel, which still knows the ID.
  Answers(KernelFile& file, Devices& devices, std::uint32_t kernels, __be64 device);
  // 0, or EINVAL: the kernel had no answer.
  int find(const Command& query, std::vector<std::byte>* answer) const;

 private:
  // By the number of the command, and its option or the state of the QP.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::byte>> answers_;
};

}  // namespace ferry::relay
