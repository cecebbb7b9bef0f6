#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "migrate/api.h"
#include "migrate/directory.h"
#include "migrate/origins.h"
#include "migrate/service.h"
#include "migrate/whereabouts.h"
#include "temporary.h"

namespace ferry::migrate::test {

// A ferryd in this process, with a CRIU that only says its version. Its gRPC service is on a port
// of the loopback interface.
struct FerrydHere {
  explicit FerrydHere(const std::string& name, std::optional<Credentials> shown = std::nullopt)
      : credentials(std::move(shown)) {
    std::filesystem::create_directory(folder.path("plugins"));
    folder.write("plugins/ferry_plugin.so", "");
    criu_path = folder.script("criu",
                              "[ $1 != --version ] || echo Version: 4.2.1\n"
                              "[ $1 != restore ] || exit 1\n");
    host.name = name;
    host.credentials = credentials ? &*credentials : nullptr;
    host.version = kVersion;
    host.image_directory = folder.path("images");
    host.state_directory = folder.path("state");
    host.podman = folder.path("podman");  // none, unless a test makes one
    host.containers = &containers;
    host.stand_ins = &stand_ins;
    host.decisions = &decisions;
    host.images = &images;
    host.criu = &*criu;
    start();
  }
  ~FerrydHere() { stop(); }

  // As if it was killed and started again: what it had in memory and its sockets are gone.
  void restart() {
    stop();
    std::destroy_at(&decisions);
    std::construct_at(&decisions, folder.path("state"));
    host.stopping = false;
    start();
  }
  void start() {
    daemon = std::make_unique<Daemon>(host);
    control = std::make_unique<ControlServer>(folder.path("sock"), *daemon);
    host.control = control.get();
    service = std::make_unique<FerrydService>(*daemon, host);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(
        host.address.empty() ? "127.0.0.1:0" : host.address,
        credentials ? credentials->server() : grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service.get());
    server = builder.BuildAndStart();
    host.address = "127.0.0.1:" + std::to_string(port);
    directory = make_directory({"ferryd://", host.address, host.credentials});
    host.directory = directory.get();
    origins = std::make_unique<Origins>(stand_ins, *directory);
    host.origins = origins.get();
    whereabouts = std::make_unique<Whereabouts>(host);
    host.whereabouts = whereabouts.get();
    daemon->recover();
  }
  void stop() {
    host.stopping = true;
    if (server) server->Shutdown();
    daemon.reset();
    whereabouts.reset();
    origins.reset();
    directory.reset();
    control.reset();
    server.reset();
    service.reset();
  }

  std::optional<Credentials> credentials;
  Folder folder;
  std::string criu_path;
  Host host;
  DecisionLog decisions{folder.path("state")};
  Containers containers{folder.path("containers"), ""};
  StandInHost stand_ins;
  ImageReceiver images{"127.0.0.1", credentials ? &*credentials : nullptr};
  std::optional<CriuRunner> criu{std::in_place,
                                 CriuRunner::Paths{folder.path("criu"), folder.path("plugins"),
                                                   folder.path("criu"), folder.path("sock")}};
  std::unique_ptr<Daemon> daemon;
  std::unique_ptr<ControlServer> control;
  std::unique_ptr<FerrydService> service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<Directory> directory;
  std::unique_ptr<Origins> origins;
  std::unique_ptr<Whereabouts> whereabouts;
};

}  // namespace ferry::migrate::test
