#pragma once

#include <string>
#include <vector>

#include "device/device.h"

// Sockets in other network namespaces.
namespace ferry::migrate {

// Binds, in the network namespace `netns` (a path; empty: our own), a socket on `netdev` for each
// of `wanted`, as a moved process will use it: on the same address where it exists there, else on
// the netdev's first of the same family; in the same slot where it is free, else the first that is.
// The descriptors are the caller's. Throws Failure.
std::vector<device::Slot> bind_slots(const std::string& netns, const std::string& netdev,
                                     const std::vector<device::Slot>& wanted);

// The same, but nothing else will do: standard peers know the address and the QPNs. Throws Failure.
std::vector<device::Slot> bind_same_slots(const std::string& netns, const std::string& netdev,
                                          const std::vector<device::Slot>& wanted);

// Opens the socket of each of `slots` that has no descriptor again: in that network namespace, at
// that address, in that slot, nowhere else. What could not be keeps -1. One line about the first of
// those, empty when there is none.
std::string reopen_slots(const std::string& netns, const std::vector<device::Slot*>& slots);

// Closes their descriptors.
void close_slots(std::vector<device::Slot>& slots);

// While it lives, packets to Ferry's UDP ports pass CRIU's network lock in the network namespace of
// `pid`. For runtimes that let CRIU lock the network; on failure only logs (the peers then wait in
// silence).
class LockException {
 public:
  explicit LockException(pid_t pid);
  ~LockException();
  LockException(const LockException&) = delete;
  LockException& operator=(const LockException&) = delete;

 private:
  int netns_ = -1;
};

}  // namespace ferry::migrate
