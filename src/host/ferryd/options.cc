#include "host/ferryd/options.h"

#include "base/command_line.h"

namespace ferry::host {
namespace {

void add_hosts(CLI::App& app, Options* options) {
  app.add_option("--host", options->host,
                 "name of this host (default: its certificate's, else the system's)");
  app.add_option("--listen", options->listen,
                 "ADDRESS[:PORT] for other ferryds (default: the certificate's first address; "
                 "without certificates none)");
  app.add_option("--image-port", options->image_port,
                 "TCP port on which images arrive, of the address of --listen; 0: any free one "
                 "(default: the port "
                 "after that of --listen)");
  app.add_option("--trusted-libraries", options->trusted_libraries,
                 "builds of libferry.so that programs over devices of the kernel may have, here "
                 "and on other hosts, "
                 "as sha256sum prints them; without it, all")
      ->type_name("FILE");
  app.add_option("--tls-dir", options->tls, "this host's certificate, from ferry host join")
      ->capture_default_str();
  app.add_flag("--insecure", options->insecure,
               "neither show nor demand certificates: whoever reaches the port is root here");
}

void add_sockets(CLI::App& app, Options* options) {
  app.add_option(
         "--socket", options->socket,
         "UNIX socket for programs and CRIU; containers have programs/ferryd.sock beside it")
      ->capture_default_str();
  app.add_option("--api-socket", options->api, "UNIX socket for the ferry command")
      ->capture_default_str();
  app.add_option("--metrics-socket", options->metrics_socket,
                 "UNIX socket where Prometheus' metrics are read by HTTP (default: metrics.sock "
                 "beside --api-socket)");
  app.add_option("--metrics-group", options->metrics_group,
                 "group whose members may read them there (default: root alone may)");
  app.add_option("--metrics-port", options->metrics_port,
                 "TCP port for the same by HTTPS, of the address of --listen, for scrapers and "
                 "hosts with a certificate of the CA (default: none)")
      ->check(CLI::Range(1, 65535));
}

void add_folders(CLI::App& app, Options* options) {
  app.add_option(
         "--state-dir", options->state,
         "the journal: decisions on moves, and what is held for them; must survive a restart")
      ->capture_default_str();
  app.add_option("--image-dir", options->images, "images under way, on a tmpfs")
      ->capture_default_str();
}

void add_containers(CLI::App& app, Options* options) {
  app.add_option("--containers", options->containers, "records of this host's containers")
      ->capture_default_str();
  app.add_option("--runc", options->runc, "runc to use")->capture_default_str();
  app.add_option("--runc-root", options->runc_root, "state of runc's containers, as its --root")
      ->capture_default_str();
  app.add_option("--runc-records", options->runc_records, "records of those that move")
      ->capture_default_str();
  app.add_option("--network-hook", options->hook, "makes and removes the networks of containers")
      ->check(CLI::ExistingFile);
}

void add_directory(CLI::App& app, Options* options) {
  app.add_option(
         "--directory", options->directory,
         "who is where: etcd[s]://HOST:PORT[,...], or ferryd://HOST[:PORT],... to ask these "
         "beside the hosts that this one has moved programs to and from")
      ->capture_default_str();
  app.add_option("--etcd-tls-dir", options->etcd_tls,
                 "ca.pem, host.pem and host.key for etcds://, when not those of --tls-dir")
      ->check(CLI::ExistingDirectory);
}

void add_moves(CLI::App& app, Options* options) {
  app.add_option("--criu", options->criu, "CRIU to use")->capture_default_str();
  app.add_option("--podman", options->podman, "podman to use, for ferry move CONTAINER")
      ->capture_default_str();
  app.add_option("--memory-limit", options->memory_limit,
                 "most memory that an arriving program may take, e.g. 4G; 0: what is free")
      ->transform(CLI::AsSizeValue(false));
  app.add_option(
         "--limit", options->limits,
         "how long to wait for something, e.g. stand-in=15min; can be repeated; all of them "
         "are in docs/settings.md")
      ->type_name("NAME=TIME");
}

void add_machines(CLI::App& app, Options* options) {
  app.add_option("--guest-port", options->guest_port,
                 "in a virtual machine: the port by which the host's ferryd asks for a move of it")
      ->type_name("PATH")
      ->capture_default_str();
}

void add_faults(CLI::App& app, Options* options) {
  const CLI::Range probability(0.0, 1.0);
  app.add_option("--fault-loss", options->faults.sending,
                 "for tests: lose each packet that a stand-in sends with this probability")
      ->check(probability);
  app.add_option("--fault-receive-loss", options->faults.receiving,
                 "for tests: the same of packets that reach a stand-in")
      ->check(probability);
  app.add_option("--fault-seed", options->faults.seed, "of these losses")->capture_default_str();
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, Options* options) {
  CLI::App app("Moves programs that use RDMA between hosts; one per host.", "ferryd");
  add_version(app, FERRY_RELEASE);
  add_hosts(app, options);
  add_sockets(app, options);
  add_folders(app, options);
  add_containers(app, options);
  add_directory(app, options);
  add_moves(app, options);
  add_machines(app, options);
  add_faults(app, options);
  return parse_command_line(app, argc, argv);
}

}  // namespace ferry::host
