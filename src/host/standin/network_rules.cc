#include "host/standin/network_rules.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <string>

#include "base/failure.h"
#include "base/log.h"
#include "host/proc/process_tree.h"
#include "host/proc/subprocess.h"
#include "host/standin/stand_in_host.h"
#include "port/slot.h"

namespace ferry::host {
namespace {

// What nft reads to make the rules, and to delete them.
struct Rules {
  std::string begin, end;
};

Rules rules_of(NetworkRules::Effect effect) {
  if (effect == NetworkRules::Effect::kPassLock) {
    return {
        fmt::format(
            "add table inet ferry_stand_in\n"
            "add chain inet ferry_stand_in input {{ type filter hook prerouting priority "
            "mangle; }}\n"
            "add rule inet ferry_stand_in input udp dport {{ {}, {}-{} }} meta mark set {:#x}\n",
            port::kRoceUdpPort, port::udp_port_of_slot(1), port::udp_port_of_slot(port::kMaxSlot),
            kCriuMark),
        "delete table inet ferry_stand_in\n"};
  }
  // Ahead of all other hooks, CRIU's and the runtime's among them.
  return {
      "table inet ferry_held {\n"
      "  chain in { type filter hook prerouting priority -500; policy drop; }\n"
      "  chain out { type filter hook output priority -500; policy drop; }\n"
      "}\n"
      "table arp ferry_held {\n"
      "  chain in { type filter hook input priority -500; policy drop; }\n"
      "  chain out { type filter hook output priority -500; policy drop; }\n"
      "}\n",
      "delete table inet ferry_held\ndelete table arp ferry_held\n"};
}

// Opens the network namespace of a process. No descriptor: it is ferryd's own, or gone.
UniqueFd open_network(pid_t pid) {
  if (namespace_inode(pid, "net") == namespace_inode(::getpid(), "net")) return {};
  return UniqueFd(::open(fmt::format("/proc/{}/ns/net", pid).c_str(), O_RDONLY | O_CLOEXEC));
}

Outcome run_nft(const UniqueFd& netns, const std::string& rules) {
  Command command{{"nsenter", "--net=/proc/self/fd/3", "nft", "-f", "-"}, {}, rules};
  command.descriptors = {netns.get()};
  return run(command);
}

}  // namespace

NetworkRules::NetworkRules(pid_t pid, Effect effect) : netns_(open_network(pid)), effect_(effect) {
  if (!netns_) return;
  const Outcome outcome = run_nft(netns_, rules_of(effect).begin);
  if (outcome.ok()) return;
  const std::string error = one_line(outcome.err);
  if (effect == Effect::kPassLock) {
    log::warn("cannot let RoCE pass CRIU's network lock of process {}: {}", pid, error);
  } else {
    log::warn("cannot silence the network of process {}, which is held: {}", pid, error);
  }
}

NetworkRules::~NetworkRules() {
  if (netns_) run_nft(netns_, rules_of(effect_).end);
}

void NetworkRules::end(pid_t pid, Effect effect) {
  const UniqueFd netns = open_network(pid);
  if (netns) run_nft(netns, rules_of(effect).end);  // fails when there is nothing to delete
}

}  // namespace ferry::host
