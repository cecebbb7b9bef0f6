#include "host/move/source/move.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <thread>

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 forgets that C++ includes it
}

#include "base/alarm.h"
#include "base/clock.h"
#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "base/parallel.h"
#include "device/parcel.h"
#include "ferry.pb.h"
#include "host/image/checkpoint_note.h"
#include "host/image/image_room.h"
#include "host/journal/decision_log.h"
#include "host/move/settle.h"
#include "host/move/slots_message.h"
#include "host/move/source/bring_back.h"
#include "host/move/source/departed.h"
#include "host/move/source/image_way.h"
#include "host/move/source/kernel/wanted_devices.h"
#include "host/peers/this_host.h"
#include "host/proc/broken_dump.h"
#include "host/proc/kernel_devices.h"
#include "host/proc/process_ids.h"
#include "host/proc/process_tree.h"
#include "host/proc/written_files.h"
#include "host/standin/stand_in_host.h"
#include "host/standin/stand_in_term.h"
#include "host/standin/whereabouts.h"
#include "host/units/criu_runner.h"
#include "host/units/obstacles.h"
#include "host/units/outward.h"
#include "host/units/rdma_cm_trial.h"
#include "port/address_text.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kHelloLimit{5};  // for a new peer to say of what kind it is
constexpr milliseconds kPeersSettle{120};
constexpr milliseconds kLookForAbort{50};  // between looks whether the move is given up
constexpr char kRootfsLog[] = "rootfs.out";
constexpr seconds kBindLimit{20};
// Times from the end of a standstill: until the scripts of a CRIU that has not ended by itself are
// killed; and from there until CRIU is killed too, which its TCP connections may not survive.
constexpr seconds kScriptGrace{2}, kCriuGrace{3};
constexpr std::uint64_t kWorthCopying = 64 << 20;  // bytes; with less, copying ahead does not
                                                   // shorten the stop

// CRIU holds the pages that it leaves out in pipes, whose descriptors are limited.
bool can_leave_out(std::uint64_t bytes) {
  constexpr std::uint64_t kOthers = 1024;  // descriptors for all else, and pipes that are not full
  std::uint64_t pipe = 64 << 10;           // bytes of pages; a page takes a slot of 4 KiB
  std::ifstream("/proc/sys/fs/pipe-max-size") >> pipe;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || pipe == 0) return false;
  return files.rlim_cur >= 2 * (bytes / pipe) + kOthers;
}

}  // namespace

Move::Move(const SourceSide& side, std::shared_ptr<MoveGroup> group, std::size_t program,
           uid_t user, const MoveOptions& options)
    : side_(side),
      host_(side.host),
      group_(std::move(group)),
      index_(program),
      program_(group_->programs().at(program)),
      unit_(*program_.unit),
      move_id_(program_.move_id),
      user_(user),
      options_(options),
      partners_(side.carrier, side.attestor, side.control, side.qp_names),
      peer_(group_->peer()),
      tree_(side.control, side.stand_ins, move_id_),
      images_(side.room.folder_of(move_id_)) {}

Move::~Move() {
  if (watcher_.joinable()) watcher_.join();
  if (group_->is_over(index_)) side_.decisions.over(move_id_, Side::kSource);
}

void Move::in_group(const std::function<void()>& step) {
  try {
    step();
  } catch (const std::exception& failure) {
    group_->failed(index_, failure.what());
  }
}

void Move::tell(const std::string& phase, const CopyAhead::Progress* ahead) {
  v1::MoveProgress progress;
  if (ahead != nullptr) {
    auto* message = progress.mutable_copy_ahead();
    message->set_round(ahead->round);
    message->set_sent_bytes(ahead->sent);
    message->set_left_bytes(ahead->left);
    message->set_dirty_bytes_per_second(ahead->dirty_rate);
    message->set_sent_bytes_per_second(ahead->rate);
    message->set_blackout_ms(ahead->blackout_ms);
  }
  tell(std::move(progress), phase);
}

void Move::tell_rootfs(std::uint64_t bytes) {
  v1::MoveProgress progress;
  progress.mutable_copy_rootfs()->set_sent_bytes(bytes);
  progress.mutable_copy_rootfs()->set_total_bytes(rootfs_->total());
  tell(std::move(progress), "copy rootfs");
}

void Move::tell(v1::MoveProgress progress, const std::string& phase) {
  progress.set_program(unit_.name());
  progress.set_phase(phase);
  progress.set_move_id(move_id_);
  std::lock_guard lock(progress_mutex_);
  if (progress_) progress_(progress);
}

bool Move::copies_ahead(std::uint64_t bytes) const {
  if (unit_.is_checkpointed() || options_.cut) return false;
  switch (options_.copy_ahead) {
    case MoveOptions::Ahead::kAlways: return true;
    case MoveOptions::Ahead::kNever: return false;
    default:
      return options_.max_blackout_ms > 0 || (bytes >= kWorthCopying && can_leave_out(bytes));
  }
}

// Carries out a step of the move, after which `event` has happened.
Move::Clock::duration Move::attempt(MoveMachine::Event event, const std::function<void()>& step) {
  const auto began = Clock::now();
  in_group([&] {
    group_->need_open();
    step();
    group_->happened(index_, event);
  });
  return Clock::now() - began;
}

void Move::run(const Progress& progress) {
  using Action = MoveMachine::Action;
  using Event = MoveMachine::Event;
  progress_ = progress;
  for (bool is_done = false; !is_done;) {
    switch (group_->next(index_, MoveGroup::Worker::kMove)) {
      case Action::kCheck:
        before_stop_.check = attempt(Event::kChecked, [this] {
          tell("check");
          check_here_and_there();
        });
        break;
      case Action::kPrepare:
        before_stop_.prepare = attempt(Event::kPrepared, [this] {
          tell("prepare");
          await_peers();
          prepare_there();
        });
        break;
      case Action::kCopyAhead:
        attempt(Event::kCopied, [this] {
          // Memory changes faster than files.
          if (rootfs_) copy_rootfs();
          await_peers();
          if (ahead_) copy_memory();
        });
        break;
      case Action::kDump: in_group([this] { dump(); }); break;
      case Action::kReturn:
        roll_back();
        if (not_back_.empty()) {
          group_->happened(index_, Event::kReturned);
        } else {
          await_return();
        }
        is_done = true;
        break;
      case Action::kFollow:
        end_here();
        is_done = true;
        break;
      default:  // this ferryd ends: too late for a promise, about which the next ferryd asks
        group_->failed(index_, "this ferryd is ending");
        is_done = group_->undecided();
    }
  }
  {
    std::lock_guard lock(progress_mutex_);
    progress_ = nullptr;
  }
  if (group_->undecided()) throw Failure("this ferryd is ending");
  if (!not_back_.empty()) {
    throw Failure(fmt::format("'{}' was not moved: {}; and it does not go on here: {}",
                              unit_.name(), group_->failure(), not_back_));
  }
  if (group_->committed()) finish();
}

// As long as it lives, what is sent is broken off when the move is given up, for whatever reason.
class Move::BreaksOff {
 public:
  explicit BreaksOff(Move& move)
      : thread_([&move, this](const std::stop_token& over) {
          std::mutex mutex;
          std::unique_lock lock(mutex);
          while (!over.stop_requested()) {
            if (move.sender_ && move.group_->answer() == Answer::kAborted) {
              return move.sender_->break_off();
            }
            ended_.wait_for(lock, over, kLookForAbort, [] { return false; });
          }
        }) {}
  BreaksOff(const BreaksOff&) = delete;

 private:
  std::condition_variable_any ended_;
  std::jthread thread_;
};

void Move::copy_rootfs() {
  const BreaksOff breaks_off(*this);
  const auto began = Clock::now();
  tell_rootfs(0);
  rootfs_->run(
      *sender_, [this](std::uint64_t bytes) { tell_rootfs(bytes); }, [this] { need_go_on(); });
  rootfs_time_ = Clock::now() - began;
}

void Move::copy_memory() {
  group_->need_open();
  const BreaksOff breaks_off(*this);
  tell("copy ahead");
  const auto began = Clock::now();
  ahead_->run(
      *sender_, [this](const CopyAhead::Progress& progress) { tell("copy ahead", &progress); },
      [this] { need_go_on(); });
  ahead_time_ = Clock::now() - began;
}

void Move::need_go_on() const {
  group_->need_open();
  if (host_.stopping) throw Failure("this ferryd is ending");
}

void Move::dump() {
  group_->need_open();
  tell("stop");
  const std::string error = run_criu();
  lock_exception_.reset();
  end_dump_turn();
  if (!group_->committed()) throw Failure(error.empty() ? "criu dump ended too early" : error);
  if (!error.empty()) log::warn("criu after the commit of '{}': {}", unit_.name(), error);
}

// After the program has gone: nothing of it may be left to run here.
void Move::end_here() {
  await_work();
  kill_rest();
  report_failure([&] { unit_.left(); });
  if (ahead_) {
    ahead_rounds_ = ahead_->rounds();
    ahead_bytes_ = ahead_->sent_ahead();
    last_bytes_ = ahead_->sent_last();
  }
  ahead_.reset();
  if (rootfs_) {
    rootfs_ahead_ = rootfs_->sent_ahead();
    rootfs_last_ = rootfs_->sent_last();
  }
  rootfs_.reset();
  sender_.reset();
}

// Runs CRIU, for as long as a standstill may take.
std::string Move::run_criu() {
  standstill_.begin(host_.limits.standstill);
  const BreaksOff breaks_off(*this);
  Alarm over(host_.limits.standstill, [this] { give_up_standstill(); });
  // Not when CRIU waits for the decision.
  Alarm without_scripts(host_.limits.standstill + kScriptGrace, [this] {
    if (is_given_up()) kill_scripts(criu_);
  });
  Alarm killed(host_.limits.standstill + kScriptGrace + kCriuGrace, [this] {
    if (is_given_up()) kill_dump(criu_, unit_.root());
  });
  CriuRunner::Dump dump{unit_.root(), images_, move_id_, {}, ahead_.has_value(), {}};
  if (unit_.redirects_to(user_)) {
    streams_ = outer_streams(unit_.root());
    for (const auto& stream : streams_) {
      if (auto name = external_name(stream); !name.empty()) dump.external.push_back(name);
    }
  }
  dump.send = [this](const std::string& name, std::span<const std::byte> piece) {
    if (dumped_ == Clock::time_point()) {
      dumped_ = Clock::now();
      tell("transfer");
    }
    sender_->send_piece(name, piece);
  };
  dump.written = [this] { return action("post-dump", unit_.root()); };
  return unit_.dump(side_.criu, std::move(dump), &criu_);
}

// True when CRIU has no answer to wait for. A full cut is given up by itself only.
bool Move::is_given_up() const {
  return group_->answer() == Answer::kAborted && !(options_.cut && options_.cut->is_full());
}

// Without effect on a move that is promised: only its destination decides then.
void Move::give_up_standstill() {
  group_->time_passed(index_);
}

// A call of CRIU's plugin or action script. The call may outlive a CRIU that was killed.
class Move::AtWork {
 public:
  explicit AtWork(Move& move) : move_(move) {
    std::lock_guard lock(move_.mutex_);
    ++move_.at_work_;
  }
  ~AtWork() {
    std::lock_guard lock(move_.mutex_);
    --move_.at_work_;
    move_.changed_.notify_all();
  }
  AtWork(const AtWork&) = delete;

 private:
  Move& move_;
};

void Move::await_work() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return at_work_ == 0; });
}

void run_together(const std::vector<std::shared_ptr<Move>>& moves, const Move::Progress& progress) {
  MoveGroup& group = moves.front()->group();
  // The parts of a group tell how far they are at the same time.
  std::mutex one_at_a_time;
  const Move::Progress in_turn = [&](const v1::MoveProgress& message) {
    std::lock_guard lock(one_at_a_time);
    if (progress) progress(message);
  };
  std::set<std::string> failures;
  std::size_t failed = 0;
  in_parallel(moves, [&](const auto& move) {
    try {
      move->run(in_turn);
      move->tell_end({});
    } catch (const Failure& failure) {
      move->tell_end(failure.what());
      std::lock_guard lock(one_at_a_time);
      failures.insert(failure.what());
      ++failed;
    }
  });
  if (failed > 0) {
    std::string line;
    for (const auto& each : failures) line += (line.empty() ? "" : "; ") + each;
    if (failed < moves.size() && group.committed()) {
      line += fmt::format("; the others go on on {}", group.peer().name());
    }
    throw Failure(line);
  }
}

v1::GroupReport move_together(const std::string& host,
                              const std::vector<std::shared_ptr<Move>>& moves,
                              const Move::Progress& progress) {
  run_together(moves, progress);
  const MoveGroup& group = moves.front()->group();
  if (!group.committed()) {
    throw Failure(fmt::format("{} {} not moved: {}", names_of(group.programs()),
                              group.is_alone() ? "was" : "were", group.failure()));
  }
  v1::GroupReport report;
  report.set_from(host);
  report.set_to(moves.front()->group().peer().name());
  auto stopped = Move::Clock::time_point::max(), resumed = Move::Clock::time_point::min();
  for (const auto& move : moves) {
    *report.add_programs() = *move->outcome().report;
    stopped = std::min(stopped, move->outcome().stopped);
    resumed = std::max(resumed, move->outcome().resumed);
  }
  report.set_blackout_ms(milliseconds_between(stopped, resumed));
  return report;
}

void Move::check_here_and_there() {
  if (const std::string problem = side_.criu.unusable(); !problem.empty()) {
    throw Failure(problem);
  }
  unit_.need_movable();
  v1::CheckRequest request;
  request.set_version(host_.version);
  request.set_host(host_.name);
  request.set_program(unit_.name());
  request.set_kind(unit_.kind());
  request.set_details(unit_.details());
  for (const auto& program : group_->programs()) {
    const std::uint64_t bytes = resident_bytes_of_tree(program.unit->root());
    if (program.move_id == move_id_)
      request.set_resident_bytes(bytes);
    else
      request.set_group_bytes(request.group_bytes() + bytes);
  }
  // A group has one decision: its programs wait for each other.
  const auto contexts =
      check_peers(expected_waiting(request.resident_bytes() + request.group_bytes()));
  partners_.look(unit_.name(), unit_.root(), program_.processes, !unit_.netns().empty());
  const bool has_own_mounts =
      namespace_inode(unit_.root(), "mnt") != namespace_inode(::getpid(), "mnt");
  std::set<std::string> used;
  for (const auto& [name, needs] : partners_.devices()) used.insert(name);
  auto wanted = wanted_devices(unit_.name(), options_.to_devices, used);
  for (const auto& [name, needs] : partners_.devices()) {
    auto& device = *request.add_kernel_devices();
    device.set_name(name);
    device.set_wanted(wanted[name]);
    device.set_needs(needs);
    // A container's /dev comes along as it is.
    if (const auto node = node_of(name); node && has_own_mounts) device.set_node(to_string(*node));
  }
  if (const auto& rdma_cm = partners_.rdma_cm()) {
    need_devices_of_kernel(unit_.name(), wanted);
    to_message(*rdma_cm, request.mutable_rdma_cm());
  }
  std::set<std::string> netdevs;
  for (const auto& context : contexts) {
    if (device::device_behind(context.place).empty()) netdevs.insert(printable(context.netdev));
    qps_ += context.qps.size();
  }
  if (unit_.netns().empty()) {
    for (const auto& netdev : netdevs) request.add_netdevs(netdev);
  }
  request.set_image_bytes(image_bytes());
  if (!unit_.is_checkpointed()) side_.room.need(request.image_bytes());
  for (const auto& file : unit_.needed_files()) request.add_files(file);
  for (const pid_t id : ids_of_host(unit_.root())) request.add_ids(id);
  if (const auto file = unit_.redirects_to(user_)) {
    to_message({*file, {}}, request.mutable_stdio());
  }
  if (options_.cut) {
    checked_ = std::make_shared<const v1::CheckRequest>(request);
    return need_closed(contexts);
  }
  v1::CheckReply reply;
  peer_.call(request, &reply, seconds(30));
  host_there_ = reply.host();
  for (const auto& chosen : reply.chosen_devices()) chosen_devices_[chosen.name()] = chosen.there();
  if (reply.missing_files().empty()) return;
  // Files that were open for a moment only are not needed.
  const auto files = unit_.needed_files();
  for (const auto& file : reply.missing_files()) {
    if (!files.contains(file)) continue;
    throw Failure(missing_file(peer_.name(), file, unit_.name()));
  }
}

// Throws Failure unless all that the program's QPs are connected with is in the group. A checkpoint has both ends of a
// connection, or none.
void Move::need_closed(const std::vector<agent::ContextStatus>& contexts) const {
  if (!partners_.devices().empty()) {
    throw Failure(fmt::format(
        "'{}' uses {}, a device of the kernel: only programs with Ferry's own devices have "
        "checkpoints",
        unit_.name(), printable(partners_.devices().begin()->first)));
  }
  std::set<port::Endpoint> inside;
  for (const auto& program : group_->programs()) {
    for (const auto& context : contexts_of(side_.control, program.processes)) {
      for (const auto& qp : context.qps) inside.insert(qp.local);
    }
  }
  for (const auto& context : contexts) {
    for (const auto& qp : context.qps) {
      if (qp.peer == port::Endpoint() || inside.contains(qp.peer)) continue;
      throw Failure(fmt::format(
          "QP 0x{:06x} of '{}' is connected with {}, which is not in the checkpoint; name "
          "the program there as well",
          qp.qpn, unit_.name(), to_string(qp.peer.address)));
    }
  }
}

v1::MovePlan Move::plan() {
  check_here_and_there();
  const std::uint64_t bytes = resident_bytes_of_tree(unit_.root());
  v1::MovePlan plan;
  plan.set_program(unit_.name());
  plan.set_from(host_.name);
  plan.set_to(peer_.name());
  plan.set_copies_ahead(copies_ahead(bytes));
  const auto waiting = expected_waiting(plan.copies_ahead() ? 0 : bytes);
  plan.set_blackout_ms(static_cast<double>(waiting.blackout.count()));
  plan.set_memory_bytes(bytes);
  plan.set_qps(static_cast<std::uint32_t>(qps_));
  plan.set_standard_peers(static_cast<std::uint32_t>(standard_peers_));
  return plan;
}

// The bytes of all memory that goes into images: that of the programs that are not copied ahead.
std::uint64_t Move::image_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& program : group_->programs()) {
    const std::uint64_t bytes = resident_bytes_of_tree(program.unit->root());
    if (copies_ahead(bytes)) continue;
    if (program.unit->is_checkpointed()) {
      sum += bytes;  // the runtime adds files of its own
      continue;
    }
    for (const pid_t pid : process_tree(program.unit->root())) sum += anonymous_bytes(pid);
  }
  return sum;
}

// Refuses peers that speak no migration messages, unless the address moves along and they are
// patient: they cannot learn a new address. Gives the contexts that it has looked at.
std::vector<agent::ContextStatus> Move::check_peers(const Waiting& expected) {
  const auto deadline = Clock::now() + kHelloLimit;
  auto contexts = contexts_of(side_.control, program_.processes);
  auto peers = peers_of(contexts);
  while (!peers.undecided.empty() && Clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(20));
    contexts = contexts_of(side_.control, program_.processes);
    peers = peers_of(contexts);
  }
  auto& standard = peers.standard;
  standard.insert(standard.end(), peers.undecided.begin(), peers.undecided.end());
  standard_peers_ = standard.size();
  if (standard.empty()) return contexts;
  if (unit_.is_checkpointed()) {
    if (options_.force) return contexts;
    throw Failure(
        fmt::format("{} speaks no migration messages, and may give up while {} is at work; move it "
                    "with --force all the same",
                    peer_text(standard.front()), unit_.kind()));
  }
  if (!unit_.rdma_moves()) {
    throw Failure(fmt::format(
        "{} speaks no migration messages and the address {} cannot move along: it belongs to the "
        "host; move programs whose RDMA address is their container's own, or try again when the "
        "peer is connected",
        peer_text(standard.front()), to_string(standard.front().local.address)));
  }
  if (const auto line = impatient(standard, expected); !line.empty()) {
    if (!options_.force) throw Failure(line);
    log::warn("'{}' moves all the same: {}", unit_.name(), line);
  }
  kept_ = places_to_keep(contexts);
  return contexts;
}

void Move::await_peers() {
  partners_.await_peers(unit_.root(), [this] { need_go_on(); });
}

void Move::make_folder() const {
  std::error_code error;
  std::filesystem::create_directories(images_, error);
  if (error) throw Failure(fmt::format("cannot make {}: {}", images_, error.message()));
  std::filesystem::permissions(images_, std::filesystem::perms::owner_all, error);
}

void Move::prepare_there() {
  make_folder();
  if (options_.cut) return unit_.leave();
  v1::PrepareRequest request;
  request.set_move_id(move_id_);
  request.set_program(unit_.name());
  request.set_version(host_.version);
  request.set_source(host_.address);
  request.set_kind(unit_.kind());
  request.set_details(unit_.details());
  for (const auto& process : program_.processes) {
    request.add_inner_pids(innermost_pid(process.pid).value_or(process.pid));
  }
  for (const auto& context : kept_) to_message(context, request.add_kept());
  for (const auto& partner : partners_.ferryds()) {
    auto* added = request.add_partners();
    added->set_host(partner.host);
    added->set_ferryd(partner.address);
  }
  for (const auto& [name, there] : chosen_devices_) {
    auto* added = request.add_chosen_devices();
    added->set_name(name);
    added->set_there(there);
  }
  if (!group_->is_alone()) {
    request.mutable_group()->set_id(group_->id());
    request.mutable_group()->set_programs(static_cast<std::uint32_t>(group_->programs().size()));
    request.mutable_group()->set_program(static_cast<std::uint32_t>(index_));
  }
  const bool ahead = copies_ahead(resident_bytes_of_tree(unit_.root()));
  request.set_copy_ahead(ahead);
  unit_.leave();
  is_prepared_ = true;  // also when the answer gets lost
  v1::PrepareReply reply;
  peer_.call(request, &reply, seconds(60));
  open_image_way(peer_, reply, host_.credentials, &sender_);
  if (const auto rootfs = unit_.copied_rootfs()) {
    rootfs_.emplace(host_.rootfs_helper, unit_.root(), *rootfs, images_ + "/" + kRootfsLog);
  }
  if (!ahead) return;
  precopy::PlannerSettings settings;
  if (options_.max_blackout_ms > 0) {
    settings.blackout = precopy::PlannerSettings::Milliseconds(options_.max_blackout_ms);
  }
  ahead_.emplace(side_.control, unit_.root(), settings);
}

std::string Move::pause_tree() {
  const AtWork at_work(*this);
  group_->need_open();
  for (const pid_t pid : process_tree(unit_.root())) {
    pidfds_.emplace_back(::pidfd_open(pid, 0));
  }
  if (unit_.is_checkpointed() && !unit_.netns().empty()) {
    lock_exception_.emplace(unit_.root(), NetworkRules::Effect::kPassLock);
  }
  stop_rdma();
  group_->happened(index_, MoveMachine::Event::kStopped);
  stopped_ = Clock::now();
  tell("dump");
  if (unit_.is_checkpointed()) {
    // From now on the RNICs of these processes do not end with them.
    side_.whereabouts.left(pids(), {});
  }
  if (options_.cut) {
    places_ = std::async(std::launch::deferred, [this] { return tree_.sockets(); });
    return {};
  }
  // While CRIU dumps, the destination binds the new sockets.
  places_ = std::async(std::launch::async, [this] {
    v1::BindRequest request;
    v1::BindReply reply;
    request.set_move_id(move_id_);
    for (const auto& place : tree_.sockets()) to_message(place, request.add_processes());
    peer_.call(request, &reply, std::min<milliseconds>(kBindLimit, standstill_.left()));
    return from_messages(reply.processes());
  });
  if (!unit_.is_checkpointed()) return {};
  return to_text({move_id_, unit_.name(), host_.name, host_.address});
}

void Move::stop_rdma() {
  const auto processes = ferry_processes(side_.control, unit_.root());
  const auto limit = host_.limits.stop / 2;
  const auto suspension = partners_.suspend(processes, move_id_, limit);
  group_->await_suspensions(index_, limit);
  tree_.stop(processes, side_.residents, host_.limits.stop, [this](std::vector<HeldProcess>* held) {
    partners_.keep_own_names(held);
    note_held(*held);
  });
}

// The processes that use RDMA.
std::vector<pid_t> Move::pids() const {
  std::vector<pid_t> pids;
  for (const auto& process : program_.processes) pids.push_back(process.pid);
  return pids;
}

void Move::note_held(const std::vector<HeldProcess>& processes) {
  Held held{unit_.name(), peer_.record(),           {},       {}, stamp_now().boot,
            unit_.root(), start_time(unit_.root()), processes};
  held.netns = unit_.netns();
  held.instance = unit_.instance();
  side_.decisions.note(Journal::held(move_id_, Side::kSource, held));
}

void Move::frozen() {
  const AtWork at_work(*this);
  // Since the move began the program may have executed another one: a set-user-ID one.
  need_owner(user_, unit_.name(), unit_.root());
  tree_.mark_frozen();
  if (ahead_) ahead_->send_last(*sender_);
  // Before CRIU makes folders of its own in the root filesystem.
  if (rootfs_) rootfs_->send_last(*sender_);
  // Without a turn: all the others come here too before the first of them is dumped.
  if (options_.cut) options_.cut->freeze(index_, [this] { group_->need_open(); });
  auto turn = side_.dump_turns.take(unit_.root());
  group_->happened(index_, MoveMachine::Event::kFrozen);
  std::lock_guard lock(mutex_);
  dump_turn_ = std::move(turn);
}

void Move::end_dump_turn() {
  std::lock_guard lock(mutex_);
  dump_turn_ = nullptr;
}

void Move::dump_failed() {
  group_->failed(index_, "");  // CRIU says why when it ends
  if (group_->answer() == Answer::kAborted) tree_.roll_back();
}

int Move::action(const std::string& name, pid_t) {
  const AtWork at_work(*this);
  try {
    if (name == "network-lock") {
      left_network_ = true;
      unit_.switch_network("hold");
    } else if (name == "network-unlock") {
      unit_.switch_network("activate");
      left_network_ = false;
    } else if (name == "post-dump") {
      if (dumped_ == Clock::time_point()) dumped_ = Clock::now();
      end_dump_turn();
      return after_dump();
    }
    return 0;
  } catch (const std::exception& failure) {
    group_->failed(index_, failure.what());
    return 1;
  }
}

std::vector<ImageFile> Move::files() const {
  auto files = image_files(images_);
  std::erase_if(files, [](const ImageFile& file) {
    return file.name == "criu.out" || file.name == kRootfsLog;
  });
  if (const std::string log = unit_.log(); !log.empty()) files.push_back({kContainerLog, log});
  return files;
}

// Gives the answer to the post-dump action: with 0 CRIU kills the tree here, with EAGAIN it leaves
// the tree frozen and asks again, with anything else it thaws the tree.
int Move::after_dump() {
  using Action = MoveMachine::Action;
  using Event = MoveMachine::Event;
  if (!places_.valid()) throw Failure("the dump went on without stopping RDMA");
  group_->happened(index_, Event::kDumped);
  for (;;) {
    switch (group_->next(index_, MoveGroup::Worker::kDump)) {
      case Action::kTransfer:
        if (options_.cut) return join_cut();
        transfer();
        group_->happened(index_, Event::kTransferred);
        break;
      case Action::kRestore:
        restore();
        group_->happened(index_, Event::kRestored);
        break;
      case Action::kLeave:
        report_failure([this] { leave(); });
        group_->happened(index_, Event::kLeft);
        return 0;
      default:
        if (group_->undecided()) return EAGAIN;
        return go_on();
    }
  }
}

// The answer by which CRIU thaws the tree. The abort is final: what fails here is reported only.
int Move::go_on() {
  report_failure([&] {
    unit_.stage(Unit::State::kRunning, unit_.root(), {});
    unit_.publish();
  });
  return 1;
}

// In place of all that follows the dump, when the move is for a checkpoint. CRIU thaws the tree, of which nothing runs
// any more if it is to end.
int Move::join_cut() {
  const pid_t root = unit_.root();
  // What it has open now, not what it had open at the check.
  auto needs = std::make_shared<v1::CheckRequest>(*checked_);
  const auto needed = unit_.needed_files();
  needs->mutable_files()->Assign(needed.begin(), needed.end());
  const auto ids = ids_of_host(root);
  needs->mutable_ids()->Assign(ids.begin(), ids.end());
  auto written = written_files(root);
  std::erase_if(written, [&](const WrittenFile& file) { return !needed.contains(file.path); });
  Cut::Part part{move_id_, unit_.name(),  images_, files(),
                 needs,    places_.get(), {},      std::move(written)};
  const auto tree = process_tree(root);
  for (const pid_t pid : tree) part.processes[pid] = start_time(pid);
  options_.cut->join(index_, std::move(part), [this] { group_->need_open(); });
  if (options_.cut->ends_programs()) {
    // All that are in the image, not those of the stop only. While they are frozen nobody else has their ids.
    for (const pid_t pid : tree) ::kill(pid, SIGKILL);
  }
  group_->failed(index_, "");
  return go_on();
}

void Move::transfer() {
  auto places = places_.get();
  if (!unit_.is_checkpointed()) {
    tell("transfer");
    take_places(std::move(places));
  }
  if (ahead_) ahead_->send_rest(*sender_, images_);
  image_ = sender_->send(files());
  transferred_ = Clock::now();
}

void Move::take_places(std::vector<ProcessSlots> places) {
  there_ = std::move(places);
  if (!tree_.fits(there_)) throw Failure(peer_.name() + " gave a malformed answer");
  tree_.need_same_places(there_);
}

void Move::restore() {
  tell("restore");
  v1::RestoreRequest restore;
  v1::RestoreReply restored;
  restore.set_move_id(move_id_);
  const milliseconds limit = standstill_.left();
  restore.set_limit_ms(static_cast<std::uint64_t>(Standstill::until_answer(limit).count()));
  if (const auto file = unit_.redirects_to(user_)) {
    to_message({*file, streams_}, restore.mutable_stdio());
  }
  peer_.call(restore, &restored, limit);
  restored_ = Clock::now();
  if (unit_.is_checkpointed()) take_places(from_messages(restored.processes()));

  side_.decisions.note(Journal::going(move_id_, {host_there_, there_}));
  tell("commit");
  watcher_ = std::thread([this] { watch(); });
  // The supervisor of a container sees its program killed, and must find the reason. The part of
  // writing it that can fail comes before the decision.
  unit_.stage(Unit::State::kMoved, 0, host_there_);
}

void Move::leave() {
  {
    std::lock_guard lock(mutex_);
    if (!is_resumed_) committed_at_ = group_->decided_at();
    tell("resume");
  }
  depart();
}

// Those of the program's future peers that ask here are told the way too, as long as it lives
// anywhere.
void Move::depart() {
  Place there;
  there.host = host_there_;
  there.ferryd = peer_.target();
  const auto departed = tree_.commit(there_, there);
  std::vector<Place> next;
  for (const auto& gone : departed) next.push_back(gone.place);
  side_.whereabouts.left(pids(), next);
  report_failure([&] { side_.decisions.note(Journal::since(move_id_, stamp_now())); });
  std::lock_guard lock(mutex_);
  network_ = side_.departed.hold_network(unit_.instance());
  for (const auto& gone : departed) {
    if (gone.stand_in == 0) continue;
    side_.departed.keep_origin(move_id_, gone.stand_in, gone.place, network_);
  }
}

void Move::roll_back() {
  end_repair(unit_.root());  // somebody else may have killed CRIU
  tree_.roll_back();
  if (is_prepared_) tell_of_abort(peer_, move_id_, unit_);
  if (sender_) sender_->break_off();
  await_work();
  ahead_.reset();
  rootfs_.reset();
  sender_.reset();
  if (left_network_) {
    report_failure([&] { unit_.switch_network("activate"); });
  }
  if (is_prepared_) not_back_ = bring_back(unit_, tree_, host_.limits.restore, host_.stopping);
  const bool has_ended = is_cut() && options_.cut->ends_programs();
  std::unique_lock lock(mutex_);
  if (not_back_.empty() && !has_ended &&
      !changed_.wait_for(lock, seconds(10), [this] { return tree_.all_back(); })) {
    log::error("'{}' has not come back after its move failed", unit_.name());
  }
  resumed_ = Clock::now();
  outcome_ = {nullptr, tree_.timing().began, resumed_};
  lock.unlock();
  if (is_cut() && !has_ended) return;  // the images are to be stored yet
  std::error_code ignored;
  std::filesystem::remove_all(images_, ignored);
}

// Its runtime could not restore it. Somebody else may have it do so, as long as its checkpoint is of
// use.
void Move::await_return() {
  if (watcher_.joinable()) watcher_.join();
  watcher_ = std::thread([this, until = Clock::now() + host_.limits.checkpoint] {
    while (!tree_.all_back() && !host_.stopping && Clock::now() < until) {
      std::this_thread::sleep_for(milliseconds(100));
    }
    if (!host_.stopping) group_->happened(index_, MoveMachine::Event::kReturned);
  });
}

void Move::need_restorable() const {
  need_restorable_here(group_->answer(), unit_.name(), peer_.name());
}

int Move::restored(pid_t pid) {
  tree_.restored(pid);
  return 0;
}

// CRIU has killed the tree; a process that is left of a killed CRIU's tree must not live twice.
void Move::kill_rest() {
  for (const auto& pidfd : pidfds_) {
    if (pidfd) ::pidfd_send_signal(pidfd.get(), SIGKILL, nullptr, 0);
  }
  pidfds_.clear();
}

std::optional<ResumeSlots> Move::wake(pid_t inner_pid) {
  return tree_.wake(inner_pid);
}

void Move::resumed(pid_t inner_pid, const agent::Resumed&) {
  tree_.resumed(inner_pid);
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

bool Move::is_over() const {
  return group_->is_over(index_);
}

// Listens to the destination from before the commit until no peer needs the stand-in.
void Move::watch() {
  const auto now = [] { return Clock::now().time_since_epoch(); };
  const auto most = now() + host_.limits.stand_in;
  const bool is_over_there = hear(
      peer_, move_id_, [this](const v1::WatchEvent& event) { handle(event); },
      [&] { return group_->answer() != Answer::kAborted && !host_.stopping && now() < most; });
  group_->wait_until_decided();
  if (!group_->committed()) return;  // the program is still here
  StandInTerm term(now(), host_.limits.stand_in);
  if (is_over_there) {
    term.program_left(now(), tree_.paused_limit());
    report_failure([&] { side_.decisions.note(Journal::left(move_id_, stamp_now())); });
  }
  while (!host_.stopping && !term.over(tree_.expired(), now())) {
    std::this_thread::sleep_for(milliseconds(100));
  }
  if (host_.stopping) return;     // the next ferryd goes on
  std::shared_ptr<void> network;  // released, if nobody else holds it, after the lock
  {
    std::lock_guard lock(mutex_);
    network.swap(network_);
  }
  group_->unneeded(index_);
}

void Move::handle(const v1::WatchEvent& event) {
  std::lock_guard lock(mutex_);
  last_news_ = Clock::now();
  if (event.has_resumed() && !is_resumed_) {
    resumed_ = last_news_;
    is_resumed_ = true;
    // The answer to the commit may still be on its way, or the thread that leaves.
    committed_at_ = group_->committed() ? std::min(group_->decided_at(), resumed_) : resumed_;
    rdma_ns_there_ = event.resumed().rdma_ns();
  } else if (event.has_peers_know()) {
    heard_peers_ = true;
    remaining_ = event.peers_know().remaining();
    retransmitted_ = event.peers_know().retransmitted_packets();
    for (const auto qpn : event.peers_know().qpns()) tree_.peer_knows(qpn);
  } else if (!event.failed().empty()) {
    failed_there_ = event.failed();
  }
  changed_.notify_all();
}

void Move::finish() {
  std::unique_lock lock(mutex_);
  const bool resumed = changed_.wait_for(lock, host_.limits.resume,
                                         [this] { return is_resumed_ || !failed_there_.empty(); });
  std::error_code ignored;
  if (!resumed || !failed_there_.empty()) {
    lock.unlock();
    std::filesystem::remove_all(images_, ignored);
    throw Failure(fmt::format("'{}' is on {} now, but does not go on there: {}", unit_.name(),
                              peer_.name(), resumed ? failed_there_ : "no sign of it"));
  }
  if (tree_.timing().qps > 0) {
    const auto limit = Clock::now() + host_.limits.peers;
    const auto settled = [this] {
      return heard_peers_ && remaining_ == 0 && Clock::now() - last_news_ > kPeersSettle;
    };
    while (!settled() && Clock::now() < limit) changed_.wait_for(lock, milliseconds(10));
  }
  outcome_ = {std::make_shared<v1::MoveReport>(report()), tree_.timing().began, resumed_};
  lock.unlock();
  std::filesystem::remove_all(images_, ignored);
}

}  // namespace ferry::host
