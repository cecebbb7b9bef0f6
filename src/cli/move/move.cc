#include "cli/move/move.h"

#include <fmt/core.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/failure.h"
#include "cli/ferryd/local_ferryd.h"
#include "cli/json.h"
#include "cli/live/events.h"
#include "cli/live/interrupts.h"
#include "cli/live/live_line.h"
#include "cli/timeline.h"
#include "ferry.grpc.pb.h"

namespace ferry::cli {
namespace {

// "1 QP", "4 QPs"
std::string counted(std::uint32_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// " (the machine was paused for 240.1 ms; mpi stood still for 911.0 ms)", or nothing for what is no machine.
std::string of_machine(const v1::MoveReport& report) {
  if (report.paused_ms() == 0) return {};
  std::string text = fmt::format(" (the machine was paused for {:.1f} ms", report.paused_ms());
  for (const auto& program : report.inner_programs()) {
    text += fmt::format("; {} stood still for {:.1f} ms", program.name(), program.stood_still_ms());
  }
  return text + ")";
}

void print(const v1::MoveReport& report) {
  fmt::print(
      "{} moved {} -> {}: blackout {:.1f} ms (stop {:.1f}, dump {:.1f}, transfer {:.1f}, restore "
      "{:.1f}, commit {:.1f}, resume {:.1f}), RDMA share {:.2f} ms, {}, {} PSNs "
      "unacknowledged, {} retransmitted, image {:.1f} MB{}{}{}\n",
      report.program(), report.from(), report.to(), report.blackout_ms(), report.stop_ms(),
      report.dump_ms(), report.transfer_ms(), report.restore_ms(), report.commit_ms(),
      report.resume_ms(), report.rdma_share_ms(), counted(report.qps(), "QP"),
      report.unacked_psns(), report.retransmitted_packets(),
      static_cast<double>(report.image_bytes()) / 1e6,
      report.ahead_rounds() == 0
          ? std::string()
          : fmt::format(
                " ({:.1f} MB of memory ahead in {} rounds and {:.1f} s, {:.1f} MB in the stop)",
                static_cast<double>(report.ahead_bytes()) / 1e6, report.ahead_rounds(),
                report.ahead_ms() / 1e3, static_cast<double>(report.last_bytes()) / 1e6),
      report.rootfs_bytes() == 0
          ? std::string()
          : fmt::format(" (root filesystem: {:.1f} MB ahead in {:.1f} s, {:.1f} MB in the stop)",
                        static_cast<double>(report.rootfs_bytes()) / 1e6, report.rootfs_ms() / 1e3,
                        static_cast<double>(report.rootfs_last_bytes()) / 1e6),
      of_machine(report));
}

// A group of one program is printed as that program alone.
template <typename Group>
void print_json(const Group& group) {
  const bool alone = group.programs_size() == 1;
  fmt::print("{}\n", (alone ? to_json(group.programs(0)) : to_json(group)).dump(2));
}

void print(const v1::GroupReport& group, bool json) {
  for (const auto& host : group.silent()) {
    fmt::print(stderr, "ferry: {} does not answer: programs of the job there have not moved\n",
               host);
  }
  if (json && group.programs_size() > 1) {
    auto report = to_json(group);
    report.erase("timeline");  // it has a file of its own
    fmt::print("{}\n", report.dump(2));
    return;
  }
  if (json) return print_json(group);
  for (const auto& report : group.programs()) print(report);
  if (group.programs_size() == 1) return;
  fmt::print("{} programs moved together: blackout {:.1f} ms\n", group.programs_size(),
             group.blackout_ms());
}

void print(const v1::GroupPlan& group, bool json) {
  if (json) return print_json(group);
  for (const auto& plan : group.programs()) {
    fmt::print(
        "{} could move {} -> {}: {}{}, {:.1f} MB of memory{}, a blackout of {}less than {:.0f} "
        "ms\n",
        plan.program(), plan.from(), plan.to(), counted(plan.qps(), "QP"),
        plan.standard_peers() == 0
            ? std::string()
            : fmt::format(" ({})", counted(plan.standard_peers(), "standard peer")),
        static_cast<double>(plan.memory_bytes()) / 1e6, plan.copies_ahead() ? ", copied ahead" : "",
        plan.expected_ms() > 0
            ? fmt::format("about {:.0f} ms ({}), ", plan.expected_ms(),
                          plan.measured_moves() == 0
                              ? std::string("a guess")
                              : "as in " + counted(plan.measured_moves(), "earlier move"))
            : std::string(),
        plan.blackout_ms());
  }
}

// "copy ahead, round 3: 1241 MB sent, 12 MB left, 53 MB/s written, blackout about 410 ms"
std::string phase_of(const v1::MoveProgress& progress) {
  const auto mega = [](double bytes) { return bytes / 1e6; };
  if (progress.has_copy_rootfs()) {
    return fmt::format("{}: {:.0f} of about {:.0f} MB", progress.phase(),
                       mega(static_cast<double>(progress.copy_rootfs().sent_bytes())),
                       mega(static_cast<double>(progress.copy_rootfs().total_bytes())));
  }
  if (!progress.has_copy_ahead()) return progress.phase();
  const auto& ahead = progress.copy_ahead();
  return fmt::format(
      "{}, round {}: {:.0f} MB sent, {:.1f} MB left, {:.0f} MB/s written, blackout about {:.0f} ms",
      progress.phase(), ahead.round(), mega(static_cast<double>(ahead.sent_bytes())),
      mega(static_cast<double>(ahead.left_bytes())), mega(ahead.dirty_bytes_per_second()),
      ahead.blackout_ms());
}

// A line of --events.
void print_line(const v1::MoveProgress& progress, const std::string& failure = {}) {
  auto event = to_json(progress);
  event["move_id"] = id_text(progress.move_id());
  print_event(std::move(event), failure);
}

}  // namespace

int move(const v1::MoveRequest& request, bool json, bool events, const std::string& timeline) {
  const std::string& to = request.to();
  if (!timeline.empty()) need_place_for_timeline(timeline);
  for (const auto& program : request.programs()) {
    if (printable(program) != program) {
      throw Failure("such a name cannot be passed on; give the program's pid, from ferry ps");
    }
  }
  if (printable(to) != to) throw Failure("that is no name of a host; give its address");
  std::optional<Interrupts> interrupts;
  if (!request.dry_run()) {
    interrupts.emplace("move", [](std::uint64_t id, v1::CancelRequest* cancelled) {
      cancelled->add_move_ids(id);
    });
  }
  LocalFerryd ferryd;
  const auto reader = ferryd->Move(ferryd.context(), request);
  LiveLine line(!events);
  v1::MoveEvent event;
  Timeline spans;
  std::map<std::string, std::string> phases;  // by program
  const auto progress = [&] {
    std::string text;
    for (const auto& [program, phase] : phases) {
      text += (text.empty() ? "" : ", ") + program + ": " + phase;
    }
    return text;
  };
  while (reader->Read(&event)) {
    if (event.has_progress()) {
      phases[event.progress().program()] = phase_of(event.progress());
      if (interrupts) interrupts->begun(event.progress().move_id());
      if (events) print_line(event.progress());
      line.show(fmt::format("moving to {}: {} ...", to, progress()));
    }
    if (event.has_plan()) print(event.plan(), json);
    if (event.has_report()) {
      line.clear();
      print(event.report(), json);
      spans = event.report().timeline();
    }
  }
  const auto status = reader->Finish();
  if (events) {
    v1::MoveProgress end;
    end.set_phase(!status.ok() ? "failed" : request.dry_run() ? "checked" : "moved");
    print_line(end, one_line(status.error_message()));
  }
  line.clear();
  if (status.error_code() == grpc::UNAVAILABLE && !phases.empty()) {
    throw Failure(
        fmt::format("ferryd ended in the middle of a move ({}); start it, then see: ferry ps, here "
                    "and on {}",
                    progress(), to));
  }
  throw_unless_ok(status);
  try {
    if (!timeline.empty()) write_timeline(timeline, spans);
  } catch (const Failure& failure) {
    throw Failure(
        fmt::format("it has moved to {}, but its timeline is lost: {}", to, failure.what()));
  }
  return 0;
}

int cancel(const std::vector<std::string>& programs) {
  v1::CancelRequest request;
  request.mutable_programs()->Assign(programs.begin(), programs.end());
  cancel(request);
  return 0;
}

}  // namespace ferry::cli
