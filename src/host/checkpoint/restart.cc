#include "host/checkpoint/restart.h"

#include <fmt/core.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

#include "base/failure.h"
#include "base/parallel.h"
#include "ferry.pb.h"
#include "host/image/image_stream.h"
#include "host/journal/decision_log.h"
#include "host/move/destination/arrivals.h"
#include "host/move/slots_message.h"
#include "host/peers/peer.h"
#include "host/peers/this_host.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

using Clock = std::chrono::steady_clock;

v1::PrepareRequest prepare_request(const ThisHost& host, const std::vector<Facts>& programs,
                                   std::size_t index) {
  const Facts& facts = programs[index];
  v1::PrepareRequest request;
  request.set_move_id(facts.move_id);
  request.set_program(facts.check.program());
  request.set_version(host.version);
  request.set_source(host.address);
  request.set_kind(facts.check.kind());
  request.set_details(facts.check.details());
  for (const auto& place : facts.places) {
    request.add_inner_pids(place.inner_pid);
    // There is no stand-in that could tell the others of another place.
    for (const auto& context : place.contexts) to_message(context, request.add_kept());
  }
  if (programs.size() > 1) {
    request.mutable_group()->set_id(programs.front().move_id);
    request.mutable_group()->set_programs(static_cast<std::uint32_t>(programs.size()));
    request.mutable_group()->set_program(static_cast<std::uint32_t>(index));
  }
  return request;
}

// Waits until the program says that it goes on.
void await_resumed(const ThisHost& host, Arrival& arrival) {
  const auto until = Clock::now() + host.limits.resume;
  for (;;) {
    const auto left = until - Clock::now();
    const auto event =
        arrival.next_event(std::chrono::duration_cast<std::chrono::milliseconds>(left));
    if (!event) {
      throw Failure(
          fmt::format("'{}' is restored, and does not go on: no sign of it", arrival.program()));
    }
    if (event->has_resumed()) return;
    if (!event->failed().empty()) {
      throw Failure(fmt::format("'{}' is restored, and does not go on: {}", arrival.program(),
                                event->failed()));
    }
  }
}

}  // namespace

std::string what_runs(const Facts& facts, const Arrivals& arrivals) {
  const auto arrival = arrivals.find(facts.move_id);
  if (arrival && !arrival->is_over()) return fmt::format("process {}", arrival->root());
  if (facts.boot != stamp_now().boot) return {};
  for (const auto& [pid, started] : facts.processes) {
    if (start_time(pid) == started && is_alive(pid)) return fmt::format("process {}", pid);
  }
  return {};
}

v1::RestartReport restart_programs(const ThisHost& host, Arrivals& arrivals,
                                   const store::Checkpoint& checkpoint,
                                   const std::vector<Facts>& programs) {
  struct Part {
    std::size_t index;
    std::shared_ptr<Arrival> arrival;
  };
  std::vector<Part> parts;
  const Peer here(host.address, host.credentials, host.name);
  const std::string from = host.credentials != nullptr ? host.name : std::string();
  v1::RestartReport report;
  report.set_id(checkpoint.manifest().id);
  report.set_host(host.name);
  try {
    for (std::size_t i = 0; i < programs.size(); ++i) {
      parts.push_back({i, arrivals.prepare(prepare_request(host, programs, i), from)});
      report.add_programs(programs[i].check.program());
    }
    in_parallel(parts, [&](const Part& part) {
      ImageSender sender(here.address(), arrivals.image_port(), part.arrival->token(),
                         host.credentials, host.name);
      const auto& files = checkpoint.manifest().programs[part.index].files;
      checkpoint.read_image(part.index, [&](std::size_t file, std::span<const std::byte> piece) {
        sender.send_piece(files[file].name, piece);
      });
      part.arrival->bind(programs[part.index].places);
      sender.send({});
    });
    // CRIU looks at files when all is on this host, and nothing has begun.
    for (const auto& facts : programs) {
      for (const auto& file : facts.written) {
        const std::string aside = file.path + ".ferry-" + checkpoint.manifest().id;
        if (auto kept = cut_back(file, aside); !kept.empty())
          report.add_kept_aside(std::move(kept));
      }
    }
    in_parallel(parts, [&](const Part& part) { part.arrival->restore(host.limits.restore, {}); });
    std::string reason;
    if (parts.front().arrival->commit(&reason) != Answer::kCommitted) throw Failure(reason);
  } catch (const std::exception& failure) {
    for (const auto& part : parts) part.arrival->abort(failure.what());
    throw;
  }
  for (const auto& part : parts) await_resumed(host, *part.arrival);
  return report;
}

}  // namespace ferry::host
