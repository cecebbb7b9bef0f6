#include "host/checkpoint/restart.h"

#include <fmt/core.h>

#include <algorithm>
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
#include "host/proc/addresses.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

using Clock = std::chrono::steady_clock;

// True when this host has the addresses that the program had. Then it gets its places back, and its peers find it
// there; in others it is found by the directory.
bool is_at_home(const ContextSlots& context, const InterfaceAddresses& here) {
  return std::all_of(context.slots.begin(), context.slots.end(), [&](const rnic::Slot& slot) {
    return here.contains({context.netdev, slot.local.address});
  });
}

v1::PrepareRequest prepare_request(const ThisHost& host, const InterfaceAddresses& here,
                                   const std::vector<Facts>& programs, std::size_t index) {
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
    for (const auto& context : place.contexts) {
      if (is_at_home(context, here)) to_message(context, request.add_kept());
    }
  }
  if (programs.size() > 1) {
    request.mutable_group()->set_id(programs.front().move_id);
    request.mutable_group()->set_programs(static_cast<std::uint32_t>(programs.size()));
    request.mutable_group()->set_program(static_cast<std::uint32_t>(index));
  }
  return request;
}

// Waits until the program says that it goes on. Gives an empty string, or why it does not.
std::string await_resumed(Arrival& arrival, Clock::time_point until) {
  for (;;) {
    const auto left = until - Clock::now();
    const auto event =
        arrival.next_event(std::chrono::duration_cast<std::chrono::milliseconds>(left));
    if (event && event->has_resumed()) return {};
    if (event && event->failed().empty()) continue;
    return fmt::format("'{}' is restored, and does not go on: {}", arrival.program(),
                       event ? event->failed() : "no sign of it");
  }
}

// The files that the programs write to, as long as they were. All are looked at before one is cut back.
void cut_back_files(const std::vector<Facts>& programs, const std::string& id,
                    v1::RestartReport* report) {
  std::vector<LaterFile> files;
  for (const auto& facts : programs) {
    for (const auto& written : facts.written) files.emplace_back(written);
  }
  for (const auto& file : files) {
    if (auto kept = file.cut_back(".ferry-" + id); !kept.empty()) {
      report->add_kept_aside(std::move(kept));
    }
  }
}

// Where the ends of files are that were cut back, for the line of a restart that has failed after that.
std::string kept_aside(const v1::RestartReport& report) {
  std::string text;
  for (const auto& file : report.kept_aside()) {
    text += (text.empty() ? "; what was written after the checkpoint is in " : ", ") + file;
  }
  return text;
}

}  // namespace

std::string what_runs(const Facts& facts, const Arrivals& arrivals) {
  const auto arrival = arrivals.find(facts.move_id);
  if (arrival && !arrival->is_over()) {
    return arrival->root() == 0 ? "a restart" : fmt::format("process {}", arrival->root());
  }
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
  const auto addresses = addresses_of_interfaces();
  const Peer here(host.address, host.credentials, host.name);
  v1::RestartReport report;
  report.set_id(checkpoint.manifest().id);
  report.set_host(host.name);
  try {
    for (std::size_t i = 0; i < programs.size(); ++i) {
      parts.push_back({i, arrivals.prepare_restart(prepare_request(host, addresses, programs, i))});
      report.add_programs(programs[i].check.program());
    }
    in_parallel(parts, [&](const Part& part) {
      ImageSender sender(here.address(), arrivals.image_port(), part.arrival->token(),
                         host.credentials, host.name);
      const auto& files = checkpoint.manifest().programs[part.index].files;
      checkpoint.read_image(part.index, [&](std::size_t file, std::span<const std::byte> piece) {
        sender.send_piece(files[file].name, files[file].mode, piece);
      });
      part.arrival->bind(programs[part.index].places);
      sender.send({});
    });
    // CRIU looks at files when all is on this host, and nothing has begun.
    cut_back_files(programs, checkpoint.manifest().id, &report);
    in_parallel(parts, [&](const Part& part) { part.arrival->restore(host.limits.restore, {}); });
    std::string reason;
    if (parts.front().arrival->commit(&reason) != Answer::kCommitted) throw Failure(reason);
  } catch (const std::exception& failure) {
    for (const auto& part : parts) part.arrival->abort(failure.what());
    throw Failure(failure.what() + kept_aside(report));
  }
  std::string failures;
  const auto until = Clock::now() + host.limits.resume;
  for (const auto& part : parts) {
    const std::string failure = await_resumed(*part.arrival, until);
    if (!failure.empty()) failures += (failures.empty() ? "" : "; ") + failure;
  }
  if (!failures.empty()) throw Failure(failures + kept_aside(report));
  return report;
}

}  // namespace ferry::host
