#include "ferryd_here.h"

#include <grpcpp/grpcpp.h>

#include <filesystem>

#include "ferry.grpc.pb.h"
#include "host/ferryd/service.h"

namespace ferry::test {

FerrydHere::FerrydHere(const std::string& name, std::optional<Credentials> shown)
    : credentials(std::move(shown)) {
  std::filesystem::create_directory(folder.path("plugins"));
  folder.write("plugins/ferry_plugin.so", "");
  criu_path = folder.script("criu",
                            "[ $1 != --version ] || echo Version: 4.2.1\n"
                            "[ $1 != restore ] || exit 1\n");
  host.name = name;
  host.credentials = credentials ? &*credentials : nullptr;
  host.version = kVersion;
  host.room = &room.emplace(folder.path("images"), name);
  host.state_directory = folder.path("state");
  host.podman = folder.path("podman");  // none, unless a test makes one
  host.units = &units.emplace(name, std::vector<UnitKind*>{&containers, &processes});
  host.stand_ins = &stand_ins;
  host.decisions = &decisions;
  host.images = &images;
  host.is_taken = [](pid_t) { return false; };  // as if each were on a machine of its own
  host.criu = &*criu;
  start();
}

FerrydHere::~FerrydHere() {
  stop();
}

void FerrydHere::restart() {
  stop();
  std::destroy_at(&decisions);
  std::construct_at(&decisions, folder.path("state"));
  host.stopping = false;
  start();
}

void FerrydHere::start() {
  daemon = std::make_unique<Daemon>(host);
  control = std::make_unique<ControlServer>(folder.path("sock"), *daemon);
  host.control = control.get();
  service = make_ferryd_service(*daemon, host);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(host.address.empty() ? "127.0.0.1:0" : host.address,
                           credentials ? credentials->server() : grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(service.get());
  server = builder.BuildAndStart();
  host.address = "127.0.0.1:" + std::to_string(port);
  directory = make_directory({"ferryd://", host.address, host.credentials});
  host.directory = directory.get();
  origins = std::make_unique<Origins>(stand_ins, *directory);
  host.departed = &departed.emplace(*units, decisions, *origins, host.stopping);
  residents.emplace(folder.path("residents"));
  host.residents = &*residents;
  whereabouts =
      std::make_unique<Whereabouts>(host.name, host.address, *control, *directory, *residents);
  host.whereabouts = whereabouts.get();
  control->start();
  daemon->recover();
}

void FerrydHere::stop() {
  host.stopping = true;
  if (server) server->Shutdown();
  if (control) control->shut_down();  // it calls the daemon, and the daemon asks it to the last
  daemon.reset();
  whereabouts.reset();
  origins.reset();
  directory.reset();
  control.reset();
  server.reset();
  service.reset();
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
