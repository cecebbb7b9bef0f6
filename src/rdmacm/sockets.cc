#include "rdmacm/sockets.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "cm/destination.h"
#include "gsi/local.h"
#include "gsi/packet.h"
#include "port/udp_port.h"
#include "wire/envelope.h"
#include "wire/icrc.h"

namespace ferry::rdmacm {
namespace {

constexpr unsigned kMaxBatch = 64;  // datagrams of one socket in a turn

bool same_family(const port::Address& a, const port::Address& b) {
  return a.is_ipv4() == b.is_ipv4();
}

}  // namespace

Sockets::Sockets(Devices& devices)
    : devices_(devices),
      holder_([](const port::Address& address,
                 int* error) { return port::UdpPort::bind(address, 0, error); },
              true) {}

std::uint16_t Sockets::take_tag() {
  for (unsigned tries = 0; tag_ == 0 && tries < 1000; ++tries) {
    const auto tag = static_cast<std::uint16_t>(devices_.random());
    if (tag == 0) continue;
    int error = 0;
    process_receiver_ = gsi::open_receiver(gsi::process_name(tag), &error);
    if (process_receiver_ >= 0) tag_ = tag;
    if (error != 0 && error != EADDRINUSE) break;
  }
  return tag_;
}

void Sockets::find_addresses() {
  devices_here_ = devices_.list();
}

port::Address Sockets::current(const port::Address& address, const std::string& netdev) {
  if (devices_here_.empty()) find_addresses();
  const port::Address* of_netdev = nullptr;
  for (const auto& [device, addresses] : devices_here_) {
    for (const port::Address& here : addresses) {
      if (here == address) return address;
      if (of_netdev == nullptr && device.netdev == netdev && same_family(here, address)) {
        of_netdev = &here;
      }
    }
  }
  return of_netdev != nullptr ? *of_netdev : address;
}

// Two names can stand for one service at one address: that of the address and that of any address.
// `check_others`: fails with EADDRINUSE when somebody has the other one.
int Sockets::open(Receiver& receiver, bool check_others) {
  const Binding& b = receiver.binding;
  std::string name;
  if (b.any) {
    name = gsi::listener_name_any(b.service);
    for (const auto& [device, addresses] : devices_here_) {
      for (const port::Address& address : addresses) {
        if (check_others && gsi::exists(gsi::listener_name(address, b.service))) return EADDRINUSE;
      }
    }
  } else {
    name = gsi::listener_name(current(b.address, b.netdev), b.service);
    if (check_others && gsi::exists(gsi::listener_name_any(b.service))) return EADDRINUSE;
  }
  int error = 0;
  receiver.descriptor = gsi::open_receiver(name, &error);
  return receiver.descriptor >= 0 ? 0 : error;
}

int Sockets::bind(std::uint32_t owner, const Binding& binding) {
  find_addresses();
  Receiver receiver{binding, -1};
  if (const int error = open(receiver, true); error != 0) return error;
  receivers_[owner] = receiver;
  return 0;
}

bool Sockets::unbind(std::uint32_t owner) {
  const auto found = receivers_.find(owner);
  if (found == receivers_.end()) return false;
  if (found->second.descriptor >= 0) ::close(found->second.descriptor);
  receivers_.erase(found);
  return true;
}

bool Sockets::refresh(bool wanted) {
  find_addresses();
  bool missing = false;
  int error = 0;
  if (tag_ != 0 && process_receiver_ < 0) {
    process_receiver_ = gsi::open_receiver(gsi::process_name(tag_), &error);
    missing |= process_receiver_ < 0;
  }
  for (auto& [owner, receiver] : receivers_) {
    if (receiver.descriptor < 0) missing |= open(receiver, false) != 0;
  }
  std::vector<port::Address> held;
  for (const auto& [device, addresses] : devices_here_) {
    if (wanted) held.insert(held.end(), addresses.begin(), addresses.end());
  }
  return !holder_.hold(held) || missing;
}

void Sockets::send(const cm::Datagram& d) {
  auto found = wires_.find(d.from);
  if (found == wires_.end()) {
    int error = 0;
    auto wire = gsi::WireSocket::open(d.from, &error);
    if (!wire) return;  // lost
    found = wires_.emplace(d.from, std::move(*wire)).first;
  }
  found->second.send(d.mad, d.to);
}

void Sockets::add_to(std::vector<pollfd>* out) const {
  if (process_receiver_ >= 0) out->push_back({process_receiver_, POLLIN, 0});
  for (const auto& [owner, receiver] : receivers_) {
    if (receiver.descriptor >= 0) out->push_back({receiver.descriptor, POLLIN, 0});
  }
  for (const auto& [address, port] : holder_.ports()) {
    out->push_back({port->descriptor(), POLLIN, 0});
  }
  if (holder_.watch_descriptor() >= 0) out->push_back({holder_.watch_descriptor(), POLLIN, 0});
  for (const auto& [address, wire] : wires_) out->push_back({wire.descriptor(), 0, 0});
}

bool Sockets::is_for_us(const cm::Mad& mad, const port::Address& to) {
  const auto whom = cm::destination_of(mad);
  if (!whom) return false;
  if (whom->process) return tag_ != 0 && cm::tag_of(*whom->process) == tag_;
  return std::any_of(receivers_.begin(), receivers_.end(), [&](const auto& entry) {
    const Binding& b = entry.second.binding;
    return b.service == whom->service && (b.any || current(b.address, b.netdev) == to);
  });
}

void Sockets::receive(std::vector<cm::Datagram>* out,
                      std::vector<gsi::WireSocket::Failure>* failures) {
  const auto drain = [out](int descriptor) {
    for (unsigned i = 0; descriptor >= 0 && i < kMaxBatch; ++i) {
      const auto datagram = gsi::receive(descriptor);
      if (!datagram) return;
      out->push_back(*datagram);
    }
  };
  for (auto& [address, port] : holder_.ports()) {
    std::array<port::Received, kMaxBatch> batch;
    const std::size_t count = port->receive(batch);
    for (std::size_t i = 0; i < count; ++i) {
      const port::Received& r = batch[i];
      if (!wire::verify(r.bytes, r.from, port->local(), r.ip_identification)) continue;
      const auto packet = wire::parse(r.bytes);
      if (!packet || wire::pass_on(*port, *packet, r.bytes, r.from)) continue;
      const auto mad = gsi::mad_of(*packet);
      if (!mad) continue;
      if (is_for_us(*mad, address)) {
        out->push_back({0, r.from.address, address, *mad});
      } else {
        gsi::take(*mad, r.from.address, address);
      }
    }
    port->flush();
  }
  drain(process_receiver_);
  for (const auto& [owner, receiver] : receivers_) drain(receiver.descriptor);
  for (auto& [address, wire] : wires_) {
    while (const auto failure = wire.next_failure()) failures->push_back(*failure);
  }
}

void Sockets::close() {
  if (process_receiver_ >= 0) ::close(process_receiver_);
  process_receiver_ = -1;
  for (auto& [owner, receiver] : receivers_) {
    if (receiver.descriptor >= 0) ::close(receiver.descriptor);
    receiver.descriptor = -1;
  }
  wires_.clear();
  holder_.let_go();
  devices_here_.clear();
}

}  // namespace ferry::rdmacm
