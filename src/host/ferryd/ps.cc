#include "host/ferryd/ps.h"

#include <infiniband/verbs.h>

#include <string>

#include "base/failure.h"
#include "base/net.h"
#include "ferry.pb.h"
#include "port/address_text.h"

namespace ferry::host {
namespace {

template <std::size_t size>
std::string name_of(const char* const (&names)[size], std::size_t value) {
  return value < size ? names[value] : std::to_string(value);
}

// As `rdma resource show qp` prints them.
std::string type_name(std::uint8_t type) {
  switch (type) {
    case IBV_QPT_RC: return "RC";
    case IBV_QPT_UC: return "UC";
    case IBV_QPT_UD: return "UD";
    case IBV_QPT_XRC_SEND: return "XRC_INI";
    case IBV_QPT_XRC_RECV: return "XRC_TGT";
    default: return std::to_string(type);
  }
}

std::string state_name(std::uint8_t state) {
  static const char* const kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return name_of(kNames, state);
}

void to_message(const device::QpStatus& status, v1::QueuePair* qp) {
  static const char* const kMigration[] = {"", "Stopped", "Paused"};
  static const char* const kClass[] = {"unknown", "ferry", "unmodified"};
  qp->set_qpn(status.qpn);
  qp->set_wire_qpn(status.wire_qpn);
  qp->set_peer_qpn(status.peer_qpn);
  qp->set_peer_wire_qpn(status.peer_wire_qpn);
  qp->set_type(type_name(status.type));
  qp->set_state(state_name(status.state));
  qp->set_migration(name_of(kMigration, status.migration));
  qp->set_peer_class(name_of(kClass, status.peer_class));
  qp->set_local(to_string(status.local));
  qp->set_peer(to_string(status.peer));
  qp->set_epoch(status.epoch);
  qp->set_next_psn(status.next_psn);
  qp->set_first_unacked_psn(status.first_unacked_psn);
  qp->set_expected_psn(status.expected_psn);
  qp->set_resume_pending(status.resume_pending != 0);
  qp->set_sent_packets(status.sent_packets);
  qp->set_received_packets(status.received_packets);
  qp->set_sent_bytes(status.sent_bytes);
  qp->set_received_bytes(status.received_bytes);
  qp->set_retransmitted_packets(status.retransmitted_packets);
  qp->set_timeouts(status.timeouts);
  qp->set_rnr_naks(status.rnr_naks);
  qp->set_dropped(status.dropped);
  qp->set_last_pause_ns(status.last_pause_ns);
}

}  // namespace

void to_message(const agent::StatusReply& status, v1::Program* program) {
  for (const auto& context : status.contexts) {
    auto* device = program->add_devices();
    device->set_name(printable(context.device));
    device->set_netdev(printable(context.netdev));
    for (const auto& qp : context.qps) to_message(qp, device->add_qps());
    for (const auto& counter : context.counters) {
      auto* added = device->add_counters();
      added->set_name(printable(counter.name));
      added->set_value(counter.value);
    }
  }
}

}  // namespace ferry::host
