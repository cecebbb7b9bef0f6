#include "host/move/source/kernel/partners.h"

#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <thread>

#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "device/own_names.h"
#include "device/parcel.h"
#include "host/proc/kernel_devices.h"
#include "host/proc/process_facts.h"
#include "host/proc/process_tree.h"
#include "host/units/rdma_cm.h"
#include "host/units/unit.h"
#include "port/address_text.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kStatusLimit{10000}, kGlance{1000};
constexpr std::size_t kMostNeeds = 64 << 10;    // bytes, of all contexts of a device
constexpr std::size_t kMostDestinations = 256;  // of datagrams, which are asked for a ferryd
constexpr std::chrono::milliseconds kFindLimit{10000}, kBetweenLooks{100};

bool is_connected(const device::QpStatus& qp) {
  return (qp.state == IBV_QPS_RTR || qp.state == IBV_QPS_RTS) && qp.peer_qpn != 0;
}

device::Letter::End own_end(const device::QpStatus& qp) {
  return {qp.local.address, qp.qpn};
}

device::Letter::End peer_end(const device::QpStatus& qp) {
  return {qp.peer.address, qp.peer_qpn};
}

bool has_shadows(const agent::ContextStatus& context) {
  return !device::device_behind(context.place).empty();
}

// Those of a context over a device of the kernel with QPs of others.
void add_connections(const agent::ContextStatus& context,
                     std::vector<Carrier::Connection>* connections) {
  std::set<device::Letter::End> here;
  for (const auto& qp : context.qps) here.insert(own_end(qp));
  for (const auto& qp : context.qps) {
    if (is_connected(qp) && !here.contains(peer_end(qp)))
      connections->push_back({own_end(qp), peer_end(qp)});
  }
}

}  // namespace

void Partners::look_at(const std::string& program, pid_t pid, const agent::StatusReply& status,
                       std::vector<Carrier::Connection>* connections) {
  for (const auto& context : status.contexts) {
    const std::string device = printable(device::device_behind(context.place));
    if (device.empty()) continue;
    if (!context.obstacle.empty()) {
      throw Failure(fmt::format("'{}' has {} on {}, which cannot move along", program,
                                printable(context.obstacle), device));
    }
    std::string& needs = devices_[device];
    needs += context.needs;
    if (needs.size() > kMostNeeds) {
      throw Failure(fmt::format("'{}' has queues of too many kinds on {}", program, device));
    }
    const auto& destinations = context.datagram_destinations;
    datagram_destinations_.insert(destinations.begin(), destinations.end());
    for (const auto& qp : context.qps) {
      if (qp.type == IBV_QPT_UD) ud_qpns_[pid].insert(qp.qpn);
    }
    add_connections(context, connections);
  }
}

// Who sends datagrams to the program cannot be seen: each ferryd is to hear where its UD QPs are.
void Partners::find_datagram_peers() {
  if (ud_qpns_.empty() && datagram_destinations_.empty()) return;
  if (datagram_destinations_.size() > kMostDestinations) {
    log::warn("a program may send datagrams to {} addresses; {} of them are asked for a ferryd",
              datagram_destinations_.size(), kMostDestinations);
    datagram_destinations_.erase(std::next(datagram_destinations_.begin(), kMostDestinations),
                                 datagram_destinations_.end());
  }
  carrier_.find_at(datagram_destinations_);
  for (auto& ferryd : carrier_.known()) ferryds_.insert(std::move(ferryd));
}

void Partners::look(const std::string& program, pid_t root,
                    const std::vector<FerryProcess>& processes, bool address_moves) {
  devices_.clear();
  rdma_cm_.reset();
  ferryds_.clear();
  ud_qpns_.clear();
  datagram_destinations_.clear();
  std::vector<Carrier::Connection> connections;
  for (const pid_t pid : process_tree(root)) {
    const auto opened = opened_device_files(pid);
    const auto rdma_cm = opened_rdma_cm_files(pid);
    const bool is_ferrys =
        std::any_of(processes.begin(), processes.end(),
                    [&](const FerryProcess& process) { return process.pid == pid; });
    agent::StatusReply status;
    if (is_ferrys) status = control_.status(pid, kStatusLimit);
    const auto& contexts = status.contexts;
    // A context that goes on with an RNIC of Ferry's own has no such file.
    const auto with_file = std::count_if(contexts.begin(), contexts.end(), [](const auto& context) {
      return has_shadows(context) && !device::is_own_name(device::device_behind(context.place));
    });
    if (opened.size() > static_cast<std::size_t>(with_file)) {
      throw Failure(fmt::format(
          "process {} ({}): descriptor {} ({}) is an RDMA device of the kernel that was not opened "
          "through Ferry; start the program with ferry run --device",
          pid, program_name(pid).value_or("?"), opened.front().number,
          printable(opened.front().target)));
    }
    need_movable_rdma_cm(program, pid, rdma_cm, status.rdma_cm, address_moves);
    if (!rdma_cm.empty() && !rdma_cm_) rdma_cm_.emplace();
    const auto& bound = status.rdma_cm.bound;
    // On a network of its own the program finds each port free.
    if (rdma_cm_ && !address_moves) rdma_cm_->insert(rdma_cm_->end(), bound.begin(), bound.end());
    if (std::none_of(contexts.begin(), contexts.end(), has_shadows)) continue;
    look_at(program, pid, status, &connections);
    attestor_.need_trusted(pid);
  }
  find_datagram_peers();
  if (connections.empty()) return;
  // A peer that has just connected may not be known to its own ferryd yet.
  const auto deadline = std::chrono::steady_clock::now() + kFindLimit;
  Carrier::Found found = carrier_.find(connections);
  const auto& places = found.places;
  while (std::find(places.begin(), places.end(), std::nullopt) != places.end() &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kBetweenLooks);
    found = carrier_.find(connections);
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!places[i]) {
      const auto& [own, peer] = connections[i];
      throw Failure(fmt::format(
          "no host that ferryd knows has the program of QP {:#08x} of {}, the peer of QP "
          "{:#08x}{}; "
          "start that program with ferry run --device, and name its host in ferryd's --directory",
          peer.qpn, to_string(peer.gid), own.qpn,
          found.silent.empty()
              ? ""
              : fmt::format(" (no answer from {})", fmt::join(found.silent, ", "))));
    }
    if (!places[i]->address.empty()) ferryds_.insert(*places[i]);
  }
  std::map<Carrier::Ferryd, std::vector<Carrier::Connection>> at;
  for (std::size_t i = 0; i < places.size(); ++i) at[*places[i]].push_back(connections[i]);
  for (const auto& [ferryd, theirs] : at) attestor_.need_trusted(ferryd, theirs);
}

void Partners::await_peers(pid_t root, const std::function<void()>& need_go_on) {
  if (devices_.empty()) return;
  const auto deadline = std::chrono::steady_clock::now() + kFindLimit;
  for (;;) {
    if (const auto connections = connections_of(root)) {
      const auto places = carrier_.find(*connections).places;
      for (const auto& place : places) {
        if (place && !place->address.empty()) ferryds_.insert(*place);
      }
      if (std::find(places.begin(), places.end(), std::nullopt) == places.end()) return;
    }
    if (std::chrono::steady_clock::now() >= deadline) return;
    need_go_on();
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

// As of now. Nothing: a process does not answer.
std::optional<std::vector<Carrier::Connection>> Partners::connections_of(pid_t root) {
  std::vector<Carrier::Connection> connections;
  const auto statuses = control_.statuses(kGlance);
  for (const auto& process : ferry_processes(control_, root)) {
    const auto status = statuses.find(process.pid);
    if (status == statuses.end()) return std::nullopt;
    for (const auto& context : status->second.contexts) {
      if (has_shadows(context)) add_connections(context, &connections);
    }
  }
  return connections;
}

std::unique_ptr<Suspension> Partners::suspend(const std::vector<FerryProcess>& processes,
                                              std::uint64_t move_id,
                                              std::chrono::milliseconds limit) {
  if (devices_.empty()) return nullptr;
  std::vector<pid_t> pids;
  for (const auto& process : processes) pids.push_back(process.pid);
  // A stop that is given up can leave a process with other QPs, which nobody else has named.
  std::map<pid_t, std::set<device::Letter::End>> of_datagrams;
  for (const pid_t pid : pids) {
    own_[pid] = names_.of_again(pid);
    for (const port::Address& gid : own_[pid].gids()) {
      for (const std::uint32_t qpn : ud_qpns_[pid]) {
        if (own_[pid].has({gid, qpn})) of_datagrams[pid].insert({gid, qpn});
      }
    }
  }
  names_.remember(of_datagrams);
  return std::make_unique<Suspension>(control_, std::move(pids), move_id, limit);
}

// A QP without a peer, and one that is made later, is named with each of the GIDs that its program knows,
// of which the device may have lost some.
void Partners::keep_own_names(std::vector<HeldProcess>* processes) const {
  for (auto& process : *processes) {
    const auto found = own_.find(process.pid);
    const QpNames::Own own = found != own_.end() ? found->second : QpNames::Own();
    for (auto& context : process.place.contexts) {
      std::set<std::uint32_t> own_qpns{0};
      for (const auto& name : context.names) {
        if (own.has(name)) own_qpns.insert(name.qpn);
      }
      for (const auto& name : context.names) {
        if (own_qpns.contains(name.qpn)) continue;
        throw Failure(fmt::format("process {} gives away QP {:#08x} of {}, which is not its own",
                                  process.pid, name.qpn, to_string(name.gid)));
      }
      std::erase_if(context.names, [&](const auto& name) { return !own.has(name); });
    }
  }
}

}  // namespace ferry::host
