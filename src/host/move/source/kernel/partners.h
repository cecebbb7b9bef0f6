#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "host/attestation/attestor.h"
#include "host/control/control_server.h"
#include "host/journal/journal.h"
#include "host/letters/carrier.h"
#include "host/letters/qp_names.h"
#include "host/letters/suspension.h"

namespace ferry::host {

// What a move has to know and do for a program's contexts over devices of the kernel, whose peers
// are told by letters (docs/any_rnic.md).
class Partners {
 public:
  Partners(Carrier& carrier, Attestor& attestor, ControlServer& control, QpNames& names)
      : carrier_(carrier), attestor_(attestor), control_(control), names_(names) {}

  // Looks at a program's contexts. Throws Failure, one line: what of them cannot move, which peer nobody knows, or
  // which program has a libferry.so that this ferryd does not trust.
  // `address_moves`: the program's addresses come along.
  void look(const std::string& program, pid_t root, const std::vector<FerryProcess>& processes,
            bool address_moves);

  // As of the look:
  // The devices, and what is needed of each (virtual/messages/needs.h).
  const std::map<std::string, std::string>& devices() const { return devices_; }
  // What the program has of rdma_cm of the kernel that must be bound again. std::nullopt: it does not use that.
  const std::optional<std::vector<agent::RdmaCmBound>>& rdma_cm() const { return rdma_cm_; }
  // Of other hosts, where peers are, were or may be.
  const std::set<Carrier::Ferryd>& ferryds() const { return ferryds_; }

  // Before the destination is told of the peers' hosts, and before memory is copied ahead: returns when the peers of
  // all QPs that the program has now are somewhere, which ferryds() tells from then on, and after some seconds in
  // any case. A peer that moves just now is nowhere, and cannot be suspended. Between looks `need_go_on` throws when
  // the move is given up.
  void await_peers(pid_t root, const std::function<void()>& need_go_on);
  // Before the stop. Null: the program has no such contexts. Throws Failure.
  std::unique_ptr<Suspension> suspend(const std::vector<FerryProcess>& processes,
                                      std::uint64_t move_id, std::chrono::milliseconds limit);
  // Compares the names that stopped processes give away with their own. Throws Failure for a QP that is
  // another's.
  void keep_own_names(std::vector<HeldProcess>* processes) const;

 private:
  void look_at(const std::string& program, pid_t pid, const agent::StatusReply& status,
               std::vector<Carrier::Connection>* connections);
  void find_datagram_peers();
  std::optional<std::vector<Carrier::Connection>> connections_of(pid_t root);

  Carrier& carrier_;
  Attestor& attestor_;
  ControlServer& control_;
  QpNames& names_;
  std::map<std::string, std::string> devices_;
  std::optional<std::vector<agent::RdmaCmBound>> rdma_cm_;
  std::set<Carrier::Ferryd> ferryds_;
  std::map<pid_t, std::set<std::uint32_t>> ud_qpns_;
  std::set<port::Address> datagram_destinations_;
  std::map<pid_t, QpNames::Own> own_;  // as of suspend(): a stopped process has no QPs
};

}  // namespace ferry::host
