#include "ferryd_here.h"

#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "ferry.grpc.pb.h"
#include "host/ferryd/service.h"

namespace ferry::test {
namespace {

// A port of the loopback interface, which gRPC's sockets may share and nobody else.
UniqueFd take_port(std::string* address) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  sockaddr_in local{};
  local.sin_family = AF_INET;
  local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof local;
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&local), size) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&local), &size) != 0) {
    throw std::system_error(errno, std::generic_category(), "a port for ferryd");
  }
  *address = "127.0.0.1:" + std::to_string(ntohs(local.sin_port));
  return socket;
}

}  // namespace

FerrydHere::FerrydHere(const std::string& name, std::optional<Credentials> shown)
    : credentials(std::move(shown)) {
  std::filesystem::create_directory(folder.path("plugins"));
  folder.write("plugins/ferry_plugin.so", "");
  criu_path = folder.script("criu",
                            "[ $1 != --version ] || echo Version: 4.2.1\n"
                            "[ $1 != restore ] || exit 1\n");
  host.name = name;
  port = take_port(&host.address);
  host.credentials = credentials ? &*credentials : nullptr;
  host.version = kVersion;
  room.emplace(folder.path("images"), name);
  host.state_directory = folder.path("state");
  podman.emplace(folder.path("podman"), host);
  units.emplace(name, std::vector<UnitKind*>{&*podman, &containers, &processes}, history);
  host.is_taken = [](pid_t) { return false; };  // as if each were on a machine of its own
  start();
}

FerrydHere::~FerrydHere() {
  stop();
}

void FerrydHere::restart() {
  stop();
  std::destroy_at(&decisions);
  std::construct_at(&decisions, folder.path("state"));
  std::destroy_at(&history);
  std::construct_at(&history, folder.path("state/history"));
  host.stopping = false;
  start();
}

void FerrydHere::start() {
  podman.emplace(folder.path("podman"), host);
  control = std::make_unique<ControlServer>(folder.path("sock"));
  directory = make_directory({"ferryd://", host.address, host.credentials});
  origins = std::make_unique<Origins>(stand_ins, *directory);
  departed.emplace(*units, decisions, *origins, host.stopping);
  residents.emplace(folder.path("residents"));
  whereabouts =
      std::make_unique<Whereabouts>(host.name, host.address, *control, *directory, *residents);
  peers.emplace(host.credentials);
  move_counters.emplace();
  accounts.emplace(history, *move_counters);
  qp_names.emplace(*residents, kernel);
  carrier = std::make_unique<Carrier>(host, *control, *directory, *qp_names, *peers, most_letters);
  attestor.emplace(host, *carrier, *peers, trusted, library_of);
  moved_names = std::make_unique<MovedNames>(host, *control, *carrier, *residents, *qp_names,
                                             *peers, [this] { return has_kernel_devices; });
  const SourceSide side{host,      *units,     *control,     stand_ins, decisions, *directory,
                        *departed, *residents, *whereabouts, *room,     *criu,     dump_turns,
                        *accounts, *carrier,   *attestor,    *qp_names};
  departures = std::make_unique<Departures>(side);
  detachments = std::make_unique<Detachments>(side, *departures);
  arrivals = std::make_unique<Arrivals>(host, *units, decisions, *directory, *whereabouts, *peers,
                                        *carrier, *room, &images, *criu, *accounts);
  custody = std::make_unique<Custody>(host, *control, stand_ins, decisions, *residents,
                                      *whereabouts, *departures, *arrivals, *accounts);
  daemon =
      std::make_unique<Daemon>(host, *units, *control, stand_ins, decisions, *room, *criu,
                               *directory, *whereabouts, *departures, *arrivals, *custody, *carrier,
                               *attestor, *moved_names, *accounts, history, *detachments);
  checkup = std::make_unique<Checkup>(host, *criu, *directory,
                                      Checkup::Setup{folder.path("images"), {}, images.port()});
  service =
      make_ferryd_service(*daemon, host, *directory, *whereabouts, *attestor, images, *checkup);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(host.address,
                           credentials ? credentials->server() : grpc::InsecureServerCredentials());
  builder.RegisterService(service.get());
  server = builder.BuildAndStart();
  control->start(*daemon);
  daemon->recover();
}

void FerrydHere::stop() {
  host.stopping = true;
  if (server) server->Shutdown();
  if (control) control->shut_down();  // it calls the daemon, and the daemon asks it to the last
  daemon.reset();
  custody.reset();
  arrivals.reset();
  detachments.reset();
  departures.reset();
  moved_names.reset();
  attestor.reset();
  carrier.reset();
  whereabouts.reset();
  origins.reset();
  directory.reset();
  control.reset();
  server.reset();
  service.reset();
  checkup.reset();
  podman.reset();  // the server, whose threads ask it, is gone
}

v1::WatchEvent FerrydHere::first_event(std::uint64_t move_id) const {
  const auto stub =
      v1::Ferryd::NewStub(grpc::CreateChannel(host.address, grpc::InsecureChannelCredentials()));
  v1::WatchRequest request;
  request.set_move_id(move_id);
  grpc::ClientContext context;
  const auto reader = stub->Watch(&context, request);
  v1::WatchEvent event;
  reader->Read(&event);
  context.TryCancel();
  reader->Finish();
  return event;
}

}  // namespace ferry::test
