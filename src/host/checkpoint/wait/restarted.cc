#include "host/checkpoint/wait/restarted.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/failure.h"
#include "ferry.pb.h"
#include "host/directory/directory.h"
#include "host/move/destination/arrivals.h"
#include "host/peers/this_host.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

using ProcessName = std::pair<pid_t, std::uint64_t>;

bool is_running(const ProcessName& process) {
  return start_time(process.first) == process.second && is_alive(process.first);
}

void signal_all(const Processes& processes, int signal) {
  if (signal == 0) return;
  for (const auto& [pid, started] : processes) signal_tree(pid, started, signal);
}

// True when the request means the program with this first process.
bool is_meant(const v1::RestartedRequest::Program& program, const ProcessName& root) {
  return !program.has_root() ||
         (program.root().pid() == root.first && program.root().started() == root.second);
}

void tell_running(const ProcessName& root, v1::RestartedReply* reply) {
  auto* const name = reply->add_programs()->mutable_root();
  name->set_pid(root.first);
  name->set_started(root.second);
}

}  // namespace

std::string Restarted::moved_to(const Ending& ending) const {
  for (const auto& origin : ending.origins) {
    const auto place = directory_.told(origin);
    if (place && !place->ended && place->ferryd != host_.address) return place->host;
  }
  return {};
}

void Restarted::answer(const Ending& ending, int signal, v1::RestartedReply* reply) const {
  const std::string next = moved_to(ending);
  if (next.empty() && std::ranges::any_of(ending.processes, is_running)) {
    signal_all(ending.processes, signal);
    return tell_running(ending.root, reply);
  }
  auto* const program = reply->add_programs();
  program->set_ended(true);
  program->set_moved_to(next);
  if (ending.status) program->set_status(*ending.status);
}

v1::RestartedReply Restarted::answer(const v1::RestartedRequest& request) const {
  const int signal = request.signal();
  if (signal != 0 && signal != SIGTERM && signal != SIGKILL) throw Failure("malformed request");
  v1::RestartedReply reply;
  reply.set_host(host_.name);
  for (const auto& program : request.programs()) {
    const auto arrival = arrivals_.find(program.id());
    if (arrival && !arrival->is_over() && is_meant(program, arrival->root_process())) {
      signal_all(arrival->processes(), signal);
      tell_running(arrival->root_process(), &reply);
      continue;
    }
    const auto ending = arrivals_.ending(program.id());
    if (ending && is_meant(program, ending->root)) {
      answer(*ending, signal, &reply);
    } else {
      reply.add_programs()->set_ended(true);
    }
  }
  return reply;
}

}  // namespace ferry::host
