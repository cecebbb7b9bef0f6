#include "host/move/source/move.h"

#include <fmt/core.h>

#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>

#include "base/alarm.h"
#include "base/failure.h"
#include "base/log.h"
#include "ferry.pb.h"
#include "host/image/image_room.h"
#include "host/journal/decision_log.h"
#include "host/peers/this_host.h"
#include "host/proc/broken_dump.h"
#include "host/units/criu_runner.h"
#include "host/units/outward.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kLookForAbort{50};  // between looks whether the move is given up
// Times from the end of a standstill: until the scripts of a CRIU that has not ended by itself are
// killed; and from there until CRIU is killed too, which its TCP connections may not survive.
constexpr seconds kScriptGrace{2}, kCriuGrace{3};
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
          const auto step = timeline_.step(kStepLane, "check");
          tell("check");
          check_here_and_there();
        });
        break;
      case Action::kPrepare:
        before_stop_.prepare = attempt(Event::kPrepared, [this] {
          const auto step = timeline_.step(kStepLane, "prepare");
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
          if (!unit_.needs_criu() && !options_.cut) copy_by_itself();
          if (options_.cut) options_.cut->check(index_, [this] { need_go_on(); });
        });
        break;
      case Action::kDump: in_group([this] { dump(); }); break;
      case Action::kReturn:
        roll_back();
        if (not_back_.empty() && !is_late_) {
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
  const auto step = timeline_.step(kStepLane, "copy rootfs");
  const auto began = Clock::now();
  tell_rootfs(0);
  rootfs_->run(
      *sender_, [this](std::uint64_t bytes) { tell_rootfs(bytes); }, [this] { need_go_on(); });
  rootfs_time_ = Clock::now() - began;
}

// Where memory is copied to.
precopy::PageSink& Move::memory_sink() {
  if (keeper_) return *keeper_;
  return *sender_;
}

void Move::copy_memory() {
  group_->need_open();
  const BreaksOff breaks_off(*this);
  tell("copy ahead");
  const auto step = timeline_.step(kStepLane, "copy ahead");
  const auto began = Clock::now();
  CopyAhead::Copied copied;
  if (options_.cut) {
    copied = [this](std::uint64_t bytes, std::uint64_t of) {
      options_.cut->copied(index_, bytes, of);
    };
  }
  ahead_->run(
      memory_sink(), [this](const CopyAhead::Progress& progress) { tell("copy ahead", &progress); },
      copied, [this] { need_go_on(); });
  ahead_time_ = Clock::now() - began;
}

// Of this program, as all of a group are copied at the same time.
CopyLimits Move::copy_limits() const {
  CopyLimits limits = options_.limits;
  limits.rate /= static_cast<double>(group_->programs().size());
  return limits;
}

// The unit copies its memory, without CRIU.
void Move::copy_by_itself() {
  group_->need_open();
  tell("copy ahead");
  const auto step = timeline_.step(kStepLane, "copy ahead");
  const auto began = Clock::now();
  const auto ahead = unit_.copy_ahead(
      copy_limits(), [this](const CopyAhead::Progress& progress) { tell("copy ahead", &progress); },
      [this] { need_go_on(); });
  ahead_time_ = Clock::now() - began;
  ahead_rounds_ = ahead.rounds;
  ahead_bytes_ = ahead.bytes;
}

void Move::need_go_on() const {
  group_->need_open();
  need_to_stay(host_);
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
  CriuRunner::Dump dump{};
  dump.root = unit_.root();
  dump.images = images_;
  dump.move_id = move_id_;
  if (ahead_) dump.left_out = left_out_folder();
  dump.tells_all = options_.timeline;
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
    sender_->send_piece(name, 0600, piece);
  };
  dump.written = [this] { return action("post-dump", unit_.root()); };
  dump.pause = [this] { pause_tree(); };
  dump.freeze = [this] { frozen(); };
  dump.leave_network = [this] {
    if (action("network-lock", unit_.root()) != 0) throw Failure(group_->failure());
  };
  dump.need_wanted = [this] { need_go_on(); };
  dump.failed = [this] { dump_failed(); };
  const auto step = timeline_.step(kCriuLane, "criu dump");
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

}  // namespace ferry::host
