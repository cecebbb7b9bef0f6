#include "host/move/source/move.h"

#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <set>

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 forgets that C++ includes it
}

#include "base/failure.h"
#include "base/log.h"
#include "ferry.pb.h"
#include "host/image/checkpoint_note.h"
#include "host/image/image_room.h"
#include "host/journal/decision_log.h"
#include "host/move/settle.h"
#include "host/move/slots_message.h"
#include "host/move/source/departed.h"
#include "host/peers/this_host.h"
#include "host/proc/process_tree.h"
#include "host/proc/written_files.h"
#include "host/standin/stand_in_host.h"
#include "host/standin/whereabouts.h"
#include "host/units/outward.h"
#include "precopy/left_out_file.h"

// The part of Move that CRIU calls: from the stop until the program has left, or goes on where it was.
namespace ferry::host {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kBindLimit{20};

}  // namespace

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

std::string Move::pause_tree() {
  const AtWork at_work(*this);
  const auto step = timeline_.step(kScriptLane, "RDMA stops");
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
    const auto call = timeline_.step(kCallLane, "Bind");
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
  if (!unit_.needs_criu()) unit_.stop_inside(host_.limits.stop, [this] { need_go_on(); });
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
  const auto step = timeline_.step(kScriptLane, "all is frozen");
  // Since the move began the program may have executed another one: a set-user-ID one.
  need_owner(user_, unit_.name(), unit_.root());
  tree_.mark_frozen();
  // While ferryd looks for memory, and CRIU waits. In a checkpoint all freeze before the first leaves its network.
  if (ahead_ && !options_.cut) {
    leaving_ = std::async(std::launch::async, [this] { leave_network(); });
  }
  if (ahead_) leave_out();
  // Before CRIU makes folders of its own in the root filesystem.
  if (rootfs_) rootfs_->send_last(*sender_);
  if (ahead_) {
    sending_ = std::async(std::launch::async, [this] {
      const auto sends = timeline_.step(kFerrydLane, "memory is sent that was written last");
      ahead_->send_last(memory_sink());
    });
  }
  // Without a turn: all the others come here too before the first of them is dumped.
  if (options_.cut) options_.cut->freeze(index_, [this] { group_->need_open(); });
  auto turn = side_.dump_turns.take(unit_.root());
  group_->happened(index_, MoveMachine::Event::kFrozen);
  std::lock_guard lock(mutex_);
  dump_turn_ = std::move(turn);
}

// CRIU dumps none of the memory that is where it is copied to, or is sent there while CRIU dumps the rest.
void Move::leave_out() {
  const auto step = timeline_.step(kScriptLane, "memory is looked for that was written last");
  if (sender_) sender_->tell_stop();
  pages_left_out_ = ahead_->leave_out(memory_sink(), left_out_folder());
  if (!keeper_) precopy::write_left_out(images_, pages_left_out_);
}

void Move::leave_network() {
  const auto step = timeline_.step(kFerrydLane, "the network is left");
  left_network_ = true;
  unit_.switch_network("hold");
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
  const auto step = timeline_.step(kScriptLane, name);
  try {
    if (name == "network-lock") {
      if (leaving_.valid()) {
        leaving_.get();
      } else {
        leave_network();
      }
    } else if (name == "network-unlock") {
      unit_.switch_network("activate");
      left_network_ = false;
    } else if (name == kPostDump) {
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
  if (sending_.valid()) {
    sending_.get();
    kept_memory_->need(pages_left_out_);
  }
  // What it has open now, not what it had open at the check.
  auto needs = std::make_shared<v1::CheckRequest>(*checked_);
  const auto needed = unit_.needed_files();
  needs->mutable_files()->Assign(needed.begin(), needed.end());
  const auto ids = ids_of_host(root);
  needs->mutable_ids()->Assign(ids.begin(), ids.end());
  auto written = written_files(root);
  std::erase_if(written, [&](const WrittenFile& file) { return !needed.contains(file.path); });
  Cut::Part part;
  part.move_id = move_id_;
  part.program = unit_.name();
  part.images = images_;
  part.files = files();
  part.check = needs;
  part.places = places_.get();
  part.written = std::move(written);
  part.left_out = std::move(pages_left_out_);
  part.memory = kept_memory_;
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
  if (sending_.valid()) {
    const auto step = timeline_.step(kScriptLane, "memory is awaited that was written last");
    sending_.get();
  }
  {
    const auto step = timeline_.step(kScriptLane, "the image is sent");
    image_ = sender_->send(files());
  }
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
  restore.set_timeline(options_.timeline);
  {
    const auto step = timeline_.step(kCallLane, kRestoreCall);
    peer_.call(restore, &restored, limit);
  }
  restored_ = Clock::now();
  if (unit_.is_checkpointed()) take_places(from_messages(restored.processes()));

  side_.decisions.note(Journal::going(move_id_, {host_there_, there_}));
  tell("commit");
  timeline_.add({kFerrydLane, "the promise is durable", restored_, Clock::now()});
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

}  // namespace ferry::host
