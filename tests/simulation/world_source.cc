#include "world.h"

#include <algorithm>
#include <utility>

// The source's side of a move: what a ferryd does for its MoveMachine (src/host/move/source/move.cc,
// former_move.cc), and CRIU's dump.
namespace ferry::simulation {

using host::Answer;
using host::Decision;
using host::MoveMachine;
using host::Side;
using host::SourceDecision;
using host::Stamp;
using host::Written;

bool World::is_being_moved(const Host& host, int program) const {
  return std::any_of(host.moves.begin(), host.moves.end(), [program](const auto& item) {
    return item.second->program == program && !item.second->group->machine.decision().decided();
  });
}

void World::order(int program, unsigned left) {
  const auto again = [&](Time most, unsigned times) {
    events_.in(a_while(most), [this, program, times] { order(program, times); });
  };
  if (left == 0) {
    --orders_;
    return;
  }
  const auto moves = gather(program);
  if (moves.empty()) return again(milliseconds(200), left);
  if (const auto leader = moves.front()->group->lead) {
    for (const auto& group : leader->groups) watch_leader(group.lock());
    lead(leader);
  } else {
    for (const auto& move : moves) advance(move->group);
  }
  again(events_.chance(0.5) ? milliseconds(20) : milliseconds(2000), left - 1);
}

// The programs that move with the first one: now and then others of its host, or of other hosts too; by their hosts.
std::vector<std::shared_ptr<Copy>> World::members(const std::shared_ptr<Copy>& first, int to) {
  std::vector<std::shared_ptr<Copy>> all{first};
  const bool as_one = options_.without != Without::kOneDecision;
  const bool together = events_.chance(0.7), with_others = events_.chance(0.4) && as_one;
  for (unsigned p = 0; together && p < programs_; ++p) {
    const auto other = live(static_cast<int>(p));
    if (!other || other == first || other->stopped || other->on == to) continue;
    const Host& host = *hosts_.at(other->on);
    if ((!with_others && other->on != first->on) || !host.up) continue;
    if (!is_being_moved(host, other->program)) all.push_back(other);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a->on < b->on; });
  return all;
}

// The program, and those that move with it; nothing when it cannot be moved now.
std::vector<std::shared_ptr<World::Move>> World::gather(int program) {
  const auto copy = live(program);
  if (!copy || copy->stopped || !hosts_.at(copy->on)->up) return {};
  if (is_being_moved(*hosts_.at(copy->on), program)) return {};
  int to = static_cast<int>(events_.pick(0, hosts_.size() - 2));
  if (to >= copy->on) ++to;
  const auto all = members(copy, to);
  const bool as_one = options_.without != Without::kOneDecision;
  std::map<int, std::size_t> programs_of;  // by host
  for (const auto& member : all) ++programs_of[member->on];
  const MoveId first = last_move_ + 1;
  std::shared_ptr<Lead> leader;
  if (programs_of.size() > 1) {
    leader = std::make_shared<Lead>();
    leader->on = static_cast<int>(events_.pick(0, hosts_.size() - 1));
    if (!hosts_.at(leader->on)->up) leader->on = copy->on;
    leader->life = hosts_.at(leader->on)->life;
    several_.insert(first);
    ++totals_.several;
  }
  if (all.size() > 1) ++totals_.groups;
  Ids ids;
  std::vector<std::pair<int, MoveId>> sources;
  std::vector<std::shared_ptr<Move>> moves;
  std::shared_ptr<Group> group;
  for (const auto& member : all) {
    Host& host = *hosts_.at(member->on);
    auto move = std::make_shared<Move>();
    move->id = ++last_move_;
    move->program = member->program;
    move->from = member->on;
    move->to = to;
    move->life = host.life;
    move->copy = member;
    if (!group || !as_one || group->from != member->on) {
      const Time standstill =
          events_.chance(0.2) ? events_.between(milliseconds(10), milliseconds(120)) : seconds(20);
      group = std::make_shared<Group>(
          MoveMachine(as_one ? programs_of.at(member->on) : 1, standstill, leader != nullptr));
      group->from = move->from;
      group->to = to;
      group->life = host.life;
      group->lead = leader;
      if (leader) group->source = sources.size();
      if (leader) group->first = ids.size();
      sources.emplace_back(member->on, move->id);
      if (leader) leader->groups.push_back(group);
    }
    ids.push_back(move->id);
    move->group = group;
    move->index = group->moves.size();
    group->record.push_back(move->id);
    group->moves.push_back(move);
    together_[move->id] = first;
    host.moves.emplace(move->id, move);
    ++totals_.moves;
    if (!under_way_.empty()) ++totals_.overlapping;
    if (member->move != 0 && !member->done()) ++totals_.again;
    under_way_.insert(move->id);
    trace("move " + std::to_string(move->id) + ": program " + std::to_string(move->program) +
          " from host " + std::to_string(move->from) + " to " + std::to_string(move->to) +
          (all.size() > 1 ? ", of group " + std::to_string(first) : "") +
          (leader ? ", led by host " + std::to_string(leader->on) : ""));
    moves.push_back(std::move(move));
  }
  for (const auto& move : moves) {
    move->group->all = ids;
    move->group->sources = sources;
  }
  return moves;
}

// --- moves of several hosts

// The leader has all take the next step, when all have taken the last one.
void World::lead(const std::shared_ptr<Lead>& lead) {
  constexpr unsigned kSteps = 4;  // check, prepare, copy, and to go on without a leader
  if (hosts_[lead->on]->life != lead->life || lead->is_over) return;
  lead->waits_for = lead->groups.size();
  for (const auto& weak : lead->groups) {
    const auto group = weak.lock();
    lead->is_over = !group;
    if (!group || fault(Step::kLead, lead->on, group->from)) return;
    call(
        lead->on, group->from,
        [this, group, step = lead->step](const Respond& respond) {
          take_step(group, step, respond);
        },
        [this, lead](const auto& reply) {
          if (!reply || !reply->ok) lead->is_over = true;
          if (lead->is_over || --lead->waits_for > 0) return;
          if (++lead->step == kSteps) {
            lead->is_over = true;
          } else {
            this->lead(lead);
          }
        });
  }
}

void World::take_step(const std::shared_ptr<Group>& group, unsigned step, const Respond& respond) {
  constexpr unsigned kLast = 3;
  if (hosts_[group->from]->life != group->life) return respond({});
  group->is_on_its_own = group->is_on_its_own || step == kLast;
  group->machine.others_came();
  if (step == kLast) respond({.ok = true});
  if (step != kLast) group->reached = respond;
  advance(group);
}

void World::tell_leader(const std::shared_ptr<Group>& group) {
  const bool is_decided = group->machine.decision().decided();
  if (!group->reached || (!is_decided && !group->machine.waits_for_others())) return;
  std::exchange(group->reached, nullptr)({.ok = !is_decided});
}

// A source whose leader has gone, or has given up, gives up too.
void World::watch_leader(const std::shared_ptr<Group>& group) {
  events_.in(a_while(milliseconds(200)), [this, group] {
    const Lead& lead = *group->lead;
    if (hosts_[group->from]->life != group->life || group->is_on_its_own ||
        group->machine.decision().decided()) {
      return;
    }
    const bool is_gone = lead.is_over || hosts_[lead.on]->life != lead.life ||
                         (lead.on != group->from && is_cut(lead.on, group->from));
    if (is_gone) return give_up(group);
    watch_leader(group);
  });
}

// No move of a group ends otherwise than another.
void World::outcome(MoveId id, bool committed) {
  const auto [known, is_first] = outcomes_.emplace(together_.at(id), committed);
  if (known->second != committed) fail("a group is moved in part");
  const bool is_group = together_.contains(id + 1) && together_.at(id + 1) == id;
  if (is_first && committed && (is_group || together_.at(id) != id)) ++totals_.groups_committed;
  if (is_first && committed && several_.contains(together_.at(id))) ++totals_.several_committed;
}

// --- the machine's owner

void World::advance(const std::shared_ptr<Group>& group) {
  if (hosts_[group->from]->life != group->life) return;
  MoveMachine& machine = group->machine;
  for (const auto& weak : group->moves) {
    const auto move = weak.lock();
    if (!move) continue;
    const auto action = machine.next(move->index, events_.now());
    if (action != MoveMachine::Action::kNone) begin(move, action);
    if (hosts_[group->from]->life != group->life) return;
  }
  const auto step = machine.step(events_.now());
  if (step != MoveMachine::Step::kNone) begin(group, step);
  tell_leader(group);
  const auto at = machine.deadline();
  if (!at || (group->alarm_at && *group->alarm_at <= *at)) return;
  group->alarm_at = at;
  events_.in(std::max(*at - events_.now(), Time(0)), [this, group, at = *at] {
    if (group->alarm_at != at) return;
    group->alarm_at.reset();
    if (hosts_[group->from]->life != group->life) return;
    group->machine.time_passed(events_.now());
    advance(group);
  });
}

void World::begin(const std::shared_ptr<Move>& move, MoveMachine::Action action) {
  switch (action) {
    case MoveMachine::Action::kNone: return;
    case MoveMachine::Action::kCheck: return check(move, 0);
    case MoveMachine::Action::kPrepare: return prepare(move);
    case MoveMachine::Action::kCopyAhead: happened(move, MoveMachine::Event::kCopied); return;
    case MoveMachine::Action::kDump: return dump(move);
    case MoveMachine::Action::kTransfer: return transfer(move);
    case MoveMachine::Action::kRestore: return restore(move);
    case MoveMachine::Action::kLeave: return leave(move);
    case MoveMachine::Action::kFollow: return follow(move->from, move->id);
    case MoveMachine::Action::kReturn: return give_back(move);
  }
}

void World::begin(const std::shared_ptr<Group>& group, MoveMachine::Step step) {
  switch (step) {
    case MoveMachine::Step::kNone: return;
    case MoveMachine::Step::kRecordPromise: return record_promise(group);
    case MoveMachine::Step::kAskCommit: return ask_commit(group);
    case MoveMachine::Step::kAskAbort: return ask_abort(group);
    case MoveMachine::Step::kRecordOutcome: return record_outcome(group);
  }
}

bool World::happened(const std::shared_ptr<Move>& move, MoveMachine::Event event) {
  const bool has_happened = move->group->machine.happened(move->index, event);
  advance(move->group);
  return has_happened;
}

// Something failed. It is too late when the promise is on record.
void World::give_up(const std::shared_ptr<Group>& group) {
  group->machine.failed();
  advance(group);
}

bool World::leads(const Move& move) const {
  return hosts_[move.from]->life == move.life && !move.group->machine.decision().decided();
}

// --- its actions

void World::check(const std::shared_ptr<Move>& move, unsigned tries) {
  if (!leads(*move)) return;
  if (!move->copy->peers_are_known()) {
    if (tries == 200) return give_up(move->group);
    move->copy->prepare();
    events_.in(milliseconds(20), [this, move, tries] { check(move, tries + 1); });
    return;
  }
  if (fault(Step::kCheck, move->from, move->to)) return;
  call(
      move->from, move->to, [](const Respond& respond) { respond({.ok = true}); },
      [this, move](const auto& reply) {
        if (!reply) return give_up(move->group);
        happened(move, MoveMachine::Event::kChecked);
      });
}

void World::prepare(const std::shared_ptr<Move>& move) {
  if (fault(Step::kPrepare, move->from, move->to)) return;
  call(
      move->from, move->to,
      [this, move](const Respond& respond) { arrive(move->to, move, respond); },
      [this, move](const auto& reply) {
        if (!reply || !reply->ok) return give_up(move->group);
        move->new_place = reply->place;
        happened(move, MoveMachine::Event::kPrepared);
      });
}

// CRIU lets the ferryd stop the program, freezes it and writes its image.
void World::dump(const std::shared_ptr<Move>& move) {
  Copy& copy = *move->copy;
  if (fault(Step::kStop, move->from, move->to)) return;
  if (copy.dead || !copy.runs || copy.stopped) return give_up(move->group);
  Host& host = *hosts_[move->from];
  const auto entries = copy.stop();
  note_over(move->from, copy.move, Side::kDestination);  // that brought it here
  forget_ended(move->from, copy.move);
  if (const auto before = host.arrivals.find(copy.move); before != host.arrivals.end()) {
    const auto arrival = before->second;
    host.arrivals.erase(before);
    if (!happened(arrival, host::ArrivalMachine::Event::kEnded)) fail("it moves and is not here");
  }
  copy.move = move->id;
  move->stopped = true;
  host.note(host::Journal::held(move->id, Side::kSource, held(copy.place, move->to, entries)));
  network_.stop_reading(copy.place.at);
  stand_in(move->from, move->id);
  happened(move, MoveMachine::Event::kStopped);
  events_.in(a_while(milliseconds(5)), [this, move] { freeze(move); });
  fault(Step::kTaken, move->from, move->to);
}

// Without its ferryd the dump fails.
void World::freeze(const std::shared_ptr<Move>& move) {
  const bool fails = faults_left_ > 0 && events_.chance(fault_probability_ / 4);
  if (fails) {
    --faults_left_;
    ++totals_.faults[std::size_t(Step::kTaken)][std::size_t(Fault::kCriu)];
  }
  const bool same = hosts_[move->from]->life == move->life;
  if (fails && same) give_up(move->group);
  if (!same || !happened(move, MoveMachine::Event::kFrozen)) return awake(move->copy);
  move->copy->runs = false;
  poll_dump(move->copy, move->id);
  events_.in(a_while(milliseconds(30)), [this, move] {
    if (leads(*move)) happened(move, MoveMachine::Event::kDumped);
  });
}

void World::transfer(const std::shared_ptr<Move>& move) {
  if (fault(Step::kTransfer, move->from, move->to)) return;
  move->image = std::make_shared<Image>(move->copy->image());
  if (events_.chance(0.05)) kept_[move->id] = move->image;
  happened(move, MoveMachine::Event::kTransferred);
}

void World::restore(const std::shared_ptr<Move>& move) {
  call(
      move->from, move->to,
      [this, move](const Respond& respond) { restore_there(move->to, move, respond); },
      [this, move](const auto& reply) {
        if (!reply || !reply->ok) return give_up(move->group);
        happened(move, MoveMachine::Event::kRestored);
      });
}

// The stand-in goes on for what is left of its term.
void World::leave(const std::shared_ptr<Move>& move) {
  const int number = move->from;
  const MoveId id = move->id;
  Host& host = *hosts_.at(number);
  under_way_.erase(id);
  trace("move " + std::to_string(id) + " is committed");
  if (move->group->counts) ++totals_.commits;
  const Stamp now = stamp(number);
  if (!host.journal.find(id, Side::kSource)->since) {
    host.note(host::Journal::since(id, now));
  }
  const auto& entry = *host.journal.find(id, Side::kSource);
  if (const auto socket = host.stand_ins.find(id); socket != host.stand_ins.end()) {
    const Place place = place_of(entry.going->places.at(0));
    const Time since = events_.now() - host::age_of(*entry.since, now);
    // The numbers of moves rise, as an RNIC's count of its stops does.
    const auto stops = static_cast<std::uint32_t>(id);
    socket->second->stand_in->committed(place.at, place.slot, stops, since);
    const auto term = host.terms.emplace(id, host::StandInTerm(since)).first;
    if (entry.left)
      term->second.program_left(events_.now() - host::age_of(*entry.left, now),
                                transport::MigrationSettings().paused_limit);
  }
  happened(move, MoveMachine::Event::kLeft);
}

// What was stopped waits for the word: its process asks (wake()).
void World::give_back(const std::shared_ptr<Move>& move) {
  trace("move " + std::to_string(move->id) + " is aborted");
  if (move->group->counts) ++totals_.rollbacks;
  under_way_.erase(move->id);
  // Of a former ferryd's move nothing may be left here, and its commit be forgotten on both sides.
  if (move->group->is_former) return;
  outcome(move->id, false);
  call(
      move->from, move->to,
      [this, move](const Respond& respond) {
        respond({true, abort(move->to, move->id), {}});
      },
      [](const auto&) {});
  if (!move->stopped) {
    hosts_[move->from]->moves.erase(move->id);
    happened(move, MoveMachine::Event::kReturned);
  }
}

// --- its steps

void World::record_promise(const std::shared_ptr<Group>& group) {
  for (const auto& weak : group->moves) {
    const auto move = weak.lock();
    if (!move) continue;
    const auto there = held(move->new_place, move->to).processes.at(0).place;
    hosts_[group->from]->note(host::Journal::going(move->id, {"", {there}}));
  }
  if (fault(Step::kRecord, group->from, group->to)) return;
  const Written written =
      write(group->from, group->record, Side::kSource, Decision::kCommitted, Step::kRecord);
  if (fault(Step::kRecorded, group->from, group->to)) return;
  const bool revokes = options_.without != Without::kRevoking;
  group->machine.written(written == Written::kUnknown && !revokes ? Written::kNot : written);
  advance(group);
}

void World::ask_commit(const std::shared_ptr<Group>& group) {
  const MoveId id = group->moves.front().lock()->id;
  // Another move of its group may have asked.
  if (const auto record = promise_of(group->from, id); record == Decision::kConfirmed) {
    return answered(group, Reply{true, Answer::kCommitted, {}});
  }
  call(
      group->from, group->to,
      [this, to = group->to, id](const Respond& respond) { commit(to, id, respond); },
      [this, group](const auto& reply) { answered(group, reply); });
}

void World::ask_abort(const std::shared_ptr<Group>& group) {
  const MoveId id = group->moves.front().lock()->id;
  call(
      group->from, group->to,
      [this, to = group->to, id](const Respond& respond) {
        respond({true, abort(to, id), {}});
      },
      [this, group](const auto& reply) { answered(group, reply); });
}

void World::answered(const std::shared_ptr<Group>& group, const std::optional<Reply>& reply) {
  MoveMachine& machine = group->machine;
  machine.answered(reply ? reply->answer : Answer::kUnknown, events_.now());
  if (options_.without == Without::kStayingFrozen && !reply && !group->is_former) {
    machine.operator_aborts();
  }
  if (group->is_former && machine.decision().decided()) ++totals_.settled;
  advance(group);
}

void World::record_outcome(const std::shared_ptr<Group>& group) {
  if (fault(Step::kCommitted, group->from, group->to)) return;
  const auto record =
      group->machine.decision().committed() ? Decision::kConfirmed : Decision::kAborted;
  // What cannot be recorded is asked again by the next ferryd.
  if (write(group->from, group->record, Side::kSource, record, Step::kCommitted) !=
      Written::kDurable) {
    hosts_[group->from]->journal.take(
        host::Journal::decision(Side::kSource, {record, "", "", group->record}));
  }
}

// --- CRIU, and what others hear

// The post-dump action: CRIU asks until there is an answer.
void World::poll_dump(const std::shared_ptr<Copy>& copy, MoveId id) {
  if (copy->dead) return;
  const SourceDecision decision =
      hosts_.at(copy->on)->up ? decision_of(copy->on, id) : SourceDecision();
  if (!decision.decided()) {
    events_.in(a_while(milliseconds(100)), [this, copy, id] { poll_dump(copy, id); });
  } else if (decision.committed()) {
    outcome(id, true);
    copy->dead = true;
  } else {
    thaw(copy);
  }
}

void World::thaw(const std::shared_ptr<Copy>& copy) {
  goes_live(copy);
  awake(copy);
}

// A move that a former ferryd has led.
void World::recover(int number, MoveId id, const host::Journal::Entry& entry) {
  Host& host = *hosts_.at(number);
  auto group = std::make_shared<Group>(MoveMachine::recovered(promise_of(number, id)));
  const auto& decision = group->machine.decision();
  group->from = number;
  group->to = peer_of(entry);
  group->life = host.life;
  group->record = entry.record ? entry.record->moves : Ids{id};
  group->is_former = true;
  group->counts = decision.promised();
  auto move = std::make_shared<Move>();
  move->id = id;
  move->program = -1;
  move->from = number;
  move->to = group->to;
  move->life = host.life;
  move->group = group;
  move->stopped = true;
  group->moves.push_back(move);
  host.moves.emplace(id, move);
  advance(group);
}

std::optional<Decision> World::promise_of(int number, MoveId id) const {
  const auto record = on_record(number, id, Side::kSource);
  const bool takes_it_for_the_commit = options_.without == Without::kAskingAgain;
  if (takes_it_for_the_commit && record == Decision::kCommitted) return Decision::kConfirmed;
  return record;
}

SourceDecision World::decision_of(int number, MoveId id) const {
  const Host& host = *hosts_.at(number);
  if (const auto move = host.moves.find(id); move != host.moves.end()) {
    return move->second->group->machine.decision();
  }
  return SourceDecision::recovered(promise_of(number, id));
}

Answer World::source_says(int number, MoveId id) const {
  return decision_of(number, id).answer();
}

// Answers on the old socket, by what the journal has.
void World::stand_in(int number, MoveId id) {
  Host& host = *hosts_.at(number);
  const rnic::Slot slot = slot_of(host.journal.find(id, Side::kSource)->held->processes[0].place);
  auto socket = std::make_shared<StandInSocket>();
  socket->place = {slot.local, slot.slot};
  socket->stand_in = std::make_unique<transport::StandIn>(
      [this, from = slot.local](const port::Endpoint& to, const wire::Header& header,
                                std::span<const std::byte> payload) {
        Datagram datagram{from, to, {}};
        datagram.bytes.resize(wire::packet_size(header.opcode, payload.size()));
        wire::encode_header(header, payload.size(), datagram.bytes);
        std::copy(
            payload.begin(), payload.end(),
            datagram.bytes.begin() + static_cast<std::ptrdiff_t>(wire::header_size(header.opcode)));
        network_.send(std::move(datagram));
      });
  for (const auto& entry : slot.entries) {
    if (!socket->stand_in->add(entry, events_.now())) fail("a stand-in's entry is malformed");
  }
  host.stand_ins[id] = socket;
  network_.read(slot.local, [this, weak = std::weak_ptr(socket)](const Datagram& datagram) {
    const auto alive = weak.lock();
    const auto packet = wire::parse(datagram.bytes);
    if (alive && packet) alive->stand_in->handle_packet(*packet, datagram.from, events_.now());
  });
}

// Until no peer needs the stand-in any more.
void World::follow(int number, MoveId id) {
  const unsigned life = hosts_[number]->life;
  events_.in(seconds(5), [this, number, id, life] {
    Host& host = *hosts_[number];
    const auto socket = host.stand_ins.find(id);
    if (host.life != life || socket == host.stand_ins.end()) return;
    socket->second->stand_in->handle_timeout(events_.now());
    const bool expired = socket->second->stand_in->expired(events_.now());
    if (!host.terms.at(id).over(expired, events_.now())) return follow(number, id);
    ++totals_.stand_ins_expired;
    network_.close(socket->second->place.at);
    host.stand_ins.erase(socket);
    host.terms.erase(id);
    const auto move = host.moves.at(id);
    host.moves.erase(id);
    if (!happened(move, MoveMachine::Event::kUnneeded)) fail("a move is over before it has gone");
    note_over(number, id, Side::kSource);
  });
}

}  // namespace ferry::simulation
