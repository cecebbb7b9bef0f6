#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "host/attestation/attestor.h"
#include "host/checkup/checkup.h"
#include "host/detach/detachments.h"
#include "host/directory/directory.h"
#include "host/ferryd/daemon.h"
#include "host/history/history.h"
#include "host/history/move_counters.h"
#include "host/letters/carrier.h"
#include "host/letters/moved_names.h"
#include "host/letters/qp_names.h"
#include "host/move/source/departed.h"
#include "host/peers/api.h"
#include "host/peers/credentials.h"
#include "host/peers/kept_peers.h"
#include "host/peers/messages.h"
#include "host/peers/this_host.h"
#include "host/standin/origins.h"
#include "host/standin/residents.h"
#include "host/standin/whereabouts.h"
#include "host/units/lab/lab.h"
#include "host/units/podman/podman_kind.h"
#include "host/units/process/process_unit.h"
#include "temporary.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace ferry::test {

using namespace host;

// A kernel in which every process has QPs of these names.
inline auto every_process_has(std::vector<device::Letter::End> names) {
  return [names = std::move(names)](const std::set<pid_t>& pids) {
    std::map<pid_t, std::vector<device::Letter::End>> all;
    for (const pid_t pid : pids) all[pid] = names;
    return all;
  };
}

// A ferryd in this process, with a CRIU that only says its version. Its gRPC service is on a port
// of the loopback interface.
struct FerrydHere {
  explicit FerrydHere(const std::string& name, std::optional<Credentials> shown = std::nullopt);
  ~FerrydHere();

  // As if it was killed and started again: what it had in memory and its sockets are gone.
  void restart();
  void start();
  void stop();

  // What it tells first to who watches a move.
  v1::WatchEvent first_event(std::uint64_t move_id) const;

  std::optional<Credentials> credentials;
  Folder folder;
  std::string criu_path;
  ThisHost host;
  UniqueFd port;  // of host.address: held, so that nobody else gets it before it is served
  std::optional<ImageRoom> room;
  DecisionLog decisions{folder.path("state")};
  History history{folder.path("state/history")};
  LabRuntime containers{folder.path("containers"), ""};
  ProcessKind processes;
  std::optional<PodmanKind> podman;  // of one life; its command is none, unless a test makes one
  std::optional<Units> units;
  StandInHost stand_ins;
  ImageReceiver images{"127.0.0.1", 0, credentials ? &*credentials : nullptr};
  std::optional<CriuRunner> criu{std::in_place,
                                 CriuRunner::Paths{folder.path("criu"), folder.path("plugins"),
                                                   folder.path("criu"), folder.path("sock")}};
  // Of one life, in the order in which they are made.
  std::unique_ptr<ControlServer> control;
  std::unique_ptr<Directory> directory;
  std::unique_ptr<Origins> origins;
  std::optional<Departed> departed;
  std::optional<Residents> residents;
  std::unique_ptr<Whereabouts> whereabouts;
  std::optional<KeptPeers> peers;
  // What the kernel says of QPs.
  QpNames::Kernel kernel{every_process_has({}),
                         [](const auto&) { return std::set<device::Letter::End>(); }};
  bool has_kernel_devices = false;
  std::optional<QpNames> qp_names;
  std::unique_ptr<Carrier> carrier;
  std::size_t most_letters = 1 << 16;  // of a process under way; the next restart() takes it
  // The next restart() takes both.
  TrustedLibraries trusted;
  Attestor::LibraryOf library_of = host::library_of;
  std::optional<Attestor> attestor;
  std::unique_ptr<MovedNames> moved_names;
  DumpTurns dump_turns;
  std::optional<MoveCounters> move_counters;
  std::optional<Accounts> accounts;
  std::unique_ptr<Departures> departures;
  std::unique_ptr<Detachments> detachments;
  std::unique_ptr<Arrivals> arrivals;
  std::unique_ptr<Custody> custody;
  std::unique_ptr<Daemon> daemon;
  std::unique_ptr<Checkup> checkup;
  std::shared_ptr<grpc::Service> service;
  std::unique_ptr<grpc::Server> server;
};

}  // namespace ferry::test
