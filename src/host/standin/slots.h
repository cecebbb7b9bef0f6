#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "host/directory/directory.h"
#include "host/journal/process_slots.h"
#include "rnic/slot.h"

// Sockets in other network namespaces.
namespace ferry::host {

// Binds, in the network namespace `netns` (a path; empty: ferryd's own), a socket on `netdev` for
// each of `wanted`, as a moved process will use it. Its address is the same where that exists
// there, else the netdev's first of the same family; its slot is the same where that is free, else
// the first that is. The descriptors belong to the caller. Throws Failure.
std::vector<rnic::Slot> bind_slots(const std::string& netns, const std::string& netdev,
                                   const std::vector<rnic::Slot>& wanted);

// The same, but takes the same addresses and slots only: standard peers know the address and the
// QPNs. Throws Failure.
std::vector<rnic::Slot> bind_same_slots(const std::string& netns, const std::string& netdev,
                                        const std::vector<rnic::Slot>& wanted);

// Opens those sockets of `slots` again that have no descriptor, in that network namespace, at the
// same address and in the same slot only. A socket that cannot be opened keeps -1. Gives one line
// about the first of those; empty: there are none.
std::string reopen_slots(const std::string& netns, const std::vector<rnic::Slot*>& slots);

// Inode of the network namespace of a socket; 0: not known.
std::uint64_t network_of_socket(int descriptor);

// Throws Failure unless what process `pid` says of the sockets that it gives away agrees with the
// kernel and ferryd: each is a UDP socket of the process's network namespace, bound to its slot's
// address and port, and to no other slot's in `seen`, which gets all of them. The name of its RNIC
// is that of the place where it is; or it is the name that `known`, the process's places as ferryd
// has given them, has there, and the RNIC has been stopped since.
void need_own_slots(pid_t pid, const std::vector<ContextSlots>& contexts,
                    const std::vector<Place>& known, std::set<port::Endpoint>* seen);

// The same slots with duplicates of the descriptors, which the caller closes. Nothing: this process
// has no descriptors left.
std::optional<std::vector<ContextSlots>> duplicates_of(const std::vector<ContextSlots>& contexts);

// Closes the descriptors of slots.
void close_slots(std::vector<rnic::Slot>& slots);

}  // namespace ferry::host
