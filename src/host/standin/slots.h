#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "agent/protocol.h"
#include "host/directory/directory.h"
#include "rnic/slot.h"

// Sockets in other network namespaces.
namespace ferry::host {

// Binds, in the network namespace `netns` (a path; empty: our own), a socket on `netdev` for each
// of `wanted`, as a moved process will use it: on the same address where it exists there, else on
// the netdev's first of the same family; in the same slot where it is free, else the first that is.
// The descriptors are the caller's. Throws Failure.
std::vector<rnic::Slot> bind_slots(const std::string& netns, const std::string& netdev,
                                   const std::vector<rnic::Slot>& wanted);

// The same, but nothing else will do: standard peers know the address and the QPNs. Throws Failure.
std::vector<rnic::Slot> bind_same_slots(const std::string& netns, const std::string& netdev,
                                        const std::vector<rnic::Slot>& wanted);

// Opens the socket of each of `slots` that has no descriptor again: in that network namespace, at
// that address, in that slot, nowhere else. What could not be keeps -1. One line about the first of
// those, empty when there is none.
std::string reopen_slots(const std::string& netns, const std::vector<rnic::Slot*>& slots);

// Inode of the network namespace of a socket; 0: not known.
std::uint64_t network_of_socket(int descriptor);

// Throws Failure unless what process `pid` says of the sockets that it gives away is what the kernel
// and ferryd know: each is a UDP socket of the process's network namespace, bound to its slot's
// address and port and to no other slot's in `seen`, which gets all of them. Its RNIC has the name
// of that place, or the one that `known` has for it there, the process's places as ferryd has given
// them, and has been stopped since.
void need_own_slots(pid_t pid, const std::vector<agent::ContextSlots>& contexts,
                    const std::vector<Place>& known, std::set<port::Endpoint>* seen);

// The same with descriptors of their own, which the caller closes.
std::vector<agent::ContextSlots> duplicates_of(const std::vector<agent::ContextSlots>& contexts);

// Closes their descriptors.
void close_slots(std::vector<rnic::Slot>& slots);

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

}  // namespace ferry::host
