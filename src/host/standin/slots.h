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
// each of `wanted`, as a moved process will use it. Its address is the wanted one if the netdev has that address, else
// the netdev's first address of the same family; its slot is the wanted one if that slot is free, else the first free
// slot. The descriptors belong to the caller. Throws Failure.
std::vector<rnic::Slot> bind_slots(const std::string& netns, const std::string& netdev,
                                   const std::vector<rnic::Slot>& wanted);

// Like bind_slots(), but takes the wanted addresses and slots only: standard peers know the address and the QPNs.
// Throws Failure.
std::vector<rnic::Slot> bind_same_slots(const std::string& netns, const std::string& netdev,
                                        const std::vector<rnic::Slot>& wanted);

// Opens the sockets of `slots` again that have no descriptor, in the network namespace `netns`, at the same address and
// in the same slot only. A socket that cannot be opened keeps -1. Gives one line about the first such socket; empty:
// there is none.
std::string reopen_slots(const std::string& netns, const std::vector<rnic::Slot*>& slots);

// Inode of the network namespace of a socket; 0: not known.
std::uint64_t network_of_socket(int descriptor);

// Throws Failure unless what process `pid` says of the sockets that it gives away agrees with the
// kernel and ferryd. Each has to be a UDP socket of the process's network namespace, bound to its slot's address and
// port, which no other socket of `seen` has (`seen` gets all of them). The origin of its RNIC has to be the place where
// the socket is; or the origin that `known`, the process's places as ferryd has given them, names for that place, and
// then the RNIC's epoch has to be higher: the RNIC has been stopped since.
void need_own_slots(pid_t pid, const std::vector<ContextSlots>& contexts,
                    const std::vector<Place>& known, std::set<port::Endpoint>* seen);

// The same slots with duplicates of the descriptors, which the caller closes. Nothing: this process
// has no descriptors left.
std::optional<std::vector<ContextSlots>> duplicates_of(const std::vector<ContextSlots>& contexts);

// Closes the descriptors of slots.
void close_slots(std::vector<rnic::Slot>& slots);
void close_slots(std::vector<ContextSlots>& contexts);

}  // namespace ferry::host
