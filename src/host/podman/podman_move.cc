#include "host/podman/podman_move.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include "base/alarm.h"
#include "base/failure.h"
#include "base/log.h"
#include "ferry.pb.h"
#include "host/image/image_room.h"
#include "host/move/settle.h"
#include "host/move/source/image_way.h"
#include "host/move/source/report.h"
#include "host/proc/process_tree.h"
#include "host/standin/standard_peers.h"
#include "host/units/host_network.h"
#include "host/units/obstacles.h"
#include "host/units/unit.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kPause{100};  // between looks and questions
constexpr seconds kExitLimit{10};    // for podman to see that a container has ended
constexpr seconds kPodmanGrace{5};   // from the end of a standstill until podman is killed
constexpr std::size_t kPiece = 1 << 20;

// The path of the FIFO for the archive. The next ferryd has to find it.
std::string fifo_of(const ThisHost& host, std::uint64_t move_id) {
  return fmt::format("{}/podman-{:016x}", host.state_directory, move_id);
}

// Processes that `podman exec` has started are not in the tree of the container: they would not
// move along. One that is over soon, a health check, is no obstacle.
std::string exec_session(const PodmanContainer& container) {
  constexpr milliseconds kSecondLook{500};
  const auto strangers = [&] {
    std::set<pid_t> found;
    for (const pid_t pid : Podman::processes_of(container.id)) found.insert(pid);
    for (const pid_t pid : process_tree(container.pid)) found.erase(pid);
    std::erase_if(found, [](pid_t pid) { return !is_alive(pid); });
    return found;
  };
  const auto first = strangers();
  if (first.empty()) return {};
  std::this_thread::sleep_for(kSecondLook);
  for (const pid_t pid : strangers()) {
    if (!first.contains(pid)) continue;
    return fmt::format(
        "process {} ({}) was started in it by podman exec, and would not move along; let it end",
        pid, program_name(pid).value_or("?"));
  }
  return {};
}

// Opens without waiting for a writer.
UniqueFd open_fifo(const std::string& path) {
  UniqueFd fifo(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (fifo) ::fcntl(fifo.get(), F_SETPIPE_SZ, static_cast<int>(kPiece));
  return fifo;
}

}  // namespace

PodmanMove::PodmanMove(const ThisHost& host, ControlServer& control, DecisionLog& decisions,
                       Custody& custody, const Podman& podman, PodmanContainer container,
                       const std::string& to)
    : host_(host),
      control_(control),
      decisions_(decisions),
      custody_(custody),
      podman_(podman),
      container_(std::move(container)),
      move_id_(new_move_id()),
      peer_(to, host.credentials),
      fifo_(fifo_of(host, move_id_)),
      of_former_(false) {}

PodmanMove::PodmanMove(const ThisHost& host, ControlServer& control, DecisionLog& decisions,
                       Custody& custody, const Podman& podman, std::uint64_t move_id,
                       const Journal::Entry& entry)
    : host_(host),
      control_(control),
      decisions_(decisions),
      custody_(custody),
      podman_(podman),
      move_id_(move_id),
      peer_(Peer::recorded(entry.podman->peer, host.credentials)),
      fifo_(fifo_of(host, move_id_)),
      of_former_(true),
      is_prepared_(true) {
  container_.id = entry.podman->id;
  container_.name = entry.podman->name;
  container_.volumes = entry.podman->volumes;
  if (entry.held) container_.pid = entry.held->root;
  // A restore on this host is on record as well.
  taken_ = entry.record && entry.going && entry.going->host != host.name;
  settler_ = std::thread([this] { settle(); });
}

PodmanMove::~PodmanMove() {
  if (settler_.joinable()) settler_.join();
}

void PodmanMove::tell(const std::string& phase) {
  v1::MoveProgress progress;
  progress.set_program(container_.name);
  progress.set_phase(phase);
  if (progress_) progress_(progress);
}

v1::GroupReport PodmanMove::run(bool force, const Progress& progress) {
  progress_ = progress;
  try {
    tell("check");
    check(force);
    tell("prepare");
    prepare();
    checkpoint();
    tell("restore");
    restore_there();
  } catch (const Failure& failure) {
    if (!is_taken()) {
      try {
        bring_back();
      } catch (const Failure& more) {
        clear_up();
        throw Failure(fmt::format("'{}' was not moved: {}; and it does not go on here: {}",
                                  container_.name, failure.what(), more.what()));
      }
    }
    if (!is_taken()) {
      clear_up();
      throw Failure(fmt::format("'{}' was not moved: {}", container_.name, failure.what()));
    }
    remove_here();
    throw Failure(fmt::format("'{}' is on {} now, but there is no word that it goes on: {}",
                              container_.name, peer_.name(), failure.what()));
  }
  remove_here();
  return report();
}

// --- before the stop

void PodmanMove::check(bool force) {
  const PodmanContainer& container = container_;
  if (container.status == "paused") {
    throw Failure(
        fmt::format("it is paused; let it run to move it: podman unpause {}", container.name));
  }
  if (!container.runs()) {
    throw Failure(fmt::format("it does not run on {}: it is {}", host_.name, container.status));
  }
  if (container.removes_itself) {
    throw Failure(
        "it was started with --rm, and podman would remove it at the checkpoint: nothing could "
        "bring it back; start it without");
  }
  if (!container.pod.empty() || container.network_mode.starts_with("container:")) {
    throw Failure(
        "it shares a network with other containers, of its pod or by --network container:..., "
        "which stay here");
  }
  if (const auto problem = podman_.unusable(); !problem.empty()) throw Failure(problem);
  const auto processes = ferry_processes(control_, container.pid);
  if (processes.empty()) {
    throw Failure(
        "no process in it uses an RDMA device of Ferry's; plain `podman container checkpoint "
        "--export` and `restore --import` will do");
  }
  if (const auto obstacle = find_obstacle(container.pid, OuterStreams::kRuntimes);
      !obstacle.empty()) {
    throw Failure(obstacle);
  }
  if (const auto obstacle = exec_session(container); !obstacle.empty()) throw Failure(obstacle);
  const bool is_on_host = container.network_mode == "host";
  if (is_on_host) {
    if (const auto obstacle = obstacle_on_host_network(container.pid); !obstacle.empty()) {
      throw Failure(obstacle);
    }
  }
  const auto contexts = contexts_of(control_, processes);
  const Peers peers = peers_of(contexts);
  if (!peers.standard.empty() && !force) {
    throw Failure(
        fmt::format("{} speaks no migration messages, and may give up while podman is at "
                    "work; move it with --force all the same",
                    peer_text(peers.standard.front())));
  }
  v1::CheckRequest request;
  request.set_version(host_.version);
  request.set_host(host_.name);
  request.set_program(container.name);
  request.set_resident_bytes(resident_bytes_of_tree(container.pid));
  request.set_image_bytes(request.resident_bytes());
  if (const auto free = podman_.free_disk(); free < request.resident_bytes() + kHeadroom) {
    throw Failure(fmt::format("not enough disk for its checkpoint: {} MiB needed, {} MiB free",
                              (request.resident_bytes() + kHeadroom) >> 20, free >> 20));
  }
  if (is_on_host) {
    std::set<std::string> netdevs;
    for (const auto& context : contexts) netdevs.insert(printable(context.netdev));
    for (const auto& netdev : netdevs) request.add_netdevs(netdev);
  }
  *request.mutable_podman() = described();
  v1::CheckReply reply;
  peer_.call(request, &reply, seconds(30));
  host_there_ = reply.host();
}

v1::PodmanContainer PodmanMove::described() const {
  constexpr std::string_view kPath = "ns:";
  v1::PodmanContainer message;
  message.set_id(container_.id);
  message.set_name(container_.name);
  message.set_image(container_.image);
  message.set_image_name(container_.image_name);
  for (const auto& source : container_.sources) message.add_sources(source);
  for (const auto& network : container_.networks) message.add_networks(network);
  for (const auto& volume : container_.volumes) message.add_volumes(volume);
  if (container_.network_mode.starts_with(kPath)) {
    message.set_netns(container_.network_mode.substr(kPath.size()));
  }
  return message;
}

void PodmanMove::prepare() {
  if (::mkfifo(fifo_.c_str(), 0600) != 0) {
    throw Failure(fmt::format("cannot make {}: {}", fifo_, error_text(errno)));
  }
  v1::PrepareRequest request;
  request.set_move_id(move_id_);
  request.set_program(container_.name);
  request.set_version(host_.version);
  request.set_source(host_.address);
  *request.mutable_podman() = described();
  is_prepared_ = true;  // also when the answer gets lost
  v1::PrepareReply reply;
  peer_.call(request, &reply, seconds(60));
  open_image_way(peer_, reply, host_.credentials, &sender_);
}

// --- the way there

void PodmanMove::checkpoint() {
  decisions_.note(
      Journal::podman(move_id_, Side::kSource,
                      {container_.id, container_.name, peer_.record(), container_.volumes}));
  const auto stopped = [this](const StoppedTree::Timing& timing) {
    {
      std::lock_guard lock(mutex_);
      timing_ = timing;
      stopped_ = Clock::now();
    }
    tell("dump");
  };
  const auto taken = [this] {
    std::lock_guard lock(mutex_);
    restored_ = Clock::now();
    taken_ = true;
    changed_.notify_all();
  };
  custody_.guide({move_id_, container_.pid, stopped, taken});
  tell("stop");
  stopped_it_ = true;
  standstill_.begin(host_.limits.standstill);
  const auto need_time = [this] {
    if (standstill_.is_over()) throw Failure(stood_still(host_.limits.standstill));
  };
  // Then what podman writes is still read to its end, and sent nowhere.
  std::optional<Alarm> over(std::in_place, host_.limits.standstill,
                            [this] { sender_->break_off(); });
  auto podman = std::async(std::launch::async, [this] {
    return podman_.checkpoint(container_, fifo_, host_.limits.standstill + kPodmanGrace);
  });
  std::string broken;
  try {
    stream(podman);
  } catch (const Failure& failure) {
    broken = failure.what();
  }
  const std::string error = podman.get();
  custody_.unguide(move_id_);
  need_time();
  if (!error.empty()) throw Failure(fmt::format("podman container checkpoint: {}", error));
  if (!broken.empty()) throw Failure(broken);
  try {
    image_ = sender_->send({});
  } catch (const Failure&) {
    need_time();
    throw;
  }
  over.reset();
  sender_.reset();
  transferred_ = Clock::now();
}

// Sends what podman writes, as it is written. podman waits for its reader: so all is read, whatever
// becomes of the transfer; then throws Failure.
void PodmanMove::stream(std::future<std::string>& podman) {
  const UniqueFd fifo = open_fifo(fifo_);
  std::string broken = fifo ? std::string() : error_text(errno);
  std::vector<std::byte> piece(kPiece);
  std::size_t filled = 0;
  const auto send = [&] {
    if (filled == 0) return;
    try {
      if (broken.empty()) sender_->send_piece(kPodmanArchive, {piece.data(), filled});
    } catch (const Failure& failure) {
      broken = failure.what();
    }
    filled = 0;
  };
  bool began = false;
  for (bool open = bool(fifo); open;) {
    pollfd readable{fifo.get(), POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(kPause.count())) == 0) {
      // A podman that fails early has never opened the FIFO.
      open = podman.wait_for(seconds(0)) != std::future_status::ready;
      continue;
    }
    const ssize_t size = ::read(fifo.get(), piece.data() + filled, piece.size() - filled);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (size < 0 && broken.empty()) broken = error_text(errno);
    if (size > 0 && !std::exchange(began, true)) {
      dumped_ = Clock::now();
      tell("transfer");
    }
    if (size <= 0) open = false;
    if (size > 0) filled += static_cast<std::size_t>(size);
    if (filled == piece.size()) send();
  }
  send();
  if (!broken.empty()) throw Failure(broken);
}

// Returns when the container goes on there.
void PodmanMove::restore_there() {
  v1::RestoreRequest request;
  v1::RestoreReply reply;
  request.set_move_id(move_id_);
  const milliseconds limit = standstill_.left();
  request.set_limit_ms(static_cast<std::uint64_t>(Standstill::until_answer(limit).count()));
  std::uint64_t rdma_ns = 0;
  try {
    peer_.call(request, &reply, limit);
    if (!is_taken()) throw Failure(peer_.name() + " says that it goes on there, and it does not");
    rdma_ns = reply.rdma_ns();
  } catch (const Failure&) {
    if (!is_taken()) throw;
    rdma_ns = await_word();
  }
  std::lock_guard lock(mutex_);
  resumed_ = Clock::now();
  rdma_ns_there_ = rdma_ns;
}

// The checkpoint was taken at the last moment: it cannot be given up any more, and the word that
// the program goes on may take its own time. Gives RDMA's part of the blackout, in ns. Throws
// Failure.
std::uint64_t PodmanMove::await_word() {
  const auto limit = Clock::now() + host_.limits.resume;
  std::optional<std::uint64_t> rdma_ns;
  const auto is_needed = [&] { return !rdma_ns && !host_.stopping && Clock::now() < limit; };
  const auto handle = [&](const v1::WatchEvent& event) {
    if (event.has_resumed()) rdma_ns = event.resumed().rdma_ns();
  };
  // The destination may not have noted yet that it has the checkpoint.
  while (is_needed()) {
    hear(peer_, move_id_, handle, is_needed);
    if (!rdma_ns) std::this_thread::sleep_for(kPause);
  }
  if (!rdma_ns) throw Failure("no sign of it");
  return *rdma_ns;
}

// --- and back

// When this returns the container runs here, unless its checkpoint was taken: now and then that is
// seen only here. Throws Failure.
void PodmanMove::bring_back() {
  const auto fate = custody_.call_back(move_id_);
  if (is_taken() || fate == Custody::Fate::kTaken) {
    std::lock_guard lock(mutex_);
    taken_ = true;
    return;
  }
  // A program that runs here was never restored elsewhere.
  const bool may_run_there = of_former_ && fate == Custody::Fate::kKept;
  if (fate == Custody::Fate::kClaimed || may_run_there) {
    await_destination();
  } else if (is_prepared_) {
    std::string reason;
    if (ask_to_abort(peer_, move_id_, &reason) != Answer::kAborted) {
      // The destination clears up by itself: its copy gets nothing any more.
      log::warn("cannot tell {} that '{}' does not come: {}", peer_.name(), container_.name,
                reason);
    }
  }
  custody_.release(move_id_);
  if (!stopped_it_ && !of_former_) return;
  const std::string error = restore_here();
  if (!error.empty()) throw Failure(error);
}

// Waits until the destination, or an operator, has said that nothing of the container is left
// there.
void PodmanMove::await_destination() {
  std::string reason;
  for (auto warned = Clock::time_point::min();;) {
    const Answer answer = ask_to_abort(peer_, move_id_, &reason);
    std::unique_lock lock(mutex_);
    if (answer == Answer::kAborted || resolved_) {
      in_doubt_ = false;
      return;
    }
    in_doubt_ = true;
    if (host_.stopping) throw Failure("this ferryd is ending");
    if (const auto now = Clock::now();
        warned == Clock::time_point::min() || now - warned > seconds(10)) {
      warned = now;
      log::warn("'{}' stays stopped until {} says that it does not run there: {}", container_.name,
                peer_.name(), reason);
    }
    changed_.wait_for(lock, kPause, [this] { return resolved_; });
  }
}

// Gives an empty string, or what failed. The container may never have stopped, or may go on after a
// dump that failed. A podman that hangs gets a second chance: it still has the checkpoint.
std::string PodmanMove::restore_here() {
  const auto limit = Clock::now() + kExitLimit;
  auto now = podman_.find(container_.id);
  // podman hears a little later that the container's processes are gone.
  while (now && now->runs() && !is_alive(now->pid) && Clock::now() < limit) {
    std::this_thread::sleep_for(kPause);
    now = podman_.find(container_.id);
  }
  if (!now) return "podman has it no more";
  if (now->runs()) return {};
  bool killed = false;
  std::string error = podman_.restore(*now, host_.limits.restore, &killed);
  if (!killed) return error;
  // From now on the restored processes get nothing; they may have everything already.
  custody_.give_up(move_id_);
  if (custody_.call_back(move_id_) == Custody::Fate::kHere) {
    return error + "; its processes go on, but podman does not know of them: kill ends them";
  }
  podman_.end_restore(now->id);
  if (host_.stopping) return error;
  log::warn("'{}' is restored once more: {}", container_.name, error);
  error = podman_.restore(*now, host_.limits.restore, &killed);
  if (killed) podman_.end_restore(now->id);
  return error;
}

// A podman that a former ferryd started may still be at the checkpoint: it waits for a reader of
// what it writes.
void PodmanMove::await_podman() const {
  const UniqueFd fifo = open_fifo(fifo_);
  std::vector<std::byte> piece(kPiece);
  while (Podman::is_at_work(fifo_)) {
    if (host_.stopping) throw Failure("this ferryd is ending");
    pollfd readable{fifo.get(), POLLIN, 0};
    ::poll(&readable, 1, static_cast<int>(kPause.count()));
    while (fifo && ::read(fifo.get(), piece.data(), piece.size()) > 0) continue;
  }
}

// Ends what a former ferryd has begun.
void PodmanMove::settle() {
  try {
    if (!is_taken()) {
      await_podman();
      bring_back();
    }
    if (is_taken()) return remove_here();
    log::info("'{}' was being moved by a former ferryd, and goes on here", container_.name);
  } catch (const std::exception& failure) {
    if (host_.stopping) return;  // the next ferryd goes on
    log::error("'{}', which a former ferryd was moving, does not go on here: {}", container_.name,
               failure.what());
  }
  clear_up();
}

// --- the end

void PodmanMove::remove_here() {
  std::string error = podman_.remove(container_.id, false);
  for (const auto& volume : container_.volumes) {
    const std::string problem = podman_.remove_volume(volume);
    if (error.empty()) error = problem;
  }
  if (!error.empty()) {
    log::error("'{}' has moved to {}, and podman cannot remove it here: {}", container_.name,
               peer_.name(), error);
  }
  clear_up();
}

void PodmanMove::clear_up() {
  std::error_code ignored;
  std::filesystem::remove(fifo_, ignored);
  if (stopped_it_ || of_former_) {
    report_failure([&] { decisions_.note(Journal::podman_is_clear(move_id_, Side::kSource)); });
  }
  std::lock_guard lock(mutex_);
  over_ = true;
}

bool PodmanMove::is_taken() const {
  std::lock_guard lock(mutex_);
  return taken_;
}

Answer PodmanMove::answer() const {
  std::lock_guard lock(mutex_);
  if (taken_) return Answer::kCommitted;
  return over_ ? Answer::kAborted : Answer::kUnknown;
}

bool PodmanMove::in_doubt() const {
  std::lock_guard lock(mutex_);
  return in_doubt_;
}

void PodmanMove::resolve_abort() {
  std::lock_guard lock(mutex_);
  resolved_ = true;
  changed_.notify_all();
}

bool PodmanMove::is_over() const {
  std::lock_guard lock(mutex_);
  return over_;
}

v1::GroupReport PodmanMove::report() const {
  std::lock_guard lock(mutex_);
  v1::GroupReport group;
  group.set_from(host_.name);
  group.set_to(peer_.name());
  v1::MoveReport& report = *group.add_programs();
  report = report_of(container_.name, host_.name, peer_.name(), timing_,
                     {stopped_, dumped_, transferred_, restored_, restored_, resumed_},
                     rdma_ns_there_, image_);
  group.set_blackout_ms(report.blackout_ms());
  return group;
}

}  // namespace ferry::host
