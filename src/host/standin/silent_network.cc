#include "host/standin/silent_network.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/log.h"
#include "host/proc/process_tree.h"
#include "host/proc/subprocess.h"

namespace ferry::host {
namespace {

// Ahead of all other hooks, CRIU's and the runtime's among them.
constexpr char kRules[] =
    "table inet ferry_held {\n"
    "  chain in { type filter hook prerouting priority -500; policy drop; }\n"
    "  chain out { type filter hook output priority -500; policy drop; }\n"
    "}\n"
    "table arp ferry_held {\n"
    "  chain in { type filter hook input priority -500; policy drop; }\n"
    "  chain out { type filter hook output priority -500; policy drop; }\n"
    "}\n";
constexpr char kNoRules[] = "delete table inet ferry_held\ndelete table arp ferry_held\n";

// -1: it is ferryd's own, or gone.
int open_network(pid_t pid) {
  if (namespace_inode(pid, "net") == namespace_inode(::getpid(), "net")) return -1;
  return ::open(fmt::format("/proc/{}/ns/net", pid).c_str(), O_RDONLY | O_CLOEXEC);
}

Outcome run_nft(int netns, const char* rules) {
  Command command{{"nsenter", "--net=/proc/self/fd/3", "nft", "-f", "-"}, {}, rules};
  command.descriptors = {netns};
  return run(command);
}

}  // namespace

SilentNetwork::SilentNetwork(pid_t pid) : netns_(open_network(pid)) {
  if (netns_ < 0) return;
  const Outcome outcome = run_nft(netns_, kRules);
  if (outcome.ok()) return;
  log::warn("cannot silence the network of process {}, which is held: {}", pid,
            one_line(outcome.err));
}

SilentNetwork::~SilentNetwork() {
  if (netns_ < 0) return;
  run_nft(netns_, kNoRules);
  ::close(netns_);
}

void SilentNetwork::end(pid_t pid) {
  const int netns = open_network(pid);
  if (netns < 0) return;
  run_nft(netns, kNoRules);  // fails when there is nothing to delete
  ::close(netns);
}

}  // namespace ferry::host
