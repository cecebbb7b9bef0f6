#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/protocol.h"
#include "host/guest/talk/lines.h"
#include "host/peers/api.h"
#include "host/peers/credentials.h"
#include "host/units/container/container.h"
#include "host/units/vm/machine_record.h"
#include "port/loss.h"

// ferryd's command line.
namespace ferry::host {

struct Options {
  std::string host, listen, socket = agent::kSocketPath, api = kApiSocket;
  std::string state = "/var/lib/ferry", images = "/run/ferry/images", containers = kContainers,
              runc = "runc", runc_root = "/run/runc", runc_records = "/run/ferry/runc",
              machines = kMachines;
  std::string tls = kTlsDirectory, trusted_libraries, etcd_tls, hook, criu = "criu",
              podman = "podman", directory = "ferryd://";
  std::uint64_t memory_limit = 0;
  port::Loss::Settings faults;
  std::vector<std::string> limits;
  std::string guest_port = std::string("/dev/virtio-ports/") + kGuestPort;
  std::string metrics_socket, metrics_group;  // metrics_socket empty: beside `api`
  std::optional<std::uint16_t> image_port, metrics_port;
  bool insecure = false;
};

// Nothing: go on; else the exit status, after --help or --version was answered. Throws Failure.
std::optional<int> parse_options(int argc, char** argv, Options* options);

}  // namespace ferry::host
