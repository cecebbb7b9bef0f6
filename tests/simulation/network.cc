#include "network.h"

#include <cstdio>

#include "wire/migration.h"

namespace ferry::simulation {
namespace {

constexpr std::size_t kSocketBuffer = 64;  // packets

}  // namespace

void Network::read(const port::Endpoint& at, Reader reader) {
  Socket& socket = sockets_.at(at);
  socket.reader = std::move(reader);
  const auto waiting = std::move(socket.waiting);
  socket.waiting.clear();
  for (const Datagram& datagram : waiting) arrive(datagram);
}

void Network::stop_reading(const port::Endpoint& at) {
  if (const auto socket = sockets_.find(at); socket != sockets_.end()) {
    socket->second.reader = nullptr;
  }
}

void Network::send(Datagram datagram) {
  ++packets_;
  const unsigned copies = events_.chance(loss) ? 0 : events_.chance(duplication) ? 2 : 1;
  if (trace_) print(datagram, copies);
  for (unsigned i = 0; i < copies; ++i) {
    Time time = delay;
    if (events_.chance(reordering)) time += events_.between(Time(0), delay * 6);
    if (i + 1 == copies) {
      events_.in(time, [this, packet = std::move(datagram)] { arrive(packet); });
    } else {
      events_.in(time, [this, packet = datagram] { arrive(packet); });
    }
  }
}

void Network::arrive(const Datagram& datagram) {
  const auto at = sockets_.find(datagram.to);
  if (at == sockets_.end()) return;
  if (!at->second.reader) {
    if (at->second.waiting.size() < kSocketBuffer) at->second.waiting.push_back(datagram);
    return;
  }
  const Reader reader = at->second.reader;  // it may close the socket
  reader(datagram);
}

void Network::print(const Datagram& datagram, unsigned copies) const {
  const auto packet = wire::parse(datagram.bytes);
  if (!packet) return;
  const wire::Header& h = packet->header;
  const auto message = wire::parse_migration(packet->payload);
  std::printf("%12.3f ms  %u:%u > %u:%u  opcode %02x psn %06x qpn %06x",
              static_cast<double>(events_.now().count()) / 1e6,
              unsigned(datagram.from.address.bytes[15]), datagram.from.udp_port,
              unsigned(datagram.to.address.bytes[15]), datagram.to.udp_port, unsigned(h.opcode),
              h.psn, h.dest_qpn);
  if (message) std::printf(" message %d epoch %u", int(message->type), message->epoch);
  std::printf("%s%s\n", is_bound(datagram.to) ? "" : "  (nobody)",
              copies == 0   ? "  LOST"
              : copies == 2 ? "  x2"
                            : "");
}

}  // namespace ferry::simulation
