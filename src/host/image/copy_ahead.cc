#include "host/image/copy_ahead.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "host/proc/process_tree.h"
#include "precopy/brake.h"

namespace ferry::host {
namespace {

using precopy::kPage;
using precopy::PageRanges;

constexpr std::chrono::seconds kTrackLimit{5};  // for a program to give its userfaultfd

// Reads pages of another process, also those that it may not read itself. False: not all are there.
bool read_pages(pid_t pid, const PageRanges& pages, std::byte* to) {
  std::vector<iovec> remote;
  for (const auto& [start, end] : pages) {
    remote.push_back({reinterpret_cast<void*>(start), end - start});
  }
  const iovec local{to, pages.bytes()};
  const ssize_t got = ::process_vm_readv(pid, &local, 1, remote.data(), remote.size(), 0);
  if (got == static_cast<ssize_t>(pages.bytes())) return true;
  const UniqueFd memory(::open(fmt::format("/proc/{}/mem", pid).c_str(), O_RDONLY | O_CLOEXEC));
  for (const auto& [start, end] : pages) {
    for (std::uint64_t at = start; at < end;) {
      const ssize_t part = ::pread(memory.get(), to, end - at, static_cast<off_t>(at));
      if (part < 0 && errno == EINTR) continue;
      if (part <= 0) return false;
      at += static_cast<std::uint64_t>(part);
      to += part;
    }
  }
  return true;
}

void make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) return;
  throw Failure(fmt::format("cannot make {}: {}", path, error_text(errno)));
}

// For criu/left_out.cc.
void write_ranges(const std::string& path, const PageRanges& pages) {
  std::vector<std::uint64_t> bounds;
  for (const auto& [start, end] : pages) bounds.insert(bounds.end(), {start, end});
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bounds.data()),
             static_cast<std::streamsize>(bounds.size() * sizeof bounds.front()));
  file.close();
  if (!file) throw Failure("cannot write " + path);
}

}  // namespace

CopyAhead::CopyAhead(ControlServer& control, pid_t root, const Settings& settings)
    : control_(control),
      root_(root),
      pace_(settings.pace),
      sharers_(settings.sharers),
      planner_(settings.planner),
      buffer_(precopy::PageSink::kMostPages * kPage) {}

CopyAhead::~CopyAhead() = default;

CopyAhead::Process::Process(pid_t pid_here)
    : pid(pid_here), inner_pid(innermost_pid(pid).value_or(pid)), started(start_time(pid)) {}

// What is known of the process that has this pid now.
CopyAhead::Process& CopyAhead::process(pid_t pid) {
  const auto found = processes_.find(pid);
  if (found != processes_.end() && found->second.started == start_time(pid)) return found->second;
  processes_.erase(pid);
  return processes_.try_emplace(pid, pid).first->second;
}

// Finds the processes of the tree that can be tracked: they have the library.
void CopyAhead::find_processes() {
  const auto tree = process_tree(root_);
  const auto known = control_.processes();
  for (const pid_t pid : tree) {
    const auto found = processes_.find(pid);
    if (found != processes_.end() && found->second.started == start_time(pid)) continue;
    const bool has_library = std::any_of(known.begin(), known.end(),
                                         [&](const FerryProcess& each) { return each.pid == pid; });
    if (!has_library || precopy::writes_unseen(pid)) continue;
    Process& process = this->process(pid);  // if it cannot be tracked it is not asked again
    try {
      process.tracker =
          std::make_unique<precopy::Tracker>(pid, control_.track(pid, kTrackLimit).release());
    } catch (const Failure& failure) {
      log::warn("{}: its memory is not copied ahead", failure.what());
    }
  }
}

// Sends the pages in frames. `all`: a page that cannot be read is a failure; else it is owed.
std::uint64_t CopyAhead::send(precopy::PageSink& sink, Process& process, const PageRanges& pages,
                              bool all, const BeforeFrame& before_frame) {
  std::uint64_t sent = 0;
  PageRanges frame;
  const auto flush = [&] {
    if (frame.empty()) return;
    if (before_frame) before_frame(std::exchange(untold_, 0));
    if (read_pages(process.pid, frame, buffer_.data())) {
      sink.send_pages(process.inner_pid, frame, {buffer_.data(), frame.bytes()});
      sent += frame.bytes();
      process.sent.add(frame);
      untold_ += frame.bytes();
    } else if (all) {
      throw Failure(fmt::format("cannot read the memory of process {}", process.pid));
    } else {
      process.owed.add(frame);
    }
    frame = {};
  };
  for (const auto& [start, end] : pages) {
    for (std::uint64_t at = start; at < end;) {
      const std::uint64_t room = precopy::PageSink::kMostPages * kPage - frame.bytes();
      const std::uint64_t to = std::min(end, at + room);
      frame.add(at, to);
      at = to;
      if (frame.bytes() == precopy::PageSink::kMostPages * kPage) flush();
    }
  }
  flush();
  sent_ += sent;
  return sent;
}

std::uint64_t CopyAhead::send_round(precopy::PageSink& sink, const BeforeFrame& before_frame) {
  std::uint64_t sent = 0;
  for (auto& [pid, process] : processes_) {
    if (!process.tracker) continue;
    precopy::Tracker::Look look;
    try {
      look = process.tracker->take();
    } catch (const std::exception&) {
      if (is_alive(pid)) throw;
      continue;  // the process has ended
    }
    PageRanges pages = process.owed.within(look.memory);
    pages.add(look.dirty);
    process.owed = {};
    process.sent = process.sent.within(look.memory);
    sink.send_kept(process.inner_pid, look.memory);
    sent += send(sink, process, pages, false, before_frame);
  }
  return sent;
}

// What a round that begins now would send.
std::uint64_t CopyAhead::left_to_copy() const {
  std::uint64_t left = 0;
  for (const auto& [pid, process] : processes_) {
    if (process.tracker && is_alive(pid)) left += process.tracker->look().dirty.bytes();
  }
  return left;
}

void CopyAhead::run(precopy::PageSink& sink, const std::function<void(const Progress&)>& tell,
                    const Copied& copied, const std::function<void()>& go_on) {
  using Clock = std::chrono::steady_clock;
  precopy::Brake brake(pace_, sharers_);
  bool is_full = false;
  std::uint64_t frames = 0, of = 0;  // bytes of those that were sent; and when the round has ended
  const auto before_frame = [&](std::uint64_t bytes) {
    frames += bytes;
    if (copied) copied(frames, of);
    go_on();
    if (is_full) return;
    brake.after(bytes, go_on);
    sink.set_floor(brake.pace().floor());
  };
  for (;;) {
    go_on();
    sink.set_floor(is_full ? 1 : brake.pace().floor());
    find_processes();
    precopy::Round round;
    const auto began = Clock::now();
    const auto waited = brake.waited();
    if (copied && of == 0) of = left_to_copy();
    round.sent = send_round(sink, before_frame);
    const auto waited_there = sink.end_round();
    round.time = Clock::now() - began;
    if (!is_full) {
      const bool has_waited_there = waited_there > std::chrono::nanoseconds(0);
      round.waited = std::min<std::chrono::nanoseconds>(
          round.time, std::max(brake.waited() - waited, waited_there));
      round.can_be_faster =
          brake.pace().is_slow() || (has_waited_there && brake.pace().floor() < 1);
    }
    round.left = left_to_copy();
    if (copied) {
      copied(sent_, sent_);
      of = sent_ + round.left;
    }
    for (const pid_t pid : process_tree(root_)) {
      const auto found = processes_.find(pid);
      if (found != processes_.end() && found->second.tracker) continue;
      round.left += resident_bytes(pid);  // all of them are sent in the stop
    }
    const auto next = planner_.after(round);
    if (next == precopy::Planner::Next::kFasterRound) brake.pace().raise();
    is_full = next == precopy::Planner::Next::kFullRound;
    sent_ahead_ = sent_;
    tell({planner_.rounds(), sent_, round.left, planner_.dirty_rate(), planner_.rate(),
          planner_.blackout().count()});
    if (next == precopy::Planner::Next::kStop) return;
    if (next == precopy::Planner::Next::kGiveUp) {
      throw Failure(fmt::format(
          "it would stand still for about {:.0f} ms: it writes {:.0f} MB/s, and {:.0f} "
          "MB/s can be sent; raise --max-blackout",
          planner_.blackout().count(), planner_.dirty_rate() / 1e6, planner_.rate() / 1e6));
    }
  }
}

std::map<std::int32_t, PageRanges> CopyAhead::leave_out(precopy::PageSink& sink,
                                                        const std::string& folder) {
  std::map<std::int32_t, PageRanges> all;
  make_folder(folder);
  for (const pid_t pid : process_tree(root_)) {
    if (!is_alive(pid)) continue;
    Process& process = this->process(pid);
    const bool is_tracked = process.tracker && !precopy::writes_unseen(pid);
    const precopy::Tracker untracked(pid, -1);
    const precopy::Tracker& tracker = is_tracked ? *process.tracker : untracked;
    PageRanges pages = tracker.clean();
    PageRanges there = process.sent.within(pages);
    there.remove(process.owed);
    pages.add(tracker.look().dirty);
    // A restore cannot fill these in later: CRIU dumps them.
    pages.remove(precopy::locked_memory(pid));
    if (pages.empty()) continue;
    process.last = pages;
    process.last.remove(there);
    const PageRanges executable = process.last.within(precopy::executable_memory(pid));
    send(sink, process, executable, true);
    process.last.remove(executable);
    write_ranges(fmt::format("{}/{}", folder, pid), pages);
    all[process.inner_pid] = std::move(pages);
  }
  return all;
}

void CopyAhead::send_last(precopy::PageSink& sink) {
  for (auto& [pid, process] : processes_)
    send(sink, process, std::exchange(process.last, {}), true);
}

}  // namespace ferry::host
