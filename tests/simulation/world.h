#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host/journal/decision.h"
#include "host/journal/journal.h"
#include "host/move/machine/arrival_machine.h"
#include "host/move/machine/move_machine.h"
#include "host/standin/stand_in_term.h"
#include "port/slot.h"
#include "program.h"
#include "transport/migration/stand_in.h"

// Whole moves, simulated: programs in a ring of RC connections on hosts with a ferryd each, which
// move while they send, with lost packets, crashes of ferryds, cuts of the links between them,
// disks that fail, hosts that are rebooted, at every step. Everything follows from the seed.
//
// Real are the transport with its migration protocol and stand-ins (src/transport), both sides of a
// move from its check to its end (src/host/move/machine/move_machine.h, arrival_machine.h), their decisions,
// the journal of a host with its lines, and the term of its stand-ins
// (src/host/journal/decision.h, journal.h, src/host/standin/stand_in_term.h). Played are the
// processes, CRIU, the calls between ferryds and the disks; they keep to what src/host and src/criu
// do:
//
//   check · prepare · stop · freeze (dump) · transfer · restore · held · record · commit · resume
//
// Programs that are on one host move as a group now and then: all, or none. So do programs of several hosts, with a
// ferryd that leads their move until all are about to be stopped (src/host/move/several/lead.h).
//
// Now and then somebody restores an old image a second time, after the move; nobody believes it.
//
// CRIU and the programs outlive a ferryd that crashes, and ask the one that is started again. That
// one knows what it reads in the journal, and nothing else. A host that is rebooted may have lost
// the end of it, but nothing from before the last decision.
namespace ferry::simulation {

enum class Step : std::uint8_t {
  kCheck,
  kPrepare,
  kStop,
  kTaken,
  kTransfer,
  kRestore,
  kHeld,
  kRecord,
  kRecorded,
  kCommit,
  kCommitted,
  kResume,
  kLead,
  kCount
};
enum class Fault : std::uint8_t { kSelf, kOther, kBoth, kCut, kReboot, kDisk, kCriu, kCount };
const char* name_of(Step step);
const char* name_of(Fault fault);

// Guards of a move that a run may do without, to see that the simulation finds it out.
enum class Without : std::uint8_t {
  kNothing,
  kAskingAgain,    // a restarted source takes its own promise for the commit
  kRecordThere,    // the destination says that it has committed before that is on record
  kStayingFrozen,  // the source thaws the program when the destination does not answer
  kRevoking,       // a promise whose fsync failed is taken for none
  kStandInTerm,    // stand-ins end when the program leaves its new place
  kSilentArrival,  // what was restored goes on without waiting for the commit
  kStandInsAgain,  // a restarted ferryd does not answer on the sockets of what it had stopped
  kOneDecision,    // each program of a group is decided by itself
  kOneRecord,      // the moves of a group are recorded one after the other
  kAllPromises,    // of several hosts the first one that has promised decides for all
};

struct Options {
  std::uint64_t seed = 1;
  Without without = Without::kNothing;
  double disk_faults = 0.5;  // for each fault of another kind
  bool trace = false;        // every packet and step on stdout
};

struct Totals {
  std::uint64_t schedules = 0, programs = 0, moves = 0, commits = 0, rollbacks = 0, requests = 0,
                packets = 0, settled = 0, stand_ins_expired = 0, overlapping = 0, again = 0,
                ghosts = 0, groups = 0, groups_committed = 0, several = 0, several_committed = 0;
  std::array<std::array<std::uint64_t, std::size_t(Fault::kCount)>, std::size_t(Step::kCount)>
      faults{};
  Totals& operator+=(const Totals& other);
};
std::string to_json(const Totals& totals);

class World {
 public:
  explicit World(const Options& options);
  ~World();
  // What went wrong; empty: nothing.
  std::string run();
  const Totals& totals() const { return totals_; }
  std::string describe() const;

 private:
  using MoveId = std::uint64_t;
  using Place = Copy::Place;
  using Ids = std::vector<MoveId>;
  struct Move;
  struct Group;
  struct Lead;
  struct Arrival;
  struct ArrivalGroup;
  struct StandInSocket;
  struct Host;
  struct Reply {
    bool ok = false;
    host::Answer answer = host::Answer::kUnknown;
    Place place;
  };
  using Done = std::function<void(const std::optional<Reply>&)>;
  using Respond = std::function<void(const Reply&)>;

  // world.cc
  void set_up();
  void play(int program, Time interval, Time next);
  void fail(const std::string& what);
  void trace(const std::string& what) const;
  bool over() const;
  void goes_live(const std::shared_ptr<Copy>& copy);
  std::shared_ptr<Copy> live(int program) const;
  Time a_while(Time most) { return events_.between(microseconds(10), most); }

  // world_faults.cc
  bool fault(Step step, int self, int other);
  void crash(int host);
  void restart(int host);
  bool can_reboot(int host) const;
  void reboot(int host);
  void cut(int a, int b);
  bool is_cut(int a, int b) const;
  host::Written write(int host, const Ids& moves, host::Side side, host::Decision decision,
                      Step step);
  bool write_one(int host, const Ids& moves, host::Side side, host::Decision decision, Step step,
                 host::Written* written);
  void note_over(int host, MoveId move, host::Side side);
  void note_forgotten(int host, MoveId move, host::Side side);
  void note_if_possible(int host, const std::string& line);
  std::optional<host::Decision> on_record(int host, MoveId move, host::Side side) const;
  void call(int from, int to, std::function<void(const Respond&)> handle, Done done);

  // world_source.cc
  void order(int program, unsigned left);
  std::vector<std::shared_ptr<Move>> gather(int program);
  std::vector<std::shared_ptr<Copy>> members(const std::shared_ptr<Copy>& first, int to);
  void lead(const std::shared_ptr<Lead>& lead);
  void take_step(const std::shared_ptr<Group>& group, unsigned step, const Respond& respond);
  void tell_leader(const std::shared_ptr<Group>& group);
  void watch_leader(const std::shared_ptr<Group>& group);
  bool is_being_moved(const Host& host, int program) const;
  void outcome(MoveId id, bool committed);
  void advance(const std::shared_ptr<Group>& group);
  void begin(const std::shared_ptr<Move>& move, host::MoveMachine::Action action);
  void begin(const std::shared_ptr<Group>& group, host::MoveMachine::Step step);
  bool happened(const std::shared_ptr<Move>& move, host::MoveMachine::Event event);
  void give_up(const std::shared_ptr<Group>& group);
  bool leads(const Move& move) const;
  void check(const std::shared_ptr<Move>& move, unsigned tries);
  void prepare(const std::shared_ptr<Move>& move);
  void dump(const std::shared_ptr<Move>& move);
  void freeze(const std::shared_ptr<Move>& move);
  void transfer(const std::shared_ptr<Move>& move);
  void restore(const std::shared_ptr<Move>& move);
  void leave(const std::shared_ptr<Move>& move);
  void give_back(const std::shared_ptr<Move>& move);
  void record_promise(const std::shared_ptr<Group>& group);
  void record_outcome(const std::shared_ptr<Group>& group);
  void ask_commit(const std::shared_ptr<Group>& group);
  void ask_abort(const std::shared_ptr<Group>& group);
  void answered(const std::shared_ptr<Group>& group, const std::optional<Reply>& reply);
  void poll_dump(const std::shared_ptr<Copy>& copy, MoveId id);
  void thaw(const std::shared_ptr<Copy>& copy);
  void recover(int host, MoveId id, const host::Journal::Entry& entry);
  std::optional<host::Decision> promise_of(int host, MoveId id) const;
  host::SourceDecision decision_of(int host, MoveId id) const;
  host::Stamp stamp(int host) const;
  void stand_in(int host, MoveId id);
  void follow(int host, MoveId id);
  host::Answer source_says(int host, MoveId id) const;

  // world_destination.cc
  void arrive(int host, const std::shared_ptr<Move>& move, const Respond& respond);
  void restore_there(int host, const std::shared_ptr<Move>& move, const Respond& respond);
  void advance(const std::shared_ptr<ArrivalGroup>& group);
  void record(const std::shared_ptr<ArrivalGroup>& group, host::ArrivalMachine::Step step);
  void answer_restores(const std::shared_ptr<ArrivalGroup>& group);
  void ask_source(const std::shared_ptr<ArrivalGroup>& group, std::size_t source);
  void begin(const std::shared_ptr<Arrival>& arrival, host::ArrivalMachine::Action action);
  bool happened(const std::shared_ptr<Arrival>& arrival, host::ArrivalMachine::Event event);
  void run_criu(const std::shared_ptr<Arrival>& arrival);
  void undo(const std::shared_ptr<Arrival>& arrival);
  void commit(int host, MoveId id, const Respond& respond);
  host::Answer abort(int host, MoveId id);
  void recover_arrival(int host, MoveId id, const host::Journal::Entry& entry);
  void forget_ended(int host, MoveId id);
  void poll_restore(const std::shared_ptr<Copy>& copy, MoveId id);
  void awake(const std::shared_ptr<Copy>& copy);
  std::optional<bool> wake(const std::shared_ptr<Copy>& copy);
  void report(const std::shared_ptr<Copy>& copy, MoveId id, int source);
  void restore_again(MoveId id);

  const Options options_;
  Events events_;
  Network network_;
  std::string failure_;
  Totals totals_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::shared_ptr<Copy>> copies_;
  std::vector<std::shared_ptr<Copy>> ghosts_;      // of images that were restored again
  std::map<MoveId, std::shared_ptr<Image>> kept_;  // images that somebody keeps
  std::map<std::pair<int, int>, Time> cuts_;       // until
  unsigned programs_ = 0, faults_left_ = 0;
  unsigned orders_ = 0;  // moves to come
  std::set<MoveId> under_way_;
  // As nobody in there knows it: which moves are to have one end, and what came of it.
  std::map<MoveId, MoveId> together_;
  std::map<MoveId, bool> outcomes_;
  std::set<MoveId> several_;  // the first moves of those of several hosts
  double fault_probability_ = 0;
  std::uint32_t last_slot_ = 0;
  MoveId last_move_ = 0;
  Time idle_until_{0};
};

// Moves that are decided as one; of a program that moves alone, one.
struct World::Group {
  explicit Group(host::MoveMachine&& its) : machine(std::move(its)) {}
  int from = 0, to = 0;
  unsigned life = 0;  // of the ferryd that leads it
  std::vector<std::weak_ptr<Move>> moves;
  Ids record;                                   // the moves that its records are of
  Ids all;                                      // those of all hosts
  std::vector<std::pair<int, MoveId>> sources;  // hosts, and the first move of each
  std::size_t source = 0, first = 0;  // which of these it is; index of its first move in `all`
  std::shared_ptr<Lead> lead;         // with others
  bool is_on_its_own = false;         // nobody leads it any more
  Respond reached;                    // tells the leader
  host::MoveMachine machine;
  bool counts = true;      // its end is one to count
  bool is_former = false;  // a former ferryd has led it
  std::optional<Time> alarm_at;
};

// The ferryd that leads the move of programs of several hosts.
struct World::Lead {
  int on = 0;
  unsigned life = 0;
  std::vector<std::weak_ptr<Group>> groups;
  unsigned step = 0;
  std::size_t waits_for = 0;
  bool is_over = false;  // given up, or all are on their own
};

struct World::Move {
  MoveId id = 0;
  int program = 0, from = 0, to = 0;
  unsigned life = 0;           // of the ferryd that leads it
  std::shared_ptr<Copy> copy;  // not of a former ferryd's
  Place new_place;
  std::shared_ptr<Image> image;
  std::shared_ptr<Group> group;
  std::size_t index = 0;  // in the group
  bool stopped = false;
};

struct World::ArrivalGroup {
  explicit ArrivalGroup(host::ArrivalMachine&& its) : machine(std::move(its)) {}
  int on = 0;
  std::vector<std::pair<int, MoveId>> sources;  // hosts, and the first move of each
  unsigned life = 0;                            // of the ferryd that leads it
  Ids record;                                   // the moves that its records are of
  std::vector<std::weak_ptr<Arrival>> arrivals;
  host::ArrivalMachine machine;
  std::optional<Time> alarm_at;
};

struct World::Arrival {
  MoveId id = 0;
  int on = 0, from = 0;
  Place place;
  std::shared_ptr<ArrivalGroup> group;
  std::size_t index = 0, source = 0;
  int program = -1;
  std::shared_ptr<Image> image;
  Respond restored;            // tells the source
  std::shared_ptr<Copy> copy;  // when it is held
  bool taken = false;          // its process has the socket
  host::ArrivalMachine::State state() const { return group->machine.state(index); }
  bool is_undone() const {
    return state() == host::ArrivalMachine::State::kUndoing ||
           state() == host::ArrivalMachine::State::kUndone;
  }
};

struct World::StandInSocket {
  Place place;
  std::unique_ptr<transport::StandIn> stand_in;
};

struct World::Host {
  bool up = true;
  unsigned life = 1, boots = 1;
  // The journal's file; what a reboot certainly leaves of it.
  std::string disk;
  std::size_t synced = 0;
  Time bad_until{0};            // writing does not work
  Time away_since{0}, away{0};  // since then the ferryd was not there for so long, in all
  // Of the ferryd that runs.
  host::Journal journal;
  std::map<MoveId, std::shared_ptr<Move>> moves;
  std::map<MoveId, std::shared_ptr<Arrival>> arrivals;
  std::map<MoveId, std::weak_ptr<ArrivalGroup>> groups;  // by its first move
  std::map<MoveId, std::shared_ptr<StandInSocket>> stand_ins;
  std::map<MoveId, host::StandInTerm> terms;  // of the committed ones

  void note(const std::string& line);
  host::Journal read() const;
};

// One process with one slot, as the journal has it.
host::Held held(const Copy::Place& place, int peer,
                const std::vector<std::vector<std::byte>>& entries = {});
const rnic::Slot& slot_of(const host::ProcessSlots& place);
Copy::Place place_of(const host::ProcessSlots& place);
int peer_of(const host::Journal::Entry& entry);

}  // namespace ferry::simulation
