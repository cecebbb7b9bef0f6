#include "host/ferryd/steps.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/failure.h"
#include "base/json_text.h"
#include "ferry.grpc.pb.h"
#include "host/checkpoint/own_folder.h"
#include "host/checkpoint/restart/local_restart.h"
#include "host/checkpoint/take/connection_message.h"
#include "host/checkpoint/take/local_part.h"
#include "host/ferryd/daemon.h"
#include "host/peers/this_host.h"

namespace ferry::host {
namespace {

// Gives the part up as soon as the other ferryd has ended the stream, also in the middle of a step.
template <typename Part>
class Watch {
 public:
  Watch(const grpc::ServerContext& context, Part& part)
      : thread_([this, &context, &part] {
          std::unique_lock lock(mutex_);
          while (!changed_.wait_for(lock, kLook, [this] { return is_over_; })) {
            if (context.IsCancelled()) part.give_up();
          }
        }) {}
  ~Watch() {
    {
      std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Watch(const Watch&) = delete;

 private:
  static constexpr std::chrono::milliseconds kLook{100};

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;
};

// Each step comes once, behind the one that it needs.
class StepOrder {
 public:
  // `before`: the step that it needs; -1: none. Throws Failure.
  void need(int step, int before) {
    if (before >= 0 && !done_.contains(before))
      throw Failure("malformed request: a step is missing");
    if (!done_.insert(step).second) throw Failure("malformed request: a step comes twice");
  }

 private:
  std::set<int> done_;
};

}  // namespace

void serve_cut(Daemon& daemon, const ThisHost& host, const grpc::ServerContext& context,
               grpc::ServerReaderWriter<v1::CutReply, v1::CutStep>& stream) {
  std::unique_ptr<LocalPart> part;
  std::optional<Watch<LocalPart>> watch;  // ends before the part
  StepOrder order;
  for (v1::CutStep step; stream.Read(&step);) {
    v1::CutReply reply;
    switch (step.kind()) {
      case v1::CutStep::LOOK:
        order.need(step.kind(), -1);
        part = daemon.cut_part({step.programs().begin(), step.programs().end()}, step.stop());
        watch.emplace(context, *part);
        reply.set_host(host.name);
        reply.set_version(host.version);
        for (const auto& each :
             part->look(need_own_folder(step.directory()), step.id(), step.first())) {
          to_message(each, reply.add_connections());
        }
        break;
      case v1::CutStep::CHECK:
        order.need(step.kind(), v1::CutStep::LOOK);
        part->check();
        break;
      case v1::CutStep::FREEZE:
        order.need(step.kind(), v1::CutStep::CHECK);
        part->freeze();
        break;
      case v1::CutStep::DUMP:
        order.need(step.kind(), v1::CutStep::FREEZE);
        part->dump();
        break;
      case v1::CutStep::STORE:
        order.need(step.kind(), v1::CutStep::DUMP);
        for (const auto& program : part->store()) {
          reply.add_programs(json_text(to_json(program)));
        }
        break;
      case v1::CutStep::END:
        order.need(step.kind(), v1::CutStep::DUMP);
        reply.set_standstill_ms(part->end());
        break;
      default: throw Failure("malformed request");
    }
    if (!stream.Write(reply)) return;
  }
}

void serve_restart(Daemon& daemon, const ThisHost& host, const grpc::ServerContext& context,
                   grpc::ServerReaderWriter<v1::RestartStepReply, v1::RestartStep>& stream) {
  std::unique_ptr<LocalRestart> part;
  std::optional<Watch<LocalRestart>> watch;  // ends before the part
  StepOrder order;
  for (v1::RestartStep step; stream.Read(&step);) {
    v1::RestartStepReply reply;
    reply.set_host(host.name);
    switch (step.kind()) {
      case v1::RestartStep::LOOK:
        reply.set_running(
            daemon.what_runs({step.facts().begin(), step.facts().end()}, step.force()));
        break;
      case v1::RestartStep::CHECK: {
        order.need(step.kind(), -1);
        std::vector<PeerRecord> hosts;
        for (const auto& each : step.hosts()) hosts.push_back({each.ferryd(), each.host()});
        part = daemon.restart_part(step.directory(), step.id(),
                                   {step.programs().begin(), step.programs().end()}, hosts,
                                   step.force());
        watch.emplace(context, *part);
        part->check();
        break;
      }
      case v1::RestartStep::RESTORE:
        order.need(step.kind(), v1::RestartStep::CHECK);
        for (auto& file : part->restore()) reply.add_kept_aside(std::move(file));
        break;
      case v1::RestartStep::GO_ON:
        order.need(step.kind(), v1::RestartStep::RESTORE);
        part->go_on();
        break;
      default: throw Failure("malformed request");
    }
    if (!stream.Write(reply)) return;
  }
}

}  // namespace ferry::host
