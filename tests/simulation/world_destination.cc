#include <utility>

#include "world.h"

// The destination's side of a move: what ArrivalMachine (src/host/move/machine/arrival_machine.h) asks for is
// done as src/host/move/destination/arrival.cc and arrival_group.cc do it; CRIU's restore, and how a process comes
// back (src/agent/agent.cc).
namespace ferry::simulation {

using host::Answer;
using host::ArrivalMachine;
using host::Decision;
using host::DestinationDecision;
using host::Side;
using host::Written;

namespace {

constexpr Time kPatience = seconds(60);  // Limits::source

}  // namespace

void World::arrive(int number, const std::shared_ptr<Move>& move, const Respond& respond) {
  Host& host = *hosts_.at(number);
  auto arrival = std::make_shared<Arrival>();
  arrival->id = move->id;
  arrival->on = number;
  arrival->from = move->from;
  arrival->index = move->group->first + move->index;
  arrival->source = move->group->source;
  arrival->place.slot = ++last_slot_ % port::kMaxSlot + 1;
  arrival->place.at.address = port::Address::from_ipv4(0x0A000001 + static_cast<unsigned>(number));
  arrival->place.at.udp_port = port::udp_port_of_slot(arrival->place.slot);
  if (network_.is_bound(arrival->place.at)) return respond({});
  const Group& of_source = *move->group;
  const Ids& ids = of_source.lead ? of_source.all : of_source.record;
  auto& known = host.groups[ids.front()];
  arrival->group = known.lock();
  if (!arrival->group) {
    auto sources = of_source.sources;
    if (!of_source.lead) sources = {{move->from, ids.front()}};
    known = arrival->group = std::make_shared<ArrivalGroup>(
        ArrivalMachine(ids.size(), kPatience, events_.now(), sources.size()));
    arrival->group->on = number;
    arrival->group->sources = sources;
    arrival->group->life = host.life;
    arrival->group->record = ids;
  }
  if (!happened(arrival, ArrivalMachine::Event::kPrepared)) return respond({});
  arrival->group->arrivals.push_back(arrival);
  network_.bind(arrival->place.at);
  host.arrivals.emplace(move->id, arrival);
  respond({true, Answer::kUnknown, arrival->place});
}

void World::restore_there(int number, const std::shared_ptr<Move>& move, const Respond& respond) {
  Host& host = *hosts_.at(number);
  const auto found = host.arrivals.find(move->id);
  if (found == host.arrivals.end()) return respond({});
  const auto arrival = found->second;
  arrival->program = move->program;
  arrival->image = move->image;
  arrival->restored = respond;
  if (!happened(arrival, ArrivalMachine::Event::kTransferred)) respond({});
}

// --- what the machine asks for

// Carries out what is due, and comes back when the machine has something to do by itself.
void World::advance(const std::shared_ptr<ArrivalGroup>& group) {
  const auto is_led = [&] { return hosts_[group->on]->life == group->life; };
  ArrivalMachine& machine = group->machine;
  using Step_ = ArrivalMachine::Step;
  for (Step_ step; is_led() && (step = machine.step(events_.now())) != Step_::kNone;) {
    record(group, step);
  }
  for (const auto& weak : group->arrivals) {
    const auto arrival = weak.lock();
    if (!arrival || !is_led()) continue;
    const auto action = machine.next(arrival->index);
    if (action != ArrivalMachine::Action::kNone) begin(arrival, action);
  }
  if (!is_led()) return;
  if (const auto source = machine.asks_source(events_.now())) ask_source(group, *source);
  const auto at = machine.deadline();
  if (!at || (group->alarm_at && *group->alarm_at <= *at)) return;
  group->alarm_at = at;
  events_.in(std::max(*at - events_.now(), Time(0)), [this, group, at = *at] {
    if (group->alarm_at != at) return;
    group->alarm_at.reset();
    advance(group);
  });
}

bool World::happened(const std::shared_ptr<Arrival>& arrival, ArrivalMachine::Event event) {
  const auto& group = arrival->group;
  const bool has_happened = group->machine.happened(arrival->index, event, events_.now());
  advance(group);
  return has_happened;
}

void World::record(const std::shared_ptr<ArrivalGroup>& group, ArrivalMachine::Step step) {
  const Host& host = *hosts_[group->on];
  const int source = group->sources[events_.pick(0, group->sources.size() - 1)].first;
  if (fault(Step::kCommit, group->on, source)) return;
  const bool commits = step == ArrivalMachine::Step::kRecordCommit;
  const bool skips = commits && options_.without == Without::kRecordThere;
  const Written written =
      skips ? Written::kDurable
            : write(group->on, group->record, Side::kDestination,
                    commits ? Decision::kCommitted : Decision::kAborted, Step::kCommit);
  if (host.life != group->life) return;  // between the records of a group
  group->machine.written(written, events_.now());
  if (commits) fault(Step::kCommitted, group->on, source);
}

void World::ask_source(const std::shared_ptr<ArrivalGroup>& group, std::size_t source) {
  const auto [from, id] = group->sources.at(source);
  call(
      group->on, from,
      [this, from = from, id = id](const Respond& respond) {
        respond({true, source_says(from, id), {}});
      },
      [this, group, source](const auto& reply) {
        if (hosts_[group->on]->life != group->life) return;
        const auto answer = reply ? std::optional(reply->answer) : std::nullopt;
        group->machine.source_answered(source, answer, events_.now());
        advance(group);
      });
}

void World::begin(const std::shared_ptr<Arrival>& arrival, ArrivalMachine::Action action) {
  switch (action) {
    case ArrivalMachine::Action::kNone: return;
    case ArrivalMachine::Action::kRestore: return run_criu(arrival);
    case ArrivalMachine::Action::kConnect:
      happened(arrival, ArrivalMachine::Event::kConnected);
      return;
    case ArrivalMachine::Action::kUndo: return undo(arrival);
  }
}

// It works for a while, whatever becomes of the ferryd.
void World::run_criu(const std::shared_ptr<Arrival>& arrival) {
  const int number = arrival->on;
  if (fault(Step::kRestore, number, arrival->from)) return;
  const bool fails = faults_left_ > 0 && events_.chance(fault_probability_ / 2);
  if (fails) {
    --faults_left_;
    ++totals_.faults[std::size_t(Step::kRestore)][std::size_t(Fault::kCriu)];
  }
  auto copy = std::make_shared<Copy>(
      events_, network_, [this](const std::string& what) { fail(what); }, arrival->program, number,
      arrival->place);
  copy->move = arrival->id;
  copy->stopped = true;
  copies_.push_back(copy);
  events_.in(a_while(milliseconds(50)), [this, copy, arrival, fails] {
    if (copy->dead) return;  // its host was rebooted
    const int on = arrival->on;
    const bool same = hosts_[on]->life == arrival->group->life;
    if (fails || (same && arrival->group->machine.decision().decided())) {
      copy->dead = true;
      if (same) {
        arrival->group->machine.failed();
        advance(arrival->group);
      }
      if (const Respond restored = std::exchange(arrival->restored, nullptr)) restored({});
      return;
    }
    copy->load(*arrival->image);
    if (same) {
      hosts_[on]->note(host::Journal::held(arrival->id, Side::kDestination,
                                           held(arrival->place, arrival->from)));
      arrival->copy = copy;
      if (!happened(arrival, ArrivalMachine::Event::kHeld)) fail("it is held out of turn");
      answer_restores(arrival->group);
    }
    poll_restore(copy, arrival->id);
    fault(Step::kHeld, on, arrival->from);
  });
}

// Sources of several hosts hear that all is held, not that their own programs are.
void World::answer_restores(const std::shared_ptr<ArrivalGroup>& group) {
  const bool is_open = group->machine.decision().state() == DestinationDecision::State::kOpen;
  for (const auto& weak : group->arrivals) {
    const auto arrival = weak.lock();
    if (!arrival || !arrival->copy || (group->sources.size() > 1 && is_open)) continue;
    if (const Respond restored = std::exchange(arrival->restored, nullptr)) restored({.ok = true});
  }
}

void World::undo(const std::shared_ptr<Arrival>& arrival) {
  note_forgotten(arrival->on, arrival->id, Side::kDestination);
  network_.close(arrival->place.at);
  if (arrival->copy) arrival->copy->dead = true;
  happened(arrival, ArrivalMachine::Event::kUndone);
}

// An arrival of a former ferryd's.
void World::recover_arrival(int number, MoveId id, const host::Journal::Entry& entry) {
  Host& host = *hosts_[number];
  ArrivalMachine machine = ArrivalMachine::recovered(entry.decision());
  if (!machine.decision().committed()) return note_forgotten(number, id, Side::kDestination);
  if (entry.over) return forget_ended(number, id);
  auto arrival = std::make_shared<Arrival>();
  arrival->id = id;
  arrival->on = number;
  arrival->from = peer_of(entry);
  arrival->place = place_of(entry.held->processes.at(0).place);
  arrival->group = std::make_shared<ArrivalGroup>(std::move(machine));
  arrival->group->on = number;
  arrival->group->sources = {{arrival->from, id}};
  arrival->group->life = host.life;
  arrival->group->record = {id};
  arrival->group->arrivals.push_back(arrival);
  // Bound still: its process has it.
  arrival->taken = network_.is_bound(arrival->place.at);
  if (!arrival->taken) network_.bind(arrival->place.at);
  host.arrivals.emplace(id, arrival);
  advance(arrival->group);
}

// --- CRIU, and what others ask

// CRIU's post-restore action: asks until there is an answer.
void World::poll_restore(const std::shared_ptr<Copy>& copy, MoveId id) {
  if (copy->dead) return;
  Host& host = *hosts_.at(copy->on);
  std::optional<bool> committed;
  if (host.up) {
    const auto arrival = host.arrivals.find(id);
    if (arrival == host.arrivals.end()) {
      committed = abort(copy->on, id) == Answer::kCommitted;
    } else if (options_.without == Without::kSilentArrival) {
      committed = true;
    } else if (arrival->second->is_undone()) {
      committed = false;
    } else if (arrival->second->state() == ArrivalMachine::State::kHere) {
      committed = true;
    }
  }
  if (!committed) {
    events_.in(a_while(milliseconds(100)), [this, copy, id] { poll_restore(copy, id); });
  } else if (*committed) {
    outcome(id, true);
    fault(Step::kResume, copy->on, copy->on);
    goes_live(copy);
    awake(copy);
  } else {
    copy->dead = true;
  }
}

void World::commit(int number, MoveId id, const Respond& respond) {
  Host& host = *hosts_.at(number);
  const auto found = host.arrivals.find(id);
  if (found == host.arrivals.end()) return respond({true, abort(number, id), {}});
  const auto group = found->second->group;
  for (const auto& weak : group->arrivals) {
    const auto arrival = weak.lock();
    if (arrival && arrival->copy && arrival->copy->dead) group->machine.failed();
  }
  if (options_.without == Without::kAllPromises) group->machine.operator_commits();
  group->machine.promised(found->second->source);
  advance(group);
  // Nothing is said before an abort is on record: the caller asks again.
  if (host.life == group->life && group->machine.rests()) {
    respond({true, group->machine.decision().answer(), {}});
  }
}

Answer World::abort(int number, MoveId id) {
  Host& host = *hosts_.at(number);
  if (const auto found = host.arrivals.find(id); found != host.arrivals.end()) {
    const auto group = found->second->group;
    group->machine.failed();
    advance(group);
    return group->machine.decision().answer();
  }
  return DestinationDecision::recovered(on_record(number, id, Side::kDestination)).answer();
}

// What has arrived and is over is forgotten when its source cannot ask for the commit any more.
void World::forget_ended(int number, MoveId id) {
  Host& host = *hosts_.at(number);
  const auto* entry = host.journal.find(id, Side::kDestination);
  if (entry == nullptr || !entry->over) return;
  const unsigned life = host.life;
  events_.in(a_while(seconds(10)), [this, number, id, life, source = peer_of(*entry)] {
    if (hosts_[number]->life != life) return;
    call(
        number, source,
        [this, source, id](const Respond& respond) {
          respond({true, source_says(source, id), {}});
        },
        [this, number, id](const auto& reply) {
          if (reply && reply->answer == Answer::kAborted) {
            note_forgotten(number, id, Side::kDestination);
          }
          forget_ended(number, id);
        });
  });
}

// A process that finds itself running, with a Stopped RNIC, asks until it gets a socket.
void World::awake(const std::shared_ptr<Copy>& copy) {
  if (copy->dead || !copy->stopped) return;
  const auto rollback = wake(copy);
  if (!rollback) {
    events_.in(a_while(milliseconds(200)), [this, copy] { awake(copy); });
    return;
  }
  trace("program " + std::to_string(copy->program) + " goes on, on host " +
        std::to_string(copy->on));
  outcome(copy->move, !*rollback);
  copy->resume(*rollback);
  if (!*rollback) {
    report(copy, copy->move,
           peer_of(*hosts_[copy->on]->journal.find(copy->move, Side::kDestination)));
  }
}

std::optional<bool> World::wake(const std::shared_ptr<Copy>& copy) {
  Host& host = *hosts_.at(copy->on);
  const MoveId id = copy->move;
  if (!host.up) return std::nullopt;
  if (const auto arrival = host.arrivals.find(id); arrival != host.arrivals.end()) {
    if (!arrival->second->group->machine.decision().committed()) return std::nullopt;
    arrival->second->taken = true;
    return false;
  }
  const auto decision = decision_of(copy->on, id);
  if (!decision.decided() || decision.committed()) return std::nullopt;
  if (!network_.is_bound(copy->place.at)) network_.bind(copy->place.at);
  network_.stop_reading(copy->place.at);
  host.stand_ins.erase(id);
  if (const auto found = host.moves.find(id); found != host.moves.end()) {
    const auto move = found->second;
    host.moves.erase(found);
    if (!happened(move, host::MoveMachine::Event::kReturned)) fail("it returns from nowhere");
  }
  note_over(copy->on, id, Side::kSource);
  return true;
}

// Tells the source which peers know, until all do. When the program goes before that, it may have
// moved on: the stand-in is still needed by peers that move as well.
void World::report(const std::shared_ptr<Copy>& copy, MoveId id, int source) {
  events_.in(events_.between(milliseconds(20), milliseconds(200)), [this, copy, id, source] {
    if (!hosts_[copy->on]->up) return report(copy, id, source);
    if (copy->dead) {
      return call(
          copy->on, source,
          [this, source, id](const Respond& respond) {
            const auto term = hosts_[source]->terms.find(id);
            const bool known = term != hosts_[source]->terms.end();
            if (known && options_.without == Without::kStandInTerm) {
              network_.close(hosts_[source]->stand_ins.at(id)->place.at);
            }
            if (known) {
              term->second.program_left(events_.now(), transport::MigrationSettings().paused_limit);
              hosts_[source]->note(host::Journal::left(id, stamp(source)));
            }
            // The source may not know of its own commit yet.
            const auto* entry = hosts_[source]->journal.find(id, Side::kSource);
            respond({.ok = known || entry == nullptr});
          },
          [this, copy, id, source](const auto& reply) {
            if (!reply || !reply->ok) report(copy, id, source);
          });
    }
    if (copy->stopped) return report(copy, id, source);
    const auto known = copy->known();
    const bool all = known.size() == copy->qps().size();
    call(
        copy->on, source,
        [this, source, id, known](const Respond& respond) {
          const auto socket = hosts_[source]->stand_ins.find(id);
          if (socket != hosts_[source]->stand_ins.end()) {
            for (const auto qpn : known) socket->second->stand_in->peer_knows(qpn, events_.now());
          }
          respond({.ok = true});
        },
        [this, copy, id, source, all](const auto& reply) {
          if (!reply || !all) return report(copy, id, source);
          restore_again(id);
        });
  });
}

// An old image comes to life once more, somewhere else: its epoch is known already, and comes from
// another place.
void World::restore_again(MoveId id) {
  const auto kept = kept_.find(id);
  if (kept == kept_.end()) return;
  ++totals_.ghosts;
  Place place;
  place.slot = ++last_slot_ % port::kMaxSlot + 1;
  place.at.address = port::Address::from_ipv4(0x0A000064);
  place.at.udp_port = port::udp_port_of_slot(place.slot);
  network_.bind(place.at);
  const auto ghost = std::make_shared<Copy>(
      events_, network_, [](const std::string&) {}, -1, -1, place);
  ghosts_.push_back(ghost);
  ghost->load(*kept->second);
  ghost->resume(false);
  for (int turn = 1; turn <= 20; ++turn) {
    events_.in(milliseconds(10) * turn, [ghost] { ghost->act(); });
  }
  kept_.erase(kept);
}

}  // namespace ferry::simulation
