// ferryd: one per host. Decides and drives moves, and answers for stopped processes.

#include <fcntl.h>
#include <fmt/core.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <linux/magic.h>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "base/build_id.h"
#include "base/companion.h"
#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "host/attestation/attestor.h"
#include "host/checkup/checkup.h"
#include "host/detach/detachments.h"
#include "host/directory/directory.h"
#include "host/ferryd/daemon.h"
#include "host/ferryd/options.h"
#include "host/ferryd/service.h"
#include "host/guest/guest_port.h"
#include "host/guest/nic_keeper.h"
#include "host/history/accounts.h"
#include "host/history/history.h"
#include "host/history/move_counters.h"
#include "host/image/image_room.h"
#include "host/image/late_pages.h"
#include "host/letters/carrier.h"
#include "host/letters/moved_names.h"
#include "host/letters/qp_names.h"
#include "host/metrics/metrics.h"
#include "host/metrics/metrics_server.h"
#include "host/move/source/departed.h"
#include "host/peers/api.h"
#include "host/peers/credentials.h"
#include "host/peers/kept_peers.h"
#include "host/peers/peer.h"
#include "host/peers/this_host.h"
#include "host/proc/kernel_devices.h"
#include "host/proc/mounts.h"
#include "host/proc/service_manager.h"
#include "host/proc/subprocess.h"
#include "host/standin/origins.h"
#include "host/standin/redirector.h"
#include "host/standin/whereabouts.h"
#include "host/units/container/orphans.h"
#include "host/units/lab/lab.h"
#include "host/units/podman/podman_kind.h"
#include "host/units/process/process_unit.h"
#include "host/units/runc/runc.h"
#include "host/units/vm/vm_kind.h"

namespace ferry::host {
namespace {

constexpr Days kExpiresSoon{30};
constexpr int kPriority = -10;  // of ferryd, and of CRIU and the hook, which inherit it
constexpr int kArenas = 2;      // of malloc; see keep_heap_small()
constexpr int kMappedBytes =
    128 * 1024;  // from this size on, an allocation is a mapping of its own

// Each move has threads of its own, and malloc gives threads up to eight arenas for each processor.
// Every arena keeps what the largest move needed. That includes pieces of images, of 1 MiB each: malloc takes them
// from arenas once it has seen one freed, unless its threshold is fixed. Without these settings 45 MB were resident
// after 240 moves, and growing, of which 2 MB were in use; with the settings 28 MB are resident after 999 moves.
void keep_heap_small() {
  ::mallopt(M_ARENA_MAX, kArenas);
  ::mallopt(M_MMAP_THRESHOLD, kMappedBytes);
}

// Makes the folder of images, without those of moves that a former ferryd left behind.
void make_image_directory(const std::string& path) {
  std::error_code error;
  report_failure([&] { unmount_all(targets_below(path)); });  // mounts of a CRIU that was killed
  std::filesystem::remove_all(path, error);
  std::filesystem::create_directories(path, error);
  if (error) throw Failure("cannot make " + path + ": " + error.message());
  std::filesystem::permissions(path, std::filesystem::perms::owner_all, error);
  struct statfs status {};
  if (::statfs(path.c_str(), &status) == 0 && status.f_type != TMPFS_MAGIC) {
    log::warn("{} is not on a tmpfs: moves will be slow", path);
  }
}

// Logs gRPC's own errors, one line each. gRPC tells of failed handshakes in no other way.
void log_grpc(gpr_log_func_args* entry) {
  if (entry->severity < GPR_LOG_SEVERITY_ERROR) return;
  const std::string text = one_line(entry->message);
  if (text.starts_with("Handshake failed")) {
    const std::size_t at = text.rfind("::");
    const std::string reason = at == std::string::npos ? text : text.substr(at + 2);
    // gRPC does not say more of a certificate.
    const char* meaning = reason.starts_with("certificate verify failed")
                              ? "its certificate is not a host's of this CA, but of another CA, "
                                "expired, or a scraper's, which is for metrics only: "
                              : "";
    log::warn("refused a connection with another host: {}{}", meaning, reason);
  } else {
    log::warn("gRPC: {}", text);
  }
}

// Serves a gRPC service as long as it lives.
class Served {
 public:
  // `has_other_hosts`: as clients. Throws Failure.
  Served(const std::string& address, std::shared_ptr<grpc::Service> service,
         std::shared_ptr<grpc::ServerCredentials> credentials, bool has_other_hosts)
      : service_(std::move(service)) {
    grpc::ServerBuilder builder;
    int port = -1;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Other ferryds ask more often than gRPC likes whether this one is there (host/peers/peer.h).
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    if (has_other_hosts) {
      // One that has gone without a word has given up what it steers here.
      builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kHostSilence.count() / 5);
      builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                                 kHostSilence.count() - kHostSilence.count() / 5);
      builder.SetMaxReceiveMessageSize(kLargestMessage);
    }
    builder.AddListeningPort(address, std::move(credentials), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    if (!server_ || port < 0) throw Failure("cannot listen on " + address + "; is it in use?");
  }
  void shut_down(std::chrono::system_clock::time_point limit) { server_->Shutdown(limit); }

 private:
  const std::shared_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
};

std::optional<Credentials> find_credentials(const Options& options) {
  if (options.insecure || !Credentials::exist(options.tls)) return std::nullopt;
  Credentials credentials = Credentials::load(options.tls);
  const auto left =
      std::chrono::duration_cast<Days>(credentials.end() - std::chrono::system_clock::now());
  if (left < kExpiresSoon) {
    log::warn(
        "the certificate in {} expires in {} days; make another, on the CA's host: ferry "
        "host add {}",
        options.tls, left.count(), credentials.identity().name);
  }
  return credentials;
}

std::string name_of_host(const Options& options, const std::optional<Credentials>& credentials) {
  if (credentials) {
    const std::string& certified = credentials->identity().name;
    if (!options.host.empty() && options.host != certified) {
      throw Failure(
          fmt::format("the certificate in {} is of {}, not of {}; leave --host away, or "
                      "make another: ferry host add {}",
                      options.tls, certified, options.host, options.host));
    }
    return certified;
  }
  char name[HOST_NAME_MAX + 1] = "";
  if (options.host.empty()) ::gethostname(name, sizeof name - 1);
  return options.host.empty() ? name : options.host;
}

// The address on which ferryd serves other hosts; empty: it does not serve them.
std::string address_for_others(const Options& options,
                               const std::optional<Credentials>& credentials) {
  if (options.listen.empty()) {
    const bool known = credentials && !credentials->identity().addresses.empty();
    return known ? credentials->identity().addresses.front() : std::string();
  }
  if (!credentials && !options.insecure) {
    throw Failure(fmt::format(
        "no certificates in {}, without which anybody could have programs restored here as root; "
        "make them: ferry ca init, ferry host join (or leave --listen away to serve this host "
        "only)",
        options.tls));
  }
  return options.listen;
}

TrustedLibraries trusted_libraries(const Options& options,
                                   const std::optional<Credentials>& credentials) {
  auto trusted = TrustedLibraries::load(options.trusted_libraries);
  if (!trusted.are_all() && !credentials) {
    throw Failure(
        "--trusted-libraries needs the certificates of --tls-dir, with which hosts sign what they "
        "say of libraries; make them: ferry ca init, ferry host join");
  }
  return trusted;
}

std::string metrics_socket_of(const Options& options) {
  if (!options.metrics_socket.empty()) return options.metrics_socket;
  return std::filesystem::path(options.api).replace_filename("metrics.sock");
}

// `listen`: what address_for_others() gives.
ThisHost this_host(const Options& options, const std::optional<Credentials>& credentials,
                   const std::string& listen) {
  std::string name = name_of_host(options, credentials), address;
  if (!listen.empty()) {
    const auto [listen_host, listen_port] = split_host_port(listen, kFerrydPort);
    address = join_host_port(resolve(listen_host), listen_port);
  }
  Limits limits;
  for (const auto& limit : options.limits) set_limit(limit, &limits);
  return {.name = std::move(name),
          .address = std::move(address),
          .version = kVersion,
          .credentials = credentials ? &*credentials : nullptr,
          .state_directory = options.state,
          .rootfs_helper = companion("ferry-rootfs"),
          .pages_helper = companion("ferry-pages"),
          .limits = limits};
}

// Blocks the signals that end ferryd. Threads inherit the signal mask: only sigwait() sees these.
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

void set_up_process() {
  // Images, records, and what CRIU writes are root's alone. A restored program has its own mask.
  ::umask(0077);
  ::signal(SIGPIPE, SIG_IGN);
  // A limit of file sizes acts like a full disk: the write fails, and the move with it.
  ::signal(SIGXFSZ, SIG_IGN);
  // Programs that poll take every processor; a blackout must not wait for their time slices. CRIU
  // gives what it restores the priority that it had.
  ::setpriority(PRIO_PROCESS, 0, kPriority);
  // Every program has a connection, and a stand-in a socket for each context.
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  // Restored programs become children of ferryd, which gets their exit status.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

// Null: ferryd does not serve other hosts.
std::unique_ptr<ImageReceiver> make_image_receiver(const Options& options, const ThisHost& host) {
  if (host.address.empty()) return nullptr;
  const auto [here, port] = split_host_port(host.address, kFerrydPort);
  return std::make_unique<ImageReceiver>(here, options.image_port.value_or(port + 1),
                                         host.credentials);
}

// Null: there is no --metrics-port.
std::unique_ptr<MetricsServer> serve_metrics_to_others(const Options& options, const ThisHost& host,
                                                       MetricsServer::Page page) {
  if (!options.metrics_port) return nullptr;
  if (host.credentials == nullptr || host.address.empty()) {
    throw Failure(
        "--metrics-port needs the certificates of --tls-dir and an address to listen on; make "
        "them (ferry ca init, ferry host join), or read the metrics on this host, from " +
        metrics_socket_of(options));
  }
  const auto here = split_host_port(host.address, kFerrydPort).first;
  return std::make_unique<MetricsServer>(listen_tcp(here, *options.metrics_port), host.credentials,
                                         std::move(page));
}

void log_start(const ThisHost& host) {
  log::info("ferryd {} (build {}) of {} {}", FERRY_RELEASE, build_id(), host.name,
            host.address.empty()
                ? "serves this host only"
                : fmt::format("listens on {}, {}", host.address,
                              host.credentials ? "with certificates" : "INSECURE"));
}

// Ends ferryd as it is: moves under way hold threads, sockets and CRIU. The kernel takes all of it
// back, and what is on record stands.
[[noreturn]] void end(const Options& options) {
  ::unlink(options.socket.c_str());
  ::unlink(ControlServer::programs_socket(options.socket).c_str());
  ::unlink(options.api.c_str());
  ::unlink(metrics_socket_of(options).c_str());
  log::end();
  ::_exit(0);
}

[[noreturn]] void run(const Options& options) {
  if (::geteuid() != 0) {
    throw Failure("needs root, because it freezes and restores processes; use sudo");
  }
  ::gpr_set_log_function(log_grpc);
  const auto credentials = find_credentials(options);
  const std::string listen = address_for_others(options, credentials);
  auto trusted = trusted_libraries(options, credentials);
  const sigset_t signals = block_signals();
  set_up_process();

  ThisHost host = this_host(options, credentials, listen);
  const ImageRoom room(options.images, host.name, options.memory_limit);
  DecisionLog decisions(options.state);
  History history(options.state + "/history");
  LabRuntime lab(options.containers, options.hook);
  StandInHost stand_ins(options.faults);
  Runc runc(options.runc_records, options.runc, options.runc_root);
  ProcessKind processes;
  PodmanKind podman(options.podman, host);
  VmKind machines({host, MachineRecords(options.machines), credentials ? options.tls : ""}, room);
  const Units units(host.name, {&podman, &runc, &machines, &lab, &processes}, history);
  CriuRunner criu({CriuRunner::find(options.criu), companion("criu-plugins"),
                   companion("ferry-criu-action"), companion("ferry-criu-dump.so"),
                   options.socket});
  std::optional<Credentials> for_etcd;
  if (!options.etcd_tls.empty()) for_etcd = Credentials::load(options.etcd_tls);
  const auto directory =
      make_directory({options.directory, host.address, host.credentials,
                      for_etcd ? &*for_etcd : host.credentials, host.limits.lease});
  Origins origins(stand_ins, *directory, host.limits.origin);
  const Departed departed(units, decisions, origins, host.stopping);
  // The lock of its socket keeps a second ferryd from everything below.
  ControlServer control(options.socket);
  LatePages(host).tidy();
  Residents residents(host.state_directory + "/residents");
  Whereabouts whereabouts(host.name, host.address, control, *directory, residents);
  KeptPeers peers(host.credentials);
  Redirector redirector(peers, origins, stand_ins);
  QpNames qp_names(residents);
  Carrier carrier(host, control, *directory, qp_names, peers);
  Attestor attestor(host, carrier, peers, std::move(trusted));
  MovedNames moved_names(host, control, carrier, residents, qp_names, peers, [&residents] {
    const auto all = residents.all();
    return !kernel_devices().empty() ||
           std::any_of(all.begin(), all.end(),
                       [](const auto& resident) { return !resident.names.empty(); });
  });
  make_image_directory(options.images);
  const auto images = make_image_receiver(options, host);
  DumpTurns dump_turns;
  MoveCounters move_counters;
  Accounts accounts(history, move_counters);
  const SourceSide side{host,     units,     control,     stand_ins, decisions, *directory,
                        departed, residents, whereabouts, room,      criu,      dump_turns,
                        accounts, carrier,   attestor,    qp_names};
  Departures departures(side);
  Detachments detachments(side, departures);
  NicKeeper nics({options.state + "/nics"});
  Arrivals arrivals(host, units, decisions, *directory, whereabouts, peers, carrier, room,
                    images.get(), criu, accounts);
  Custody custody(host, control, stand_ins, decisions, residents, whereabouts, departures, arrivals,
                  accounts);
  Daemon daemon(host, units, control, stand_ins, decisions, room, criu, *directory, whereabouts,
                departures, arrivals, custody, carrier, attestor, moved_names, accounts, history,
                detachments);
  Checkup checkup(host, criu, *directory,
                  {options.images,
                   {options.podman, options.runc, "nft"},
                   images ? images->port() : std::uint16_t{0}});

  std::optional<Served> for_others;
  if (images) {
    for_others.emplace(
        host.address,
        make_ferryd_service(daemon, host, *directory, whereabouts, attestor, *images, checkup),
        credentials ? credentials->server() : grpc::InsecureServerCredentials(), true);
  }
  Metrics metrics(FERRY_RELEASE, history, move_counters, stand_ins, control);
  const auto page = [&metrics] { return metrics.text(); };
  std::optional<gid_t> metrics_group;
  if (!options.metrics_group.empty()) metrics_group = group_of(options.metrics_group);
  const MetricsServer local_metrics(listen_unix(metrics_socket_of(options), metrics_group), nullptr,
                                    page);
  const auto metrics_for_others = serve_metrics_to_others(options, host, page);
  ::unlink(options.api.c_str());
  Served for_commands("unix:" + options.api, make_local_service(daemon, control, checkup),
                      grpc::InsecureServerCredentials(), false);
  ::chmod(options.api.c_str(), 0666);  // LocalService knows who asks
  control.start(daemon);
  log_start(host);
  if (const std::string problem = criu.unusable(); !problem.empty()) log::warn("{}", problem);

  // Last: should anything above fail, what former ferryds have left is untouched.
  daemon.recover();
  auto containers = lab.all();
  std::ranges::move(runc.all(), std::back_inserter(containers));
  Orphans orphans(containers, host.stopping);
  const GuestPort guest_port(host, detachments, departures, nics,
                             guest_port_at(options.guest_port));
  tell_manager_ready();

  int signal = 0;
  ::sigwait(&signals, &signal);
  log::info("ferryd of {} ends", host.name);
  host.stopping = true;
  const auto soon = std::chrono::system_clock::now() + std::chrono::seconds(2);
  for_commands.shut_down(soon);
  if (for_others) for_others->shut_down(soon);
  end(options);
}

}  // namespace
}  // namespace ferry::host

int main(int argc, char** argv) {
  using namespace ferry::host;
  keep_heap_small();  // before there are threads
  ferry::log::begin();
  try {
    Options options;
    if (const auto status = parse_options(argc, argv, &options)) return *status;
    run(options);
  } catch (const std::exception& failure) {
    std::cerr << "ferryd: " << failure.what() << '\n';
    return 1;
  }
}
