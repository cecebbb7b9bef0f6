#include <errno.h>

#include <algorithm>

#include "rdmacm/service.h"

// Resolves addresses and routes as the kernel's rdma_cm does: an address is resolved as soon as the
// link-layer address of its next hop is known; after the time that the program says it fails.
namespace ferry::rdmacm {
namespace {

constexpr cm::Time kLook = std::chrono::milliseconds(5);
constexpr cm::Time kAsk = std::chrono::seconds(1);  // the kernel's own question may have been lost

}  // namespace

int Service::resolve_address(Id& id, const std::optional<Address>& given_from,
                             const Address& given_to, std::uint32_t timeout_ms) {
  const Address to = with_wildcard(given_to);
  const std::optional<Address> from =
      given_from ? std::optional(with_wildcard(*given_from)) : std::nullopt;
  if (id.state != Id::State::kIdle && id.state != Id::State::kBound) return EINVAL;
  if (to.family == kAfIb || (from && from->family == kAfIb)) return ENODEV;
  if (from && from->family != to.family) return EINVAL;
  if (id.state == Id::State::kIdle && from && (from->port != 0 || !from->is_any())) {
    Address source = *from;
    if (source.port != 0) {
      if (const int error = bind(id, source); error != 0) return error;
    } else {
      const auto device = device_of(source.ip);
      if (!device) return ENODEV;
      id.source = source;
      id.device = *device;
    }
  }
  if (id.source.family == AF_UNSPEC)
    id.source.family = to.family, id.source.ip = any_address(to.family);
  if (id.source.family != to.family) return EINVAL;
  id.destination = to;
  if (to.is_any()) {  // the host itself, by whichever device it has
    for (const auto& [device, addresses] : devices_.list()) {
      for (const port::Address& address : addresses) {
        if (id.destination.is_any() && address.is_ipv4() == (to.family == AF_INET)) {
          id.destination.ip = address;
          id.destination.wildcard = false;
        }
      }
    }
  }
  port::Address source;
  const port::Address wanted = id.source.is_any() ? any_address(id.source.family) : id.source.ip;
  const int error = devices_.route(wanted, id.destination.ip, to.scope, &source);
  if (error != 0) return error;
  const auto device = device_of(source);
  if (!device) {
    post(id, event::kAddressError, -ENODEV);
    return 0;
  }
  id.source.ip = source;
  id.source.wildcard = false;
  id.source.scope = to.scope;
  id.device = *device;
  if (id.source.port == 0) {
    constexpr unsigned kCount = kLastEphemeral - kFirstEphemeral + 1;
    id.source.port = static_cast<std::uint16_t>(kFirstEphemeral + devices_.random() % kCount);
  }
  id.state = Id::State::kResolving;
  id.ask_at = now();
  id.resolve_until = now() + std::chrono::milliseconds(timeout_ms);
  look_for_next_hop(id);
  if (id.state == Id::State::kResolving) {
    resolving_.insert(id.handle);
    look_at_ = std::min(look_at_, now() + kLook);
    kick();
  }
  return 0;
}

void Service::look_for_next_hop(Id& id) {
  const bool ask = now() >= id.ask_at;
  if (ask) id.ask_at = now() + kAsk;
  if (devices_.next_hop_is_known(id.destination.ip, ask)) {
    id.state = Id::State::kAddressResolved;
    post(id, event::kAddressResolved, 0);
  } else if (now() >= id.resolve_until) {
    id.state = Id::State::kBound;
    post(id, event::kAddressError, -ETIMEDOUT);
  }
}

void Service::look_for_next_hops() {
  if (now() < look_at_) return;
  std::erase_if(resolving_, [this](std::uint32_t handle) {
    Id& id = ids_.at(handle);
    look_for_next_hop(id);
    return id.state != Id::State::kResolving;
  });
  look_at_ = resolving_.empty() ? cm::kNever : now() + kLook;
}

int Service::resolve_route(Id& id) {
  if (id.state != Id::State::kAddressResolved) return EINVAL;
  id.state = Id::State::kRouteResolved;
  post(id, event::kRouteResolved, 0);
  return 0;
}

}  // namespace ferry::rdmacm
