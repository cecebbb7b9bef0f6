#include "checkpoint_world.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <sstream>
#include <utility>
#include <vector>

#include "base/failure.h"

namespace ferry::simulation {

using host::CourseStep;
using host::LeadMachine;
using host::PartMachine;

namespace {

constexpr char kId[] = "00000000000000aa";
constexpr std::uint64_t kAttempt = 7;
constexpr Time kSilence = seconds(4);  // after which a ferryd gives the other one up
constexpr Time kMostTrouble = milliseconds(120);

const char* name_of_step(CourseStep step) {
  constexpr const char* kNames[] = {"look",  "check", "freeze",  "dump",
                                    "store", "end",   "restore", "go on"};
  return kNames[static_cast<std::size_t>(step)];
}

}  // namespace

const char* name_of(Trouble trouble) {
  constexpr const char* kNames[] = {"leader_crash", "part_crash",  "short_cut",  "long_cut",
                                    "store_down",   "answer_lost", "step_fails", "unwanted"};
  return kNames[static_cast<std::size_t>(trouble)];
}

CheckpointTotals& CheckpointTotals::operator+=(const CheckpointTotals& other) {
  schedules += other.schedules;
  checkpoints += other.checkpoints;
  stops += other.stops;
  restarts += other.restarts;
  decided += other.decided;
  given_up += other.given_up;
  asked_store += other.asked_store;
  for (std::size_t i = 0; i < troubles.size(); ++i) troubles[i] += other.troubles[i];
  return *this;
}

std::string to_json(const CheckpointTotals& totals) {
  std::ostringstream text;
  text << "{\"schedules\": " << totals.schedules << ", \"checkpoints\": " << totals.checkpoints
       << ", \"stops\": " << totals.stops << ", \"restarts\": " << totals.restarts
       << ", \"decided\": " << totals.decided << ", \"given_up\": " << totals.given_up
       << ", \"asked_store\": " << totals.asked_store << ", \"troubles\": {";
  for (std::size_t i = 0; i < totals.troubles.size(); ++i) {
    text << (i > 0 ? ", " : "") << '"' << name_of(static_cast<Trouble>(i))
         << "\": " << totals.troubles[i];
  }
  text << "}}";
  return text.str();
}

CheckpointWorld::CheckpointWorld(const CheckpointOptions& options)
    : options_(options), events_(options.seed) {
  kind_ = static_cast<Kind>(events_.pick(0, 2));
  const std::size_t hosts = events_.pick(1, 5);
  has_own_ = events_.chance(0.7);
  for (std::size_t i = 0; i < hosts; ++i) {
    auto& part = parts_.emplace_back(course());
    if (kind_ == Kind::kRestart) part.programs = Programs::kAbsent;
  }
  leader_.emplace(course(), hosts);
  ++totals_.schedules;
  ++(kind_ == Kind::kRestart ? totals_.restarts
     : kind_ == Kind::kStop  ? totals_.stops
                             : totals_.checkpoints);
}

const host::Course& CheckpointWorld::course() const {
  switch (kind_) {
    case Kind::kCheckpoint: return host::kCheckpointCourse;
    case Kind::kStop: return host::kStopCourse;
    default: return host::kRestartCourse;
  }
}

void CheckpointWorld::fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

void CheckpointWorld::trace(const std::string& what) const {
  if (!options_.trace) return;
  std::printf("%10.3f ms  %s\n", static_cast<double>(events_.now().count()) / 1e6, what.c_str());
}

std::string CheckpointWorld::run() {
  if (kind_ == Kind::kRestart) {
    verdict_.emplace(options_.directory, kId, kAttempt);
    verdict_->open();
  } else {
    fresh_ = std::make_unique<store::NewCheckpoint>(options_.directory, kId);
  }
  for (auto& part : parts_) {
    if (kind_ == Kind::kRestart) part.verdict.emplace(options_.directory, kId, kAttempt);
    if (kind_ == Kind::kStop) part.completion.emplace(options_.directory, kId);
  }
  for (auto troubles = events_.pick(0, 3); troubles > 0; --troubles) trouble();
  lead();
  while (failure_.empty() && events_.step()) continue;
  if (failure_.empty()) check_end();
  return failure_;
}

void CheckpointWorld::trouble() {
  const auto which =
      static_cast<Trouble>(events_.pick(0, static_cast<std::uint64_t>(Trouble::kCount) - 1));
  events_.in(events_.between(Time(0), kMostTrouble), [this, which] {
    if (is_over_) return;
    ++totals_.troubles[static_cast<std::size_t>(which)];
    trace(name_of(which));
    begin(which);
  });
}

void CheckpointWorld::begin(Trouble which) {
  const std::size_t i = events_.pick(0, parts_.size() - 1);
  switch (which) {
    case Trouble::kLeaderCrash: return crash_leader();
    case Trouble::kPartCrash: return is_leader(i) ? crash_leader() : crash(i);
    case Trouble::kShortCut:
      parts_[i].cut_until = events_.now() + events_.between(milliseconds(1), milliseconds(200));
      return;
    case Trouble::kLongCut:
      if (is_leader(i)) return;
      parts_[i].cut_until = events_.now() + 3 * kSilence;
      events_.in(kSilence + events_.between(Time(0), kSilence), [this, i] { lose(i); });
      end_conversation(i, kSilence + events_.between(Time(0), kSilence));
      return;
    case Trouble::kStoreDown:
      store_down_until_ = events_.now() + events_.between(milliseconds(1), seconds(10));
      return;
    case Trouble::kAnswerLost: answer_is_lost_ = true; return;
    case Trouble::kStepFails: step_fails_ = true; return;
    default:
      if (!leader_is_alive_) return;
      is_unwanted_ = true;
      if (is_deciding_) return;
      leader_->give_up();
      lead();
  }
}

// When what is sent now to or from this host is there.
Time CheckpointWorld::arrival(const Part& part) {
  const Time way = events_.between(microseconds(20), microseconds(500));
  return std::max(part.cut_until - events_.now(), Time(0)) + way;
}

void CheckpointWorld::lead() {
  while (leader_is_alive_ && !is_over_) {
    switch (leader_->next()) {
      case LeadMachine::Action::kTell:
        trace(std::string("tell: ") + name_of_step(leader_->step()));
        for (std::size_t i = 0; i < parts_.size(); ++i) {
          if (leader_->awaits(i)) tell(i);
        }
        return;
      case LeadMachine::Action::kDecide:
        is_deciding_ = true;
        events_.in(events_.between(microseconds(100), milliseconds(10)), [this] { decide(); });
        return;
      case LeadMachine::Action::kGiveUp:
        trace("give up");
        for (std::size_t i = 0; i < parts_.size(); ++i) {
          end_conversation(i, arrival(parts_[i]));
          events_.in(microseconds(10), [this, i] { lose(i); });
        }
        break;
      case LeadMachine::Action::kOver:
        trace(leader_->is_decided() ? "over: decided" : "over: given up");
        is_over_ = true;
        ++(leader_->is_decided() ? totals_.decided : totals_.given_up);
        for (std::size_t i = 0; i < parts_.size(); ++i) end_conversation(i, arrival(parts_[i]));
        fresh_.reset();  // takes away what is not complete
        return;
      default: return;
    }
  }
}

void CheckpointWorld::tell(std::size_t i) {
  if (!parts_[i].is_heard) return events_.in(microseconds(10), [this, i] { lose(i); });
  const auto step = leader_->step();
  events_.in(arrival(parts_[i]), [this, i, step] { take(i, step); });
}

void CheckpointWorld::decide() {
  if (!leader_is_alive_) return;
  if (options_.lacking == Lacking::kDecidingInStore) {
    if (kind_ != Kind::kRestart) {
      std::filesystem::create_directory(options_.directory + "/" + kId);
    }
    return decided(true);
  }
  if (kind_ == Kind::kRestart) return decide_restart(true);
  bool is_complete = false;
  try {
    if (is_store_down()) throw Failure("the store does not answer");
    std::vector<store::Program> programs(parts_.size());
    for (auto& program : programs) {
      program.name = "p";
      program.host = "h";
      program.facts["kind"] = "process";
    }
    fresh_->complete("1.2.3", std::move(programs));
    is_complete = !answer_is_lost_;
  } catch (const Failure& failure) {
    trace(failure.what());
  }
  trace(is_complete ? "the checkpoint is complete" : "the checkpoint is not known to be complete");
  decided(is_complete);
}

void CheckpointWorld::decided(bool goes_on) {
  is_deciding_ = false;
  leader_->decided(goes_on);
  if (is_unwanted_) leader_->give_up();
  lead();
}

// As RestartDecision::go_on(): when it is not known what has come of it, the store is asked until it answers.
void CheckpointWorld::decide_restart(bool is_first) {
  if (!leader_is_alive_) return;
  if (is_store_down()) {
    return events_.in(milliseconds(100), [this] { decide_restart(false); });
  }
  bool goes_on = is_first ? verdict_->go_on() : verdict_->goes_on();
  if (is_first && answer_is_lost_) goes_on = verdict_->goes_on();
  trace(goes_on ? "the programs go on" : "the programs do not go on");
  decided(goes_on);
}

void CheckpointWorld::lose(std::size_t i) {
  parts_[i].is_heard = false;
  if (!leader_is_alive_ || is_over_ || !leader_->awaits(i)) return;
  leader_->failed(i);
  lead();
}

void CheckpointWorld::crash_leader() {
  if (!leader_is_alive_) return;
  leader_is_alive_ = false;
  for (std::size_t i = has_own_ ? 1 : 0; i < parts_.size(); ++i) {
    end_conversation(i, arrival(parts_[i]));
  }
  if (has_own_) crash(0);
}

void CheckpointWorld::end_conversation(std::size_t i, Time delay) {
  events_.in(delay, [this, i] { lose_leader(i); });
}

void CheckpointWorld::take(std::size_t i, CourseStep step) {
  Part& part = parts_[i];
  if (!part.is_alive || !part.hears || part.is_undone) return;
  if (part.is_busy) return part.steps.push_back(step);
  if (part.machine.comes(step) != PartMachine::Turn::kNow) {
    return fail(std::string("a step comes when it is not its turn: ") + name_of_step(step));
  }
  part.is_busy = true;
  if (step == CourseStep::kDump) part.dumps_at = events_.now();
  const bool fails = step_fails_ && events_.chance(0.5);
  if (fails) step_fails_ = false;
  events_.in(events_.between(microseconds(100), milliseconds(20)),
             [this, i, step, fails] { took(i, step, fails); });
}

void CheckpointWorld::took(std::size_t i, CourseStep step, bool fails) {
  Part& part = parts_[i];
  if (!part.is_alive) return;
  part.is_busy = false;
  // Who has lost the leader in the midst of the step has ended it by that, or too late.
  const bool is_given_up =
      !part.hears && part.machine.when_lost() == PartMachine::Loss::kGiveUp && events_.chance(0.5);
  if (fails || is_given_up) {
    trace("host " + std::to_string(i) + " fails: " + name_of_step(step));
    part.is_named = part.machine.when_lost() == PartMachine::Loss::kNothing;
    undo(i);
    return answer(i, false);
  }
  switch (step) {
    case CourseStep::kFreeze:
      part.programs = Programs::kFrozen;
      part.frozen_at = events_.now();
      break;
    case CourseStep::kDump:
      part.programs = Programs::kDumped;
      part.dumped_at = events_.now();
      break;
    case CourseStep::kEnd:
      part.programs = kind_ == Kind::kStop ? Programs::kEnded : Programs::kRunning;
      part.goes_on_at = events_.now();
      break;
    case CourseStep::kRestore: part.programs = Programs::kRestored; break;
    case CourseStep::kGoOn: part.programs = Programs::kRunning; break;
    default: break;
  }
  part.machine.taken();
  if (!part.hears) return settle(i);
  answer(i, true);
  if (part.steps.empty()) return;
  const CourseStep next = part.steps.front();
  part.steps.pop_front();
  take(i, next);
}

void CheckpointWorld::answer(std::size_t i, bool is_taken) {
  if (!parts_[i].hears) return;
  events_.in(arrival(parts_[i]), [this, i, is_taken] {
    if (!leader_is_alive_ || is_over_ || !parts_[i].is_heard || !leader_->awaits(i)) return;
    if (is_taken) {
      leader_->answered(i);
    } else {
      parts_[i].is_heard = false;
      leader_->failed(i);
    }
    if (is_taken && options_.lacking == Lacking::kWaitingForAll) {
      for (std::size_t other = 0; other < parts_.size(); ++other) leader_->answered(other);
    }
    lead();
  });
}

void CheckpointWorld::lose_leader(std::size_t i) {
  Part& part = parts_[i];
  if (!part.is_alive || !part.hears) return;
  part.hears = false;
  trace("host " + std::to_string(i) + " loses the leader");
  if (!part.is_busy) settle(i);
}

void CheckpointWorld::settle(std::size_t i) {
  switch (parts_[i].machine.when_lost()) {
    case PartMachine::Loss::kGiveUp: return undo(i);
    case PartMachine::Loss::kAskStore:
      if (options_.lacking == Lacking::kAskingStore) return undo(i);
      ++totals_.asked_store;
      return ask_store(i);
    default: return;
  }
}

void CheckpointWorld::ask_store(std::size_t i) {
  Part& part = parts_[i];
  if (!part.is_alive) return;
  if (is_store_down()) {
    if (is_leader(i)) return undo(i);  // who leads is not lost, and has failed with the store
    return events_.in(milliseconds(100), [this, i] { ask_store(i); });
  }
  const bool is_so = part.verdict ? part.verdict->goes_on() : part.completion->is_complete();
  trace("host " + std::to_string(i) + " asks the store: " + (is_so ? "yes" : "no"));
  if (!is_so) return undo(i);
  part.programs = part.verdict ? Programs::kRunning : Programs::kEnded;
}

void CheckpointWorld::undo(std::size_t i) {
  Part& part = parts_[i];
  part.is_undone = true;
  if (kind_ == Kind::kRestart) {
    part.programs = Programs::kAbsent;
  } else if (part.programs != Programs::kRunning) {
    part.programs = Programs::kRunning;
    part.goes_on_at = events_.now();
  }
}

// CRIU ends with its ferryd: what it has frozen goes on, and what it has restored, and does not run yet, ends.
void CheckpointWorld::crash(std::size_t i) {
  Part& part = parts_[i];
  if (!part.is_alive) return;
  part.is_alive = false;
  if (kind_ == Kind::kRestart) {
    if (part.programs == Programs::kRestored) part.programs = Programs::kAbsent;
  } else if (part.programs != Programs::kEnded && part.programs != Programs::kRunning) {
    part.programs = Programs::kRunning;
    part.goes_on_at = events_.now();
  }
  events_.in(arrival(part), [this, i] { lose(i); });
}

bool CheckpointWorld::is_complete() const {
  return std::filesystem::exists(options_.directory + "/" + kId);
}

void CheckpointWorld::check_end() {
  if (leader_is_alive_ && !is_over_) return fail("it never ends");
  const bool goes_on =
      kind_ == Kind::kRestart
          ? std::any_of(parts_.begin(), parts_.end(),
                        [](const Part& part) {
                          return part.is_alive && part.programs == Programs::kRunning;
                        })
          : !(kind_ == Kind::kStop && is_complete());
  const Programs wanted = goes_on                   ? Programs::kRunning
                          : kind_ == Kind::kRestart ? Programs::kAbsent
                                                    : Programs::kEnded;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (!part.is_alive || part.is_named || part.programs == wanted) continue;
    return fail("the programs of host " + std::to_string(i) +
                (goes_on ? " do not go on, those of others do" : " go on, those of others do not"));
  }
  const bool is_decided = leader_is_alive_ && leader_->is_decided();
  if (kind_ != Kind::kRestart) {
    if (is_decided && !is_complete()) return fail("a checkpoint is reported that is not complete");
    if (is_complete()) check_cut();
    if (leader_is_alive_ && !is_complete() && !std::filesystem::is_empty(options_.directory)) {
      fail("something is left of a checkpoint that was given up");
    }
  } else if (leader_is_alive_ && is_decided != goes_on && parts_.size() > 1 &&
             std::all_of(parts_.begin(), parts_.end(),
                         [](const Part& part) { return part.is_alive && !part.is_named; })) {
    fail("what is reported of a restart is not so");
  }
}

// All images are of one moment: none was begun before all programs stood still, and none went on before all were there.
void CheckpointWorld::check_cut() {
  for (const auto& one : parts_) {
    for (const auto& other : parts_) {
      if (!one.frozen_at || !other.dumps_at || *other.dumps_at < *one.frozen_at) {
        return fail("an image was begun before all programs stood still");
      }
      if (one.goes_on_at && (!other.dumped_at || *one.goes_on_at < *other.dumped_at)) {
        return fail("a program went on before all images were there");
      }
    }
  }
}

std::string CheckpointWorld::describe() const {
  std::ostringstream text;
  text << (kind_ == Kind::kRestart ? "restart"
           : kind_ == Kind::kStop  ? "stop"
                                   : "checkpoint")
       << " on " << parts_.size() << " hosts" << (has_own_ ? ", the leader's among them" : "");
  for (std::size_t i = 0; i < totals_.troubles.size(); ++i) {
    if (totals_.troubles[i] > 0) text << ", " << name_of(static_cast<Trouble>(i));
  }
  return text.str();
}

NetworkPart network_part(std::size_t hosts, Time way, Time work) {
  LeadMachine leader(host::kCheckpointCourse, hosts);
  std::vector<PartMachine> parts(hosts, PartMachine(host::kCheckpointCourse));
  Events events(1);
  NetworkPart network;
  Time began{0}, free{0};  // free: when the leader's processor is
  std::function<void()> lead;
  const auto use_processor = [&] {
    free = std::max(free, events.now()) + work / 2;
    return free - events.now();
  };
  const auto answered = [&](std::size_t i) {
    events.in(use_processor(), [&, i] {
      leader.answered(i);
      if (leader.is_taken() && leader.step() == CourseStep::kEnd) {
        network.time = events.now() - began;
      }
      lead();
    });
  };
  lead = [&] {
    switch (leader.next()) {
      case LeadMachine::Action::kTell: {
        const CourseStep step = leader.step();
        const bool counts =
            step == CourseStep::kFreeze || step == CourseStep::kDump || step == CourseStep::kEnd;
        if (step == CourseStep::kFreeze) began = events.now();
        network.rounds += counts ? 1 : 0;
        for (std::size_t i = 0; i < hosts; ++i) {
          network.messages += counts ? 2 : 0;
          events.in(use_processor() + way, [&, i, step] {
            if (parts[i].comes(step) == PartMachine::Turn::kNow) parts[i].taken();
            events.in(way, [&, i] { answered(i); });
          });
        }
        return;
      }
      case LeadMachine::Action::kDecide: leader.decided(true); return lead();
      default: return;
    }
  };
  lead();
  while (events.step()) continue;
  return network;
}

}  // namespace ferry::simulation
