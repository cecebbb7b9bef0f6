#include "host/standin/stand_in_host.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "gsi/local.h"
#include "gsi/packet.h"
#include "port/address_text.h"
#include "port/slot.h"
#include "port/udp_port.h"
#include "wire/envelope.h"
#include "wire/header.h"
#include "wire/icrc.h"
#include "wire/psn.h"

namespace ferry::host {
namespace {

transport::Time now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

void send_packet(port::Port& port, const port::Endpoint& to, const wire::Header& header,
                 std::span<const std::byte> payload) {
  std::uint16_t identification = 0;
  const auto out =
      port.reserve(to, wire::packet_size(header.opcode, payload.size()), &identification);
  if (out.empty()) return;  // the socket is full: peers ask again
  wire::encode_header(header, payload.size(), out);
  std::copy(payload.begin(), payload.end(), out.begin() + wire::header_size(header.opcode));
  wire::seal(out, port.local(), to, identification);
}

void set_mark(int socket, unsigned mark) {
  if (::setsockopt(socket, SOL_SOCKET, SO_MARK, &mark, sizeof mark) != 0) {
    log::warn("cannot mark a stand-in's socket: {}", error_text(errno));
  }
}

// Whether a socket belongs to the network namespace of this process.
bool is_of_this_namespace(int socket) {
  const UniqueFd own(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  std::uint64_t here = 0, there = 0;
  socklen_t length = sizeof here;
  return ::getsockopt(own.get(), SOL_SOCKET, SO_NETNS_COOKIE, &here, &length) == 0 &&
         ::getsockopt(socket, SOL_SOCKET, SO_NETNS_COOKIE, &there, &length) == 0 && here == there;
}

void sum_up(const transport::StandIn::Counters& counters, transport::StandIn::Counters* sum) {
  sum->packets += counters.packets;
  sum->naks_sent += counters.naks_sent;
  sum->rnr_naks_sent += counters.rnr_naks_sent;
  sum->moved_sent += counters.moved_sent;
  sum->dropped += counters.dropped;
  sum->forwarded += counters.forwarded;
  sum->redirected += counters.redirected;
}

}  // namespace

StandInHost::StandInHost(const port::Loss::Settings& faults)
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      loss_(faults) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, event_.get(), &event) != 0) {
    throw Failure("cannot start the stand-in: " + error_text(errno));
  }
  thread_ = std::thread([this] { loop(); });
}

StandInHost::~StandInHost() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

void StandInHost::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

StandInId StandInHost::add(const rnic::Slot& slot) {
  Entry entry;
  entry.slot = slot.slot;
  int error = 0;
  entry.port = loss_.on(port::UdpPort::adopt(slot.descriptor, &error));
  if (!entry.port) {
    throw Failure(fmt::format("cannot take over the socket {}: {}", to_string(slot.local),
                              error_text(error)));
  }
  port::Port* port = entry.port.get();
  entry.stand_in = std::make_unique<transport::StandIn>(
      [port](const port::Endpoint& to, const wire::Header& header,
             std::span<const std::byte> payload) { send_packet(*port, to, header, payload); });
  if (slot.has_origin()) entry.stand_in->serve_slot(slot.local, slot.origin);
  for (const auto& bytes : slot.entries) {
    if (!entry.stand_in->add(bytes, now())) {
      port->release();
      throw Failure(fmt::format("malformed stand-in entry from {}", to_string(slot.local)));
    }
  }
  set_mark(slot.descriptor, kCriuMark);
  entry.has_qp1 = slot.slot == 0 && is_of_this_namespace(slot.descriptor);
  StandInId id = 0;
  {
    std::lock_guard lock(mutex_);
    id = ++last_id_;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, port->descriptor(), &event) != 0) {
      port->release();
      throw Failure("cannot watch a stand-in's socket: " + error_text(errno));
    }
    serve(id, entries_.emplace(id, std::move(entry)).first->second);
  }
  wake();
  return id;
}

rnic::Slot StandInHost::take_back(StandInId id) {
  std::lock_guard lock(mutex_);
  rnic::Slot slot;
  const auto found = entries_.find(id);
  if (found == entries_.end()) return slot;
  Entry& entry = found->second;
  slot.local = entry.port->local();
  slot.slot = entry.slot;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, entry.port->descriptor(), nullptr);
  slot.descriptor = entry.port->release();
  set_mark(slot.descriptor, 0);
  sum_up(entry.stand_in->counters(), &of_gone_);
  entries_.erase(found);
  return slot;
}

void StandInHost::committed(StandInId id, const port::Endpoint& new_location,
                            std::uint32_t new_slot, std::uint32_t epoch,
                            std::chrono::nanoseconds age) {
  {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    found->second.stand_in->committed(new_location, new_slot, epoch, now() - age);
    found->second.port->flush();
  }
  wake();
}

void StandInHost::peer_knows(StandInId id, std::uint32_t virtual_qpn) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found != entries_.end()) found->second.stand_in->peer_knows(virtual_qpn, now());
}

std::optional<port::Endpoint> StandInHost::standard_peer(StandInId id) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  return found == entries_.end() ? std::nullopt : found->second.stand_in->standard_peer();
}

bool StandInHost::meets_strangers(StandInId id) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  return found != entries_.end() && found->second.stand_in->meets_strangers();
}

bool StandInHost::expired(StandInId id) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  return found == entries_.end() || found->second.stand_in->expired(now());
}

void StandInHost::remove(StandInId id) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.port->descriptor(), nullptr);
  sum_up(found->second.stand_in->counters(), &of_gone_);
  entries_.erase(found);
}

transport::StandIn::Counters StandInHost::counters(StandInId id) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  return found == entries_.end() ? transport::StandIn::Counters{}
                                 : found->second.stand_in->counters();
}

StandInHost::Totals StandInHost::totals() {
  std::lock_guard lock(mutex_);
  Totals totals{entries_.size(), of_gone_};
  for (const auto& [id, entry] : entries_) sum_up(entry.stand_in->counters(), &totals.counters);
  return totals;
}

std::uint64_t StandInHost::injected_losses() {
  std::lock_guard lock(mutex_);
  return loss_.packets();
}

void StandInHost::set_management(Management management) {
  std::lock_guard lock(mutex_);
  management_ = std::move(management);
}

void StandInHost::send_management(StandInId id, const cm::Mad& mad, const port::Address& to) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  port::Port& port = *found->second.port;
  const port::Endpoint qp1{to, port::kRoceUdpPort};
  std::uint16_t identification = 0;
  const auto out = port.reserve(qp1, gsi::kPacketSize, &identification);
  if (out.size() != gsi::kPacketSize) return;
  const auto packet = gsi::make_packet(mad, port.local(), qp1, management_psn_++ & wire::kPsnMask);
  std::copy(packet.begin(), packet.end(), out.begin());
  wire::seal(out, port.local(), qp1, identification);
  port.flush();
}

// Reads everything that waits, and answers. Called with mutex_ held.
void StandInHost::serve(StandInId id, Entry& entry) {
  std::array<port::Received, 64> received;
  const port::Address slot_address = entry.port->local().address;
  while (const std::size_t count = entry.port->receive(received)) {
    for (const auto& packet : std::span(received).first(count)) {
      if (!wire::verify(packet.bytes, packet.from, entry.port->local(), packet.ip_identification)) {
        continue;
      }
      const auto parsed = wire::parse(packet.bytes);
      if (!parsed || wire::pass_on(*entry.port, *parsed, packet.bytes, packet.from)) continue;
      if (const auto mad = gsi::mad_of(*parsed)) {
        if (entry.has_qp1) {
          gsi::take_for_moved(*mad, packet.from.address, slot_address);
        } else if (entry.slot == 0 && management_) {
          management_(id, *mad, packet.from.address, slot_address);
        }
        continue;
      }
      const auto passed = wire::open_envelope(*parsed, packet.from, entry.port->local());
      entry.stand_in->handle_packet(passed ? passed->packet : *parsed,
                                    passed ? passed->from : packet.from, now());
    }
    entry.port->flush();
  }
}

// Milliseconds until the next deadline, rounded up; -1: there is none. Called with mutex_ held.
int StandInHost::next_timeout() {
  transport::Time deadline = transport::kNever;
  for (auto& [id, entry] : entries_) {
    deadline = std::min(deadline, entry.stand_in->next_deadline());
  }
  if (deadline == transport::kNever) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, std::numeric_limits<int>::max()));
}

void StandInHost::loop() {
  std::array<epoll_event, 32> events;
  for (;;) {
    int timeout = -1;
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      timeout = next_timeout();
    }
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), timeout);
    std::lock_guard lock(mutex_);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == 0) {
        std::uint64_t value = 0;
        [[maybe_unused]] const ssize_t size = ::read(event_.get(), &value, sizeof value);
        continue;
      }
      const auto found = entries_.find(events[i].data.u64);
      if (found != entries_.end()) serve(found->first, found->second);
    }
    for (auto& [id, entry] : entries_) {
      if (entry.stand_in->next_deadline() <= now()) {
        entry.stand_in->handle_timeout(now());
        entry.port->flush();
      }
    }
  }
}

}  // namespace ferry::host
