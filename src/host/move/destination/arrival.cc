#include "host/move/destination/arrival.h"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 forgets that C++ includes it
}

#include "base/failure.h"
#include "base/log.h"
#include "ferry.pb.h"
#include "host/image/late_pages.h"
#include "host/move/destination/device_choice.h"
#include "host/move/slots_message.h"
#include "host/peers/this_host.h"
#include "host/proc/network_namespace.h"
#include "host/proc/process_tree.h"
#include "host/proc/silence.h"
#include "host/proc/subprocess.h"
#include "host/standin/slots.h"
#include "host/standin/whereabouts.h"
#include "host/units/criu_runner.h"
#include "host/units/tty_image.h"
#include "precopy/left_out_file.h"
#include "precopy/pagemap_image.h"

namespace ferry::host {
namespace {

using State = ArrivalGroup::State;

constexpr auto kRemainsLimit = std::chrono::seconds(3);  // for a failed CRIU's program to go on
constexpr auto kUndoLimit = std::chrono::seconds(10);    // for CRIU to undo what is held
constexpr auto kFillLimit = std::chrono::seconds(10);    // for CRIU to ask for the pages
constexpr int kGlanceMs = 200;                           // between looks at ThisHost::stopping

// A process of a checkpoint may have ended before, and wait for its parent to notice.
std::vector<pid_t> living_of(const std::vector<pid_t>& tree) {
  std::vector<pid_t> living;
  std::copy_if(tree.begin(), tree.end(), std::back_inserter(living), is_alive);
  return living;
}

Processes processes_of(const std::vector<pid_t>& tree) {
  Processes processes;
  for (const pid_t pid : tree) processes.emplace(pid, start_time(pid));
  return processes;
}

}  // namespace

Arrival::Arrival(const ThisHost& host, DecisionLog& decisions, Whereabouts& whereabouts,
                 const ImageRoom& room, ImageReceiver* images, CriuRunner& criu, Accounts& accounts,
                 std::shared_ptr<ArrivalGroup> group, std::shared_ptr<const Unit> unit,
                 const v1::PrepareRequest& request)
    : host_(host),
      decisions_(decisions),
      whereabouts_(whereabouts),
      room_(room),
      receiver_(images),
      criu_runner_(criu),
      accounts_(accounts),
      group_(std::move(group)),
      move_id_(request.move_id()),
      group_id_(request.group().id()),
      index_(request.group().program()),
      program_(request.program()),
      unit_(std::move(unit)),
      netns_(unit_->netns()),
      images_(room.folder_of(request.move_id())),
      mutex_(group_->mutex),
      changed_(group_->changed) {
  for (const auto pid : request.inner_pids()) processes_.emplace_back().inner_pid = pid;
  for (const auto& chosen : request.chosen_devices()) devices_[chosen.name()] = chosen.there();
  try {
    std::error_code error;
    std::filesystem::create_directories(images_, error);
    if (error) throw Failure(fmt::format("cannot make {}: {}", images_, error.message()));
    std::filesystem::permissions(images_, std::filesystem::perms::owner_all, error);
    for (const auto& message : request.kept()) {
      const auto kept = from_message(message);
      auto bound = bind_same_slots(netns_, kept.netdev, kept.slots);
      std::move(bound.begin(), bound.end(), std::back_inserter(reserved_));
    }
    if (request.copy_ahead()) memory_.emplace(room_.available());
    if (const auto rootfs = unit_->copied_rootfs()) {
      rootfs_.emplace(host_.rootfs_helper, RootfsHelper::Task::kUnpack, rootfs->folder,
                      images_ + "/rootfs.out");
    }
    token_ = receiver_->expect(images_, room_.available(), from(), memory_ ? &*memory_ : nullptr,
                               rootfs_ ? &*rootfs_ : nullptr);
    receiving_ = true;
    group_->join(*this);
    tell_begin();
  } catch (const Failure&) {
    clean_up();
    throw;
  }
}

Arrival::Arrival(const ThisHost& host, DecisionLog& decisions, Whereabouts& whereabouts,
                 const ImageRoom& room, ImageReceiver* images, CriuRunner& criu, Accounts& accounts,
                 std::shared_ptr<ArrivalGroup> group, std::shared_ptr<const Unit> unit,
                 std::uint64_t move_id, const Held& held)
    : host_(host),
      decisions_(decisions),
      whereabouts_(whereabouts),
      room_(room),
      receiver_(images),
      criu_runner_(criu),
      accounts_(accounts),
      group_(std::move(group)),
      move_id_(move_id),
      group_id_(0),
      index_(0),
      program_(held.program),
      unit_(std::move(unit)),
      netns_(unit_->netns()),
      images_(room.folder_of(move_id)),
      mutex_(group_->mutex),
      changed_(group_->changed),
      criu_ended_(true),
      root_(held.root),
      started_(held.started) {
  std::vector<rnic::Slot*> slots;
  for (const auto& process : held.processes) {
    Process& added = processes_.emplace_back();
    added.inner_pid = process.place.inner_pid;
    if (start_time(process.pid) == process.started) {
      tree_.push_back(process.pid);
      added.pid = process.pid;
    }
    added.contexts = process.place.contexts;
    for (auto& context : added.contexts) {
      for (auto& slot : context.slots) slots.push_back(&slot);
    }
  }
  goes_on_ = processes_.empty();
  is_taken_up_ = true;
  started_then_ = processes_of(tree_);
  if (start_time(root_) == held.started) {
    started_then_.merge(processes_of(process_tree(root_)));
    // Slots that cannot be opened: as a rule the program has them already.
    reopen_slots(held.netns, slots);
    report_failure(
        [&] { unit_->correct(Unit::State::kRestoring, Unit::State::kRunning, root_, {}); });
    if (is_checkpointed()) NetworkRules::end(root_, NetworkRules::Effect::kSilence);
  }
  group_->take_up(*this);
  criu_ = std::thread([this] {
    if (processes_.empty() && start_time(root_) == started_) tell_here();
    watch_by_pidfd();
  });
}

Arrival::~Arrival() {
  abort("ferryd ends");
  group_->leave(*this);
  if (criu_.joinable()) criu_.join();
  for (auto& process : processes_) close_slots(process.contexts);
  close_slots(reserved_);
}

// The device that was tried for the program's device `there`, which the program may have opened since.
std::string Arrival::device_here(const std::string& there) const {
  const auto found = devices_.find(there);
  if (found == devices_.end()) {
    throw Failure(fmt::format("'{}' has opened {} since {} has looked for such a device; try again",
                              program_, printable(there), host_.name));
  }
  need_device(found->second);
  return found->second;
}

// With mutex_. Takes the slots that were reserved, and binds others for the rest.
ContextSlots Arrival::bind_context(const ContextSlots& wanted) {
  ContextSlots bound{wanted.netdev};
  if (!wanted.device_behind.empty()) {
    bound.device_behind = device_here(wanted.device_behind);
    bound.names = wanted.names;
  }
  try {
    for (const auto& slot : wanted.slots) {
      const auto reserved =
          std::find_if(reserved_.begin(), reserved_.end(),
                       [&](const rnic::Slot& held) { return held.local == slot.local; });
      if (reserved == reserved_.end()) {
        auto other = bind_slots(netns_, wanted.netdev, {slot});
        bound.slots.push_back(std::move(other.front()));
        continue;
      }
      reserved->origin = slot.origin;
      reserved->epoch = slot.epoch;
      bound.slots.push_back(std::move(*reserved));
      reserved_.erase(reserved);
    }
  } catch (const Failure&) {
    close_slots(bound.slots);
    throw;
  }
  return bound;
}

std::vector<ProcessSlots> Arrival::bind_all(const std::vector<ProcessSlots>& wanted) {
  std::vector<ProcessSlots> places;
  for (const auto& place : wanted) {
    std::lock_guard lock(mutex_);
    if (group_->state(index_) != State::kPrepared) throw Failure(group_->failure());
    const auto process =
        std::find_if(processes_.begin(), processes_.end(),
                     [&](const Process& entry) { return entry.inner_pid == place.inner_pid; });
    if (process == processes_.end() || !process->contexts.empty()) {
      throw Failure(fmt::format("process {} is not expected here", place.inner_pid));
    }
    if (is_checkpointed()) {
      process->contexts = place.contexts;
      continue;
    }
    for (const auto& context : place.contexts) {
      process->contexts.push_back(bind_context(context));
    }
    places.push_back({place.inner_pid, process->contexts});
  }
  return places;
}

// With mutex_. The runtime has made the network: binds the sockets that bind() was asked for.
void Arrival::bind_late(pid_t root) {
  netns_ = network_of(root);
  for (auto& process : processes_) {
    for (auto& context : process.contexts) context = bind_context(context);
  }
}

void Arrival::place_log() {
  const std::string came = images_ + "/" + kContainerLog, log = unit_->log();
  std::error_code error;
  if (log.empty() || !std::filesystem::exists(came, error)) return;
  std::filesystem::rename(came, log, error);
  if (error) {
    error.clear();
    std::filesystem::copy_file(came, log, std::filesystem::copy_options::overwrite_existing, error);
  }
  if (error) throw Failure(fmt::format("cannot write {}: {}", log, error.message()));
}

void Arrival::redirect(const Redirection& stdio) {
  for (const auto& stream : stdio.streams) {
    stream_ends_.push_back({stream.id, end_for(stream, stdio.file)});
  }
  const bool has_terminal = std::any_of(
      stdio.streams.begin(), stdio.streams.end(),
      [](const OuterStream& stream) { return stream.kind == Outward::Kind::kTerminal; });
  if (has_terminal) forget_sessions_of_terminals(images_);
}

std::vector<ProcessSlots> Arrival::restore_here(std::chrono::milliseconds limit,
                                                const Redirection& stdio) {
  const auto deadline = std::chrono::steady_clock::now() + std::min(limit, host_.limits.restore);
  image_bytes_ =
      receiver_->wait(token_, static_cast<int>(std::min(limit, host_.limits.transfer).count()))
          .stream_bytes;
  rootfs_.reset();
  place_log();
  redirect(stdio);
  std::unique_lock filling(filling_);
  std::unique_lock lock(mutex_);
  if (!group_->happened(index_, ArrivalGroup::Event::kTransferred)) {
    throw Failure(group_->failure());
  }
  whole_ = std::chrono::steady_clock::now();
  timeline_.add({kFerrydLane, "the image is whole", whole_, whole_});
  if (memory_) {
    precopy::let_criu_restore(images_);
    pages_.emplace(images_, *memory_,
                   group_->has_source() ? precopy::read_left_out(images_, memory_->bytes())
                                        : memory_->pages());
  }
  filling.unlock();
  if (group_->next(index_) == ArrivalGroup::Action::kRestore) {
    criu_ = std::thread([this] { run_criu(); });
  }
  const auto has_ended = [this] { return group_->state(index_) != State::kRestoring; };
  if (!changed_.wait_until(lock, deadline, has_ended)) throw Failure("criu restore does not end");
  if (!changed_.wait_until(lock, deadline, [this] { return !group_->awaits_others(); })) {
    throw Failure("the programs of other hosts do not arrive");
  }
  if (group_->state(index_) == State::kUndoing || group_->state(index_) == State::kUndone) {
    throw Failure(fmt::format("cannot restore '{}': {}", program_,
                              error_.empty() ? group_->failure() : error_));
  }
  std::vector<ProcessSlots> places;
  if (!is_checkpointed()) return places;
  for (const auto& process : processes_) places.push_back({process.inner_pid, process.contexts});
  return places;
}

void Arrival::run_criu() {
  CriuRunner::Restore restore;
  restore.images = images_;
  restore.move_id = move_id_;
  restore.without_memory = memory_.has_value();
  restore.tells_all = tells_timeline_;
  restore.restored = [this](pid_t root) { return action(kPostRestore, root); };
  for (const auto& end : stream_ends_) {
    restore.inherited.push_back({end.id, end.descriptor.get()});
  }
  std::string error;
  {
    const auto step = timeline_.step(kCriuLane, "criu restore");
    error = unit_->restore(criu_runner_, std::move(restore), &criu_pid_);
  }
  add_criu_log();
  stream_ends_.clear();  // the program has them now
  {
    std::lock_guard lock(filling_);
    pages_.reset();
    memory_.reset();
  }
  std::string reason;
  {
    std::lock_guard lock(mutex_);
    criu_ended_ = true;
    if (error_.empty()) error_ = error.empty() ? "criu restore ended too early" : error;
    reason = fmt::format("cannot go on with '{}': {}", program_, error_);
  }
  group_->lost(reason);
  {
    std::unique_lock lock(mutex_);
    group_->wait_until_settled(lock, index_);
    if (group_->state(index_) != State::kHere) return;
  }
  if (!error.empty()) {
    log::error("'{}' failed after its move was committed: {}", program_, error);
    end_remains();
    v1::WatchEvent event;
    event.set_failed(error);
    push(std::move(event));
    tell_lost(error);
  } else if (processes_.empty()) {
    all_go_on();
  } else {
    tell_timeline();
  }
  watch_program();
}

// CRIU failed after the commit and left processes behind. Either they go on all the same, or they
// never will: then they are killed, because watch_program() would wait for them in vain. Processes
// without RDMA are killed too: nobody knows whether they go on.
void Arrival::end_remains() {
  std::unique_lock lock(mutex_);
  if (!is_checkpointed()) adopt_child(root_);
  const bool goes_on = !processes_.empty() && changed_.wait_for(lock, kRemainsLimit, [this] {
    return std::all_of(processes_.begin(), processes_.end(),
                       [](const Process& process) { return process.back; });
  });
  if (!goes_on) ::kill(root_, SIGKILL);
}

// The program is not a child of this ferryd: somebody else learns how it ends.
void Arrival::watch_by_pidfd() {
  const UniqueFd program(::pidfd_open(root_, 0));
  pollfd end{program.get(), POLLIN, 0};
  while (program && start_time(root_) == started_ && ::poll(&end, 1, kGlanceMs) <= 0) {
    if (host_.stopping) return;
  }
  program_ended();
}

// Waits like the program's parent until the program ends, or is killed because it has moved on.
void Arrival::watch_program() {
  receiver_->cancel(token_);
  std::error_code ignored;
  std::filesystem::remove_all(images_, ignored);
  report_failure([&] { unit_->settle(root_); });
  if (is_checkpointed()) return watch_by_pidfd();
  const int status = wait_for(root_);
  {
    std::lock_guard lock(mutex_);
    status_ = status;
  }
  bool ended_here = false;
  report_failure([&] { ended_here = unit_->end(status); });
  if (ended_here) {
    log::info("'{}' (process {}) has ended with status {}", program_, root_, status);
  }
  program_ended();
}

void Arrival::program_ended() {
  tell_lost("it ended before it went on");
  for (const auto& process : processes_) {
    for (const auto& context : process.contexts) whereabouts_.ended(context.slots);
  }
  decisions_.over(move_id_, Side::kDestination);
  std::lock_guard lock(mutex_);
  group_->happened(index_, ArrivalGroup::Event::kEnded);
}

// Writes to the journal what the next ferryd needs if the move is committed. Throws Failure.
void Arrival::note_held(pid_t root, const std::vector<pid_t>& tree) {
  Held held{program_,
            from() + "@" + group_->source(index_).address,
            {},
            {},
            stamp_now().boot,
            root,
            start_time(root),
            {}};
  held.netns = netns_;
  held.instance = unit_->instance();
  for (const pid_t pid : tree) {
    const auto inner_pid = innermost_pid(pid);
    for (auto& process : processes_) {
      if (process.inner_pid != inner_pid) continue;
      process.pid = pid;
      held.processes.push_back({pid, start_time(pid), 0, {process.inner_pid, process.contexts}});
    }
  }
  decisions_.note(Journal::held(move_id_, Side::kDestination, held));
}

int Arrival::action(const std::string& name, pid_t root) {
  if (name != kPostRestore) return 0;
  const auto step = timeline_.step(kScriptLane, kPostRestore);
  auto tree = process_tree(root);  // all is frozen: no process comes or goes
  const auto living = living_of(tree);
  const std::string lacks = fill(root, tree);
  std::unique_lock lock(mutex_);
  if (is_committed()) return 0;  // by a former ferryd, which could not answer any more
  if (group_->state(index_) == State::kRestoring) {
    if (error_.empty()) error_ = lacks;
    if (error_.empty()) error_ = hold(root, std::move(tree), living);
    if (!error_.empty()) return 1;
  } else if (group_->state(index_) != State::kHeld || root != root_) {
    return 1;
  }
  const int answer = answer_to_criu(lock);
  if (answer == 0) adopt_child(root_);
  return answer;
}

// With the lock. Waits for the decision: 0, 1, or EAGAIN when this ferryd ends, and the next one
// knows.
int Arrival::answer_to_criu(std::unique_lock<std::mutex>& lock) {
  if (!group_->wait_until_settled(lock, index_, unit_->patience())) {
    const std::string reason = fmt::format("{} does not wait any longer", unit_->kind());
    lock.unlock();
    note_failure(reason);
    group_->lost(reason);
    lock.lock();
    group_->wait_until_settled(lock, index_);
  }
  if (!group_->decision().decided()) return EAGAIN;
  return is_committed() ? 0 : 1;
}

void Arrival::need_restorable() const {
  std::lock_guard lock(mutex_);
  if (group_->state(index_) == State::kRestoring) return;
  throw Failure(fmt::format("'{}' cannot go on from this checkpoint: {}", program_,
                            is_committed() ? "it was restored already" : group_->failure()));
}

int Arrival::restored(pid_t pid) {
  std::unique_lock lock(mutex_);
  if (is_committed()) return 0;
  int answer = 1;
  if (group_->state(index_) == State::kRestoring) {
    // The first process: all are there, and none runs.
    const auto tree = process_tree(pid);
    if (error_.empty()) error_ = hold(pid, tree, living_of(tree));
    if (error_.empty()) answer = answer_to_criu(lock);
  } else if (group_->state(index_) == State::kHeld &&
             std::count(tree_.begin(), tree_.end(), pid) > 0) {
    answer = answer_to_criu(lock);
  }
  lock.unlock();
  // Its TCP connections may go on at the source.
  if (answer == 1) silence(pid);
  return answer;
}

// With mutex_. Gives an empty string, or what failed.
std::string Arrival::hold(pid_t root, std::vector<pid_t> tree, std::vector<pid_t> living) {
  try {
    if (is_checkpointed()) {
      silence_.emplace(root, NetworkRules::Effect::kSilence);
      bind_late(root);
    }
    note_held(root, tree);
  } catch (const Failure& failure) {
    return failure.what();
  }
  root_ = root;
  started_ = start_time(root);
  held_ = std::chrono::steady_clock::now();
  tree_ = std::move(tree);
  started_then_ = processes_of(tree_);
  living_ = std::move(living);
  group_->happened(index_, ArrivalGroup::Event::kHeld);
  return {};
}

// Puts the memory that was copied ahead into the program, before anything is decided: a part at once, the rest by way
// of ferry-pages, while the program runs. Gives an empty string, or what failed.
std::string Arrival::fill(pid_t root, const std::vector<pid_t>& tree) {
  std::lock_guard lock(filling_);
  try {
    if (!pages_) return {};
    const auto step = timeline_.step(kScriptLane, "memory is filled in");
    const auto later = pages_->fill(kFillLimit);
    if (later.empty()) return {};
    std::map<std::int32_t, pid_t> pids;
    for (const pid_t pid : tree) pids.emplace(innermost_pid(pid).value_or(pid), pid);
    try {
      const auto handed = timeline_.step(kScriptLane, "memory is handed to ferry-pages");
      LatePages(host_).hand_over(root, pids, later, *memory_);
    } catch (const std::exception& failure) {
      log::warn("'{}' gets all of its memory before it goes on: {}", program_, failure.what());
      pages_->fill_now(later);
    }
  } catch (const std::exception& failure) {
    return failure.what();
  }
  return {};
}

void Arrival::stage() const {
  for (const pid_t pid : living_) {
    if (!is_alive(pid)) {
      throw Failure(
          fmt::format("process {} of '{}' was killed before it went on; try again", pid, program_));
    }
  }
  unit_->stage(Unit::State::kRunning, root_, {});
}

void Arrival::connect() {
  if (start_time(root_) != started_) return;  // the program has ended
  {
    std::lock_guard lock(mutex_);
    committed_at_ = std::chrono::steady_clock::now();
    for (const auto& process : processes_) {
      if (group_->has_source()) {
        whereabouts_.arrived(process.pid, process.contexts);
      } else {
        whereabouts_.restarted(process.pid, process.contexts);
      }
    }
  }
  {
    const auto step = timeline_.step(kFerrydLane, "the network is switched");
    if (unit_->needs_criu()) {
      report_failure([&] { unit_->publish(); });
      report_failure([&] { unit_->switch_network("activate"); });
    } else if (!is_taken_up_) {
      // What was taken up has been corrected: it has run since, and what has become of it is no matter of this move.
      report_failure([&] { unit_->switch_network("activate"); });
      report_failure([&] { unit_->publish(); });
    }
  }
  silence_.reset();
  if (!netns_.empty()) announcer_.emplace(netns_);
}

// Called after the abort.
void Arrival::undo(const std::string& reason) {
  tell_undone(reason);
  if (criu_.joinable()) {
    end_criu();
    criu_.join();
  }
  clean_up();
}

// A CRIU that waits in its post-restore action kills what it has restored. A CRIU that is somewhere
// else may hang there: it is killed, with all that it has restored.
void Arrival::end_criu() {
  std::unique_lock lock(mutex_);
  if (root_ != 0 && changed_.wait_for(lock, kUndoLimit, [this] { return criu_ended_; })) return;
  // CRIU may be about to be started.
  while (!criu_ended_ && criu_pid_ == 0) changed_.wait_for(lock, std::chrono::milliseconds(10));
  if (!criu_ended_) kill_tree(criu_pid_);
}

void Arrival::clean_up() {
  if (receiving_) receiver_->cancel(token_);
  receiving_ = false;
  rootfs_.reset();
  memory_.reset();
  for (auto& process : processes_) close_slots(process.contexts);
  close_slots(reserved_);
  report_failure([&] { unit_->switch_network("release"); });
  report_failure([&] { unit_->forget(); });
  silence_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(images_, ignored);
  decisions_.forget(move_id_, Side::kDestination);
}

std::optional<ResumeSlots> Arrival::wake(pid_t inner_pid) {
  std::lock_guard lock(mutex_);
  if (!is_committed()) return std::nullopt;
  for (auto& process : processes_) {
    if (process.inner_pid != inner_pid || process.back) continue;
    for (auto& context : process.contexts) {
      const bool all = std::all_of(context.slots.begin(), context.slots.end(),
                                   [](const auto& slot) { return slot.descriptor >= 0; });
      if (all) continue;
      // While there was no ferryd another process took a slot: the program gets another slot.
      try {
        close_slots(context.slots);
        context.slots = bind_slots(unit_->netns(), context.netdev, context.slots);
      } catch (const Failure& failure) {
        log::error("'{}' cannot go on yet: {}", program_, failure.what());
        return std::nullopt;
      }
    }
    auto duplicates = duplicates_of(process.contexts);
    if (!duplicates) return std::nullopt;
    return ResumeSlots{false, std::move(*duplicates)};
  }
  return std::nullopt;
}

void Arrival::resumed(pid_t inner_pid, const agent::Resumed& resumed) {
  {
    std::lock_guard lock(mutex_);
    bool all = true;
    for (auto& process : processes_) {
      if (process.inner_pid == inner_pid) {
        close_slots(process.contexts);
        process.back = true;
        process.rdma_ns = resumed.attach_ns + resumed.resume_ns;
        const auto now = std::chrono::steady_clock::now();
        timeline_.add({fmt::format("process {}", inner_pid), "RDMA goes on",
                       now - std::chrono::nanoseconds(process.rdma_ns), now});
        changed_.notify_all();
      }
      all = all && process.back;
    }
    if (resumed.error <= 0 && !all) return;
  }
  if (resumed.error <= 0) return all_go_on();
  v1::WatchEvent event;
  event.set_failed(fmt::format("process {} of '{}' cannot use its new sockets: {}", inner_pid,
                               program_, error_text(resumed.error)));
  const std::string failed = event.failed();
  push(std::move(event));
  tell_lost(failed);
}

// With mutex_. Its time is the longest that a process took to attach to its sockets and to resume its QPs.
void Arrival::add_resumed(v1::WatchEvent* event) const {
  auto* resumed = event->mutable_resumed();
  for (const auto& process : processes_) {
    resumed->set_rdma_ns(std::max(resumed->rdma_ns(), process.rdma_ns));
  }
  for (const auto& program : unit_->inner_programs()) {
    auto* added = resumed->add_inner_programs();
    added->set_pid(program.pid);
    added->set_name(program.name);
    added->set_stood_still_ms(program.stood_still_ms);
  }
}

void Arrival::all_go_on() {
  v1::WatchEvent event;
  {
    std::lock_guard lock(mutex_);
    goes_on_ = true;
    add_resumed(&event);
  }
  push(std::move(event));
  tell_here();
  tell_timeline();
}

void Arrival::registered(pid_t inner_pid) {
  {
    std::lock_guard lock(mutex_);
    const auto process =
        std::find_if(processes_.begin(), processes_.end(),
                     [&](const Process& entry) { return entry.inner_pid == inner_pid; });
    if (!is_committed() || process == processes_.end() || process->back) return;
  }
  resumed(inner_pid, {});
}

std::vector<v1::WatchEvent> Arrival::account() const {
  std::lock_guard lock(mutex_);
  std::vector<v1::WatchEvent> events;
  if (is_committed() && goes_on_) add_resumed(&events.emplace_back());
  const auto has_heard = [](const Process& process) { return process.heard; };
  if (std::any_of(processes_.begin(), processes_.end(), has_heard)) {
    sum_up(&events.emplace_back());
    for (const auto& process : processes_) {
      for (const auto qpn : process.known) events.back().mutable_peers_know()->add_qpns(qpn);
    }
  }
  return events;
}

// With mutex_.
void Arrival::sum_up(v1::WatchEvent* event) const {
  auto* sum = event->mutable_peers_know();
  for (const auto& process : processes_) {
    sum->set_remaining(sum->remaining() + process.peers.remaining + (process.heard ? 0 : 1));
    sum->set_retransmitted_packets(sum->retransmitted_packets() +
                                   process.peers.retransmitted_packets);
  }
}

void Arrival::peers_know(pid_t inner_pid, const agent::PeersKnow& peers) {
  v1::WatchEvent event;
  {
    std::lock_guard lock(mutex_);
    for (auto& process : processes_) {
      if (process.inner_pid == inner_pid) {
        process.peers = peers;
        process.known.insert(peers.qpns.begin(), peers.qpns.end());
        process.heard = true;
      }
    }
    sum_up(&event);
    for (const auto qpn : peers.qpns) event.mutable_peers_know()->add_qpns(qpn);
  }
  push(std::move(event));
}

void Arrival::push(v1::WatchEvent event) {
  std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  changed_.notify_all();
}

std::optional<v1::WatchEvent> Arrival::next_event(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [this] { return !events_.empty(); })) return std::nullopt;
  auto event = std::move(events_.front());
  events_.pop_front();
  return event;
}

bool Arrival::has_process(pid_t pid) const {
  std::lock_guard lock(mutex_);
  return std::count(tree_.begin(), tree_.end(), pid) > 0;
}

bool Arrival::is_held() const {
  std::lock_guard lock(mutex_);
  return group_->state(index_) == State::kHeld;
}

bool Arrival::is_over() const {
  std::lock_guard lock(mutex_);
  return group_->state(index_) == State::kOver || group_->state(index_) == State::kUndone;
}

pid_t Arrival::root() const {
  std::lock_guard lock(mutex_);
  return root_;
}

std::pair<pid_t, std::uint64_t> Arrival::root_process() const {
  std::lock_guard lock(mutex_);
  return {root_, started_};
}

Processes Arrival::processes() const {
  std::lock_guard lock(mutex_);
  return started_then_;
}

std::optional<Ending> Arrival::ending() const {
  std::lock_guard lock(mutex_);
  if (group_->state(index_) != State::kOver) return std::nullopt;
  Ending ending{{root_, started_}, started_then_, status_, {}};
  for (const auto& process : processes_) {
    for (const auto& context : process.contexts) {
      for (const auto& slot : context.slots) ending.origins.push_back(slot.origin);
    }
  }
  return ending;
}

}  // namespace ferry::host
