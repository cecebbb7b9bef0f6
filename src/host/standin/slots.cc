#include "host/standin/slots.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "base/failure.h"
#include "base/net.h"
#include "base/unique_fd.h"
#include "host/proc/process_tree.h"
#include "port/address_text.h"
#include "port/slot.h"
#include "port/udp_port.h"

namespace ferry::host {
namespace {

// The addresses of a netdev in this thread's network namespace, link-local ones last.
std::vector<port::Address> addresses_of(const std::string& netdev) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw Failure("cannot list addresses: " + error_text(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<port::Address> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (netdev != entry->ifa_name || entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family == AF_INET || family == AF_INET6)
      addresses.push_back(port::to_address(entry->ifa_addr));
  }
  std::stable_partition(addresses.begin(), addresses.end(), [](const port::Address& address) {
    return address.bytes[0] != std::byte{0xfe} ||
           (address.bytes[1] & std::byte{0xc0}) != std::byte{0x80};
  });
  return addresses;
}

port::Address choose_address(const std::vector<port::Address>& addresses,
                             const port::Address& wanted, const std::string& netdev) {
  if (std::count(addresses.begin(), addresses.end(), wanted) > 0) return wanted;
  for (const auto& address : addresses) {
    if (address.is_ipv4() == wanted.is_ipv4()) return address;
  }
  throw Failure(fmt::format("there is no {} address on {} for {}",
                            wanted.is_ipv4() ? "IPv4" : "IPv6", netdev, to_string(wanted)));
}

enum class Want { kSameOrOther, kSame };

std::unique_ptr<port::UdpPort> bind_slot(const std::vector<port::Address>& addresses,
                                         const std::string& netdev, const rnic::Slot& slot,
                                         Want want) {
  int error = 0;
  if (want == Want::kSame) {
    auto port = port::UdpPort::bind(slot.local.address, slot.slot, &error);
    if (port) return port;
    throw Failure(fmt::format("the QPNs at {} (slot {}) cannot move along: {}",
                              to_string(slot.local.address), slot.slot, error_text(error)));
  }
  const auto address = choose_address(addresses, slot.local.address, netdev);
  auto port = port::UdpPort::bind(address, slot.slot, &error);
  if (!port && error == EADDRINUSE) port = port::bind_first_free_slot(address, &error);
  if (port) return port;
  throw Failure(fmt::format("cannot bind a RoCE port on {} of {}: {}", to_string(address), netdev,
                            error_text(error)));
}

std::vector<rnic::Slot> bind_here(const std::string& netdev, const std::vector<rnic::Slot>& wanted,
                                  Want want) {
  const auto addresses = addresses_of(netdev);
  std::vector<rnic::Slot> bound;
  for (const auto& slot : wanted) {
    try {
      const auto port = bind_slot(addresses, netdev, slot, want);
      rnic::Slot result;
      result.local = port->local();
      result.slot = port->slot();
      result.origin = slot.origin;
      result.epoch = slot.epoch;
      result.descriptor = port->release();
      bound.push_back(std::move(result));
    } catch (const Failure&) {
      close_slots(bound);
      throw;
    }
  }
  return bound;
}

// Calls `call` in the network namespace `netns` (a path; empty: ferryd's own), in a thread of its own, because setns()
// changes the thread that calls it.
void in_namespace(const std::string& netns, const std::function<void()>& call) {
  std::exception_ptr failure;
  std::thread([&] {
    try {
      if (!netns.empty()) {
        const UniqueFd ns(::open(netns.c_str(), O_RDONLY | O_CLOEXEC));
        if (!ns || ::setns(ns.get(), CLONE_NEWNET) != 0) {
          throw Failure(
              fmt::format("cannot enter network namespace {}: {}", netns, error_text(errno)));
        }
      }
      call();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

bool is_udp(int descriptor) {
  int protocol = 0;
  socklen_t length = sizeof protocol;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 &&
         protocol == IPPROTO_UDP;
}

port::Endpoint bound_to(int udp) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  auto* const address = reinterpret_cast<sockaddr*>(&name);
  if (::getsockname(udp, address, &length) != 0) return {};
  return {port::to_address(address), local_port(udp)};
}

// Gives what is wrong with the socket of a slot (need_own_slots()); empty: nothing.
std::string doubt_of(const rnic::Slot& slot, std::uint64_t network,
                     const std::vector<Place>& known) {
  if (!is_udp(slot.descriptor)) return "it is no UDP socket";
  if (bound_to(slot.descriptor) != slot.local ||
      port::slot_of_udp_port(slot.local.udp_port) != slot.slot) {
    return "it is bound elsewhere";
  }
  if (network == 0 || network_of_socket(slot.descriptor) != network) {
    return "it is of another network namespace than the process";
  }
  if (!slot.has_origin() || slot.origin == slot.local) return {};
  const auto place = std::find_if(known.begin(), known.end(), [&](const Place& candidate) {
    return candidate.location == slot.local && candidate.origin == slot.origin;
  });
  if (place == known.end()) {
    return fmt::format("its RNIC was not opened at {}", to_string(slot.origin));
  }
  if (slot.epoch <= place->epoch) return "it was given away before";
  return {};
}

std::vector<rnic::Slot> bind_in(const std::string& netns, const std::string& netdev,
                                const std::vector<rnic::Slot>& wanted, Want want) {
  std::vector<rnic::Slot> bound;
  in_namespace(netns, [&] { bound = bind_here(netdev, wanted, want); });
  return bound;
}

}  // namespace

std::vector<rnic::Slot> bind_slots(const std::string& netns, const std::string& netdev,
                                   const std::vector<rnic::Slot>& wanted) {
  return bind_in(netns, netdev, wanted, Want::kSameOrOther);
}

std::vector<rnic::Slot> bind_same_slots(const std::string& netns, const std::string& netdev,
                                        const std::vector<rnic::Slot>& wanted) {
  return bind_in(netns, netdev, wanted, Want::kSame);
}

std::string reopen_slots(const std::string& netns, const std::vector<rnic::Slot*>& slots) {
  std::string problem;
  const auto reopen = [&] {
    for (rnic::Slot* slot : slots) {
      if (slot->descriptor >= 0) continue;
      int error = 0;
      if (const auto port = port::UdpPort::bind(slot->local.address, slot->slot, &error)) {
        slot->descriptor = port->release();
      } else if (problem.empty()) {
        problem =
            fmt::format("cannot open {} again: {}", to_string(slot->local), error_text(error));
      }
    }
  };
  try {
    in_namespace(netns, reopen);
  } catch (const Failure& failure) {
    problem = failure.what();
  }
  return problem;
}

std::uint64_t network_of_socket(int descriptor) {
  const UniqueFd network(::ioctl(descriptor, SIOCGSKNS));
  struct stat status {};
  return network && ::fstat(network.get(), &status) == 0 ? status.st_ino : 0;
}

void need_own_slots(pid_t pid, const std::vector<ContextSlots>& contexts,
                    const std::vector<Place>& known, std::set<port::Endpoint>* seen) {
  const std::uint64_t network = namespace_inode(pid, "net");
  for (const auto& context : contexts) {
    for (const auto& slot : context.slots) {
      std::string doubt = doubt_of(slot, network, known);
      if (doubt.empty() && !seen->insert(slot.local).second) doubt = "it comes twice";
      if (doubt.empty()) continue;
      throw Failure(fmt::format("process {} gives away a socket of {} that is not its own: {}", pid,
                                to_string(slot.local), doubt));
    }
  }
}

std::optional<std::vector<ContextSlots>> duplicates_of(const std::vector<ContextSlots>& contexts) {
  auto duplicates = contexts;
  bool are_all = true;
  for (auto& context : duplicates) {
    for (auto& slot : context.slots) {
      slot.descriptor = ::fcntl(slot.descriptor, F_DUPFD_CLOEXEC, 0);
      are_all = are_all && slot.descriptor >= 0;
    }
  }
  if (are_all) return duplicates;
  close_slots(duplicates);
  return std::nullopt;
}

void close_slots(std::vector<rnic::Slot>& slots) {
  for (auto& slot : slots) {
    if (slot.descriptor >= 0) ::close(slot.descriptor);
    slot.descriptor = -1;
  }
}

void close_slots(std::vector<ContextSlots>& contexts) {
  for (auto& context : contexts) close_slots(context.slots);
}

}  // namespace ferry::host
