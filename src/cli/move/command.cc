#include "cli/move/command.h"

#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "cli/checkpoint/checkpoint.h"
#include "cli/move/move.h"
#include "ferry.pb.h"
#include "host/image/copy_limits.h"

namespace ferry::cli {
namespace {

std::string complaint_of_file(const std::string& file) {
  return file.starts_with('/') ? std::string() : "has to begin with /";
}

std::optional<double> number_in(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

std::string complaint_of_milliseconds(const std::string& text) {
  const bool is_good = number_in(text).value_or(0) > 0;
  return is_good ? std::string() : "'" + text + "' is no number of milliseconds above 0";
}

std::string complaint_of_rate(const std::string& text) {
  const double rate = number_in(text).value_or(0) * 1e6;
  const bool is_good = rate >= host::CopyLimits::kLeastRate && rate <= host::CopyLimits::kMostRate;
  if (is_good) return {};
  return "'" + text + "' is no number of megabytes a second from 1 to 1000000";
}

struct MoveOptions {
  std::vector<std::string> programs, from, to_devices;
  std::string job, user, to, stdio, timeline;
  bool abort = false, force = false, runc = false, vm = false, rootfs = false, always = false,
       never = false;
  bool dry_run = false, json = false, events = false;
  double max_blackout = 0, ahead_rate = 0;
};

int run_move(const MoveOptions& options) {
  if (options.programs.empty() && (options.job.empty() || options.abort)) {
    throw Failure("PROGRAM or --job is required; see: ferry move --help");
  }
  if (options.abort) return cancel(options.programs);
  if (options.to.empty()) throw Failure("--to is required; see: ferry move --help");
  using Request = v1::MoveRequest;
  Request request;
  request.mutable_programs()->Assign(options.programs.begin(), options.programs.end());
  request.mutable_from()->Assign(options.from.begin(), options.from.end());
  request.set_job(options.job);
  if (!options.user.empty()) request.set_user(user_number(options.user));
  request.set_to(options.to);
  request.set_force(options.force);
  if (options.runc) request.set_runtime("runc");
  if (options.vm) request.set_runtime("vm");
  request.set_copy_rootfs(options.rootfs);
  request.set_stdio(options.stdio);
  request.set_copy_ahead(options.always  ? Request::ALWAYS
                         : options.never ? Request::NEVER
                                         : Request::BY_SIZE);
  request.set_max_blackout_ms(options.max_blackout);
  request.set_ahead_rate(options.ahead_rate * 1e6);
  request.set_dry_run(options.dry_run);
  request.mutable_to_devices()->Assign(options.to_devices.begin(), options.to_devices.end());
  request.set_timeline(!options.timeline.empty());
  return move(request, options.json, options.events, options.timeline);
}

}  // namespace

void add_move(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<MoveOptions>();
  auto* move = app.add_subcommand("move", "moves running programs to another host: all, or none");
  auto* programs = move->add_option("PROGRAM", options->programs, "container, program name or pid");
  move->add_option("--from", options->from,
                   "hosts where the programs are, which move as one; where several have one of a "
                   "name, say PROGRAM@HOST (default: this host)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("HOST,...");
  auto* job = move->add_option("--job", options->job,
                               "all programs of the job that use RDMA, on all hosts that ferryd "
                               "knows (ferry ps --job), or those of --from")
                  ->excludes(programs)
                  ->type_name("NAME");
  move->add_option("--user", options->user,
                   "whose job it is, by name or number (default: the only one who has such a job)")
      ->needs(job)
      ->type_name("USER");
  move->add_option("--to", options->to,
                   "address or name of the host; its ferryd listens on port 4780 unless given")
      ->type_name("HOST[:PORT]");
  move->add_flag("--abort", options->abort, "give up the move that is under way; so does Ctrl-C");
  move->add_flag("--force", options->force,
                 "also if a peer that speaks no migration messages may give up meanwhile");
  auto* runc = move->add_flag("--runc", options->runc, "these are ids of runc's containers");
  move->add_flag("--vm", options->vm, "these are virtual machines (ferry vm ps)")->excludes(runc);
  move->add_flag("--copy-rootfs", options->rootfs,
                 "copy the root filesystem of a container of runc's as well");
  move->add_option("--stdio", options->stdio,
                   "file there that output is appended to, of a program without a container that "
                   "has a terminal, pipes or systemd's journal for its input and output, or of a "
                   "container of runc's (default: stdio.log in its bundle)")
      ->check(complaint_of_file)
      ->type_name("FILE");
  move->add_option("--to-device", options->to_devices,
                   "RDMA device there with which a program with a device of the kernel goes on; "
                   "OLD=NEW for a program with several (default: the one of the same name, or the "
                   "only one that is active)")
      ->take_all()
      ->expected(1)
      ->type_name("[OLD=]NEW");
  auto* ahead = move->add_flag("--copy-ahead", options->always,
                               "send memory while the program runs, however little it has");
  auto* not_ahead = move->add_flag("--no-copy-ahead", options->never,
                                   "send memory while the program stands still")
                        ->excludes(ahead);
  move->add_option("--max-blackout", options->max_blackout,
                   "milliseconds that the program may stand still: memory is sent ahead until it "
                   "will be so short, and the move is given up when it will not be")
      ->check(complaint_of_milliseconds)
      ->excludes(not_ahead)
      ->type_name("MS");
  move->add_option("--ahead-rate", options->ahead_rate,
                   "megabytes of memory a second that are sent ahead at most (default: what "
                   "programs of both hosts "
                   "leave of the processors, and a little more)")
      ->check(complaint_of_rate)
      ->excludes(not_ahead)
      ->type_name("MB");
  auto* timeline = move->add_option("--timeline", options->timeline,
                                    "write what both hosts do, and when, to a file that Perfetto "
                                    "(ui.perfetto.dev) shows; takes a few milliseconds")
                       ->type_name("FILE");
  move->add_flag("--dry-run", options->dry_run,
                 "only look, here and there, whether they could move, and for how long they would "
                 "stand still")
      ->excludes(timeline);
  move->add_flag("--json", options->json, "print the report as JSON");
  move->add_flag("--events", options->events,
                 "print each step, and how the move ended, as a line of JSON on stderr");
  commands.add(move, [options] { return run_move(*options); });
}

}  // namespace ferry::cli
