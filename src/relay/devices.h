#pragma once

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

#include <cstdint>
#include <map>
#include <utility>

#include "device/movable.h"

namespace ferry::relay {

// The two ends of a connection, as both programs know them.
struct Ends {
  device::Letter::End own, peer;
};

// The connected QPs of the program, by the GUID of the device and the QPN.
using Connections = std::multimap<std::pair<__be64, std::uint32_t>, Ends>;

// What the relay asks of the program's contexts. GUIDs and indexes are those of the ABI; `guid` is one that the program
// knows.
class Devices {
 public:
  virtual ~Devices() = default;
  // Replaces the GUID and the index of a device of this host by those that the program knows.
  virtual void rename_device(__be64* guid, std::uint32_t* index) = 0;
  // Replaces a path's index of a GID of this host by the one that the program can use.
  virtual void rename_path(__be64 guid, ib_uverbs_ah_attr* path) = 0;
  virtual Connections connections() = 0;
  // Has the peer told (device::MovableContext::tell_peer()).
  virtual void tell_peer(__be64 guid, const Ends& ends, device::CmNews news) = 0;
};

}  // namespace ferry::relay
