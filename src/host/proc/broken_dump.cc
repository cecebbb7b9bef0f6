#include "host/proc/broken_dump.h"

#include <fmt/core.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/log.h"
#include "host/proc/process_tree.h"
#include "host/proc/subprocess.h"
#include "host/proc/tcp_sockets.h"

namespace ferry::host {
namespace {

constexpr char kChain[] = "CRIU";           // CRIU's chain, which locks a network namespace
constexpr char kMark[] = "--mark 0xc114 ";  // packets that CRIU itself sends have it

using Ports = std::pair<unsigned, unsigned>;  // source and destination port of a packet

unsigned port_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

// The ports of packets of the tree's TCP connections, in both directions.
std::set<Ports> connections_of(pid_t root) {
  std::set<Ports> connections;
  for (const pid_t pid : process_tree(root)) {
    for (const auto& socket : tcp_sockets_of(pid)) {
      sockaddr_storage here{}, there{};
      socklen_t length = sizeof here;
      if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here), &length) != 0) continue;
      length = sizeof there;
      if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&there), &length) != 0) continue;
      connections.emplace(port_of(here), port_of(there));
      connections.emplace(port_of(there), port_of(here));
    }
  }
  return connections;
}

unsigned number_after(const std::string& line, std::string_view option) {
  const std::size_t at = line.find(option);
  unsigned number = 0;
  if (at != std::string::npos) std::istringstream(line.substr(at + option.size())) >> number;
  return number;
}

// `rule`: as `iptables -S` shows it.
bool locks_network(const std::string& rule) {
  return rule == fmt::format("-A INPUT -j {}", kChain) ||
         rule == fmt::format("-A OUTPUT -j {}", kChain) || rule == fmt::format("-N {}", kChain);
}
bool locks_connection(const std::string& rule, const std::set<Ports>& connections) {
  return (rule.starts_with("-A INPUT ") || rule.starts_with("-A OUTPUT ")) &&
         rule.find(kMark) != std::string::npos && rule.ends_with(" -j DROP") &&
         connections.contains({number_after(rule, "--sport "), number_after(rule, "--dport ")});
}

// Runs commands in the network that a process is in.
class Network {
 public:
  explicit Network(pid_t pid) : option_(fmt::format("--net=/proc/{}/ns/net", pid)) {}

  Outcome run(std::vector<std::string> argv, const std::string& input = {}) const {
    argv.insert(argv.begin(), {"nsenter", option_});
    return host::run({std::move(argv), {}, input});
  }
  void change(std::vector<std::string> argv, const std::string& input = {}) const {
    const Outcome outcome = run(std::move(argv), input);
    if (!outcome.ok()) log::error("CRIU's network lock stays: {}", one_line(outcome.err));
  }

 private:
  const std::string option_;
};

void remove_rules(const Network& network,
                  const std::function<bool(const std::string& rule)>& is_lock) {
  for (const std::string tables : {"iptables", "ip6tables"}) {
    const Outcome rules =
        network.run({tables, "-w", "-S"});  // fails where there is no such command
    std::string references, chains;
    std::istringstream lines(rules.out);
    for (std::string rule; std::getline(lines, rule);) {
      if (!is_lock(rule)) continue;
      if (rule.starts_with("-N "))
        chains = fmt::format("-F {}\n-X {}\n", kChain, kChain);
      else
        references += "-D" + rule.substr(2) + "\n";
    }
    const std::string changes = references + chains;
    if (changes.empty()) continue;
    network.change({tables + "-restore", "-w", "-n"}, "*filter\n" + changes + "COMMIT\n");
  }
}

void remove_tables(const Network& network) {
  const Outcome tables = network.run({"nft", "list", "tables"});
  std::istringstream lines(tables.out);
  for (std::string table; std::getline(lines, table);) {
    if (table.starts_with("table inet CRIU-")) network.change({"nft", "delete " + table});
  }
}

}  // namespace

void kill_dump(pid_t runner, pid_t root) {
  halt_tree(runner);
  end_repair(root);
  kill_tree(runner);
}

// Does what CRIU itself does after a dump that has failed. Repair mode takes SO_REUSEADDR away, and only CRIU knew
// whether the program had set it: here it is always set, because without it a server could not bind its port anew
// beside a connection.
void end_repair(pid_t root) {
  for (const pid_t pid : process_tree(root)) {
    for (const auto& socket : tcp_sockets_of(pid)) {
      constexpr int kOff = 0, kOn = 1;
      int repair = 0;
      socklen_t length = sizeof repair;
      if (::getsockopt(socket.get(), IPPROTO_TCP, TCP_REPAIR, &repair, &length) != 0 || repair == 0)
        continue;
      if (::setsockopt(socket.get(), IPPROTO_TCP, TCP_REPAIR, &kOff, sizeof kOff) != 0) {
        log::error("a TCP connection of process {} stays stopped: {}", pid, error_text(errno));
        continue;
      }
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &kOn, sizeof kOn);
    }
  }
}

// CRIU locks a network of the tree's own as a whole, by a chain or, if its configuration says so, a
// table of nftables; on the host's network it locks each connection of the tree.
void remove_network_lock(pid_t root) {
  const std::uint64_t network = namespace_inode(root, "net");
  if (network == 0) return;
  const Network within(root);
  if (network == namespace_inode(::getpid(), "net")) {
    remove_rules(within, [connections = connections_of(root)](const std::string& rule) {
      return locks_connection(rule, connections);
    });
  } else {
    remove_rules(within, locks_network);
    remove_tables(within);
  }
}

// cgroups of version 1, where the freezer has a hierarchy of its own, and of version 2:
//   7:freezer:/libpod_parent/libpod-ID, or 0::/machine.slice/libpod-ID.scope
void thaw(pid_t root) {
  std::ifstream cgroups(fmt::format("/proc/{}/cgroup", root));
  for (std::string line; std::getline(cgroups, line);) {
    const std::string path = line.substr(line.rfind(':') + 1);
    if (line.find(":freezer:") != std::string::npos) {
      std::ofstream(fmt::format("/sys/fs/cgroup/freezer{}/freezer.state", path)) << "THAWED";
    } else if (line.starts_with("0::")) {
      std::ofstream(fmt::format("/sys/fs/cgroup{}/cgroup.freeze", path)) << "0";
    }
  }
}

}  // namespace ferry::host
