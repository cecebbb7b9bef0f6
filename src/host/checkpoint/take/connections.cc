#include "host/checkpoint/take/connections.h"

#include <fmt/core.h>

#include <set>
#include <utility>

#include "base/failure.h"
#include "device/parcel.h"
#include "host/move/source/group/cut.h"
#include "host/proc/tcp_table.h"
#include "port/address_text.h"

namespace ferry::host {
namespace {

Connection::End end_of(const port::Endpoint& endpoint) {
  if (endpoint == port::Endpoint()) return {};
  return {port::to_string(endpoint.address), endpoint.udp_port};
}

void add_qps(ControlServer& control, const MoveGroup::Program& program,
             std::vector<Connection>* all) {
  for (const auto& context : contexts_of(control, program.processes)) {
    if (const auto device = device::device_behind(context.place); !device.empty()) {
      throw Failure(no_checkpoint(program.unit->name(), device));
    }
    for (const auto& qp : context.qps) {
      all->push_back({program.unit->name(), qp.qpn, end_of(qp.local), end_of(qp.peer)});
    }
  }
}

// A connection over loopback has both ends in the program.
void add_tcp(const MoveGroup::Program& program, std::vector<Connection>* all) {
  std::vector<Connection> loopback;
  for (const auto& socket : tcp_sockets_of_tree(program.unit->root())) {
    if (socket.listens || socket.peer_port == 0) continue;
    auto& where = socket.is_anywhere ? loopback : *all;
    where.push_back({program.unit->name(),
                     0,
                     {socket.address, static_cast<std::uint16_t>(socket.port)},
                     {socket.peer_address, static_cast<std::uint16_t>(socket.peer_port)},
                     socket.is_closed});
  }
  need_closed(loopback);
}

}  // namespace

std::vector<Connection> connections_of(ControlServer& control,
                                       const std::vector<MoveGroup::Program>& programs) {
  std::vector<Connection> all;
  for (const auto& program : programs) {
    add_qps(control, program, &all);
    add_tcp(program, &all);
  }
  return all;
}

void need_closed(const std::vector<Connection>& all) {
  using End = Connection::End;
  std::set<End> qps;
  std::set<std::pair<End, End>> tcp;
  for (const auto& one : all) {
    if (one.qpn != 0)
      qps.insert(one.local);
    else
      tcp.emplace(one.local, one.peer);
  }
  for (const auto& one : all) {
    if (one.qpn != 0) {
      if (one.peer == End() || qps.contains(one.peer)) continue;
      throw Failure(fmt::format(
          "QP 0x{:06x} of '{}' is connected with {}, which is not in the checkpoint; name the "
          "program there as well",
          one.qpn, one.program, one.peer.address));
    }
    // The peer of one that is closed may have ended: then nothing is lost but what would have come to nobody.
    if (one.is_closed || tcp.contains({one.peer, one.local})) continue;
    throw Failure(fmt::format(
        "'{}' has a TCP connection from {}, port {}, to {}, port {}, which is not in the "
        "checkpoint; name the program there as well, or end the connection",
        one.program, one.local.address, one.local.port, one.peer.address, one.peer.port));
  }
}

}  // namespace ferry::host
