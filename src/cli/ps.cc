#include "cli/ps.h"

#include <fmt/core.h>

#include <cstdint>
#include <utility>

#include "cli/text/size.h"
#include "cli/text/table.h"

namespace ferry::cli {
namespace {

namespace v1 = ferry::v1;

std::string state_of(const v1::Program& program) {
  std::string state = program.state();
  if (program.move_id() != 0) state += fmt::format(" move {:016x}", program.move_id());
  if (program.group() != 0) state += fmt::format(" of group {:016x}", program.group());
  return state;
}

// The number that the program knows, and behind ">" the one that is on the wire where that differs.
std::string number_of(std::uint32_t qpn, std::uint32_t wire) {
  return qpn == wire ? fmt::format("{:#08x}", qpn) : fmt::format("{:#08x}>{:#08x}", qpn, wire);
}

std::string state_of(const v1::QueuePair& qp) {
  std::string state = qp.state();
  if (!qp.migration().empty()) state += "/" + qp.migration();
  if (qp.resume_pending()) state += "/resuming";
  return state;
}

}  // namespace

std::string programs_text(const v1::PsReply& reply, bool jobs) {
  std::vector<std::string> heads{"PROGRAM", "PID",  "CONTAINER", "DEVICE", "ON",
                                 "QPS",     "SENT", "RECEIVED",  "STATE"};
  if (jobs) heads.insert(heads.begin(), "JOB");
  Table table(heads);
  const auto add = [&](const v1::Program& program, std::vector<std::string> cells) {
    if (jobs) cells.insert(cells.begin(), program.job());
    table.add(std::move(cells));
  };
  for (const auto& program : reply.programs()) {
    const std::string pid = std::to_string(program.pid());
    if (program.devices().empty()) {
      add(program,
          {program.name(), pid, program.container(), "", "", "", "", "", state_of(program)});
    }
    for (const auto& device : program.devices()) {
      std::uint64_t sent = 0, received = 0;
      for (const auto& qp : device.qps()) {
        sent += qp.sent_bytes();
        received += qp.received_bytes();
      }
      add(program, {program.name(), pid, program.container(), device.name(), device.netdev(),
                    std::to_string(device.qps_size()), size_text(sent), size_text(received),
                    state_of(program)});
    }
  }
  return table.text();
}

std::string queue_pairs_text(const v1::PsReply& reply) {
  Table table({"PROGRAM",  "PID",      "DEVICE",  "TYPE",     "STATE",  "QPN",     "LOCAL",
               "PEER-QPN", "PEER",     "PEER-IS", "EPOCH",    "SQ-PSN", "UNACKED", "RQ-PSN",
               "SENT",     "RECEIVED", "RETRANS", "TIMEOUTS", "RNR",    "DROPPED", "PAUSE-MS"});
  for (const auto& program : reply.programs()) {
    for (const auto& device : program.devices()) {
      for (const auto& qp : device.qps()) {
        table.add({program.name(),
                   std::to_string(program.pid()),
                   device.name(),
                   qp.type(),
                   state_of(qp),
                   number_of(qp.qpn(), qp.wire_qpn()),
                   qp.local(),
                   number_of(qp.peer_qpn(), qp.peer_wire_qpn()),
                   qp.peer(),
                   qp.peer_class(),
                   std::to_string(qp.epoch()),
                   std::to_string(qp.next_psn()),
                   std::to_string((qp.next_psn() - qp.first_unacked_psn()) & 0xFFFFFF),
                   std::to_string(qp.expected_psn()),
                   std::to_string(qp.sent_packets()),
                   std::to_string(qp.received_packets()),
                   std::to_string(qp.retransmitted_packets()),
                   std::to_string(qp.timeouts()),
                   std::to_string(qp.rnr_naks()),
                   std::to_string(qp.dropped()),
                   fmt::format("{:.1f}", static_cast<double>(qp.last_pause_ns()) / 1e6)});
      }
    }
  }
  return table.text();
}

void keep_job(const std::string& job, v1::PsReply* reply) {
  v1::PsReply kept = *reply;
  kept.clear_programs();
  for (const auto& program : reply->programs()) {
    if (program.job() == job) *kept.add_programs() = program;
  }
  *reply = std::move(kept);
}

}  // namespace ferry::cli
