#include "world.h"

// The destination's side of a move: src/host/move/arrival.cc and daemon.cc, CRIU's restore, and how a
// process comes back (src/agent/agent.cc).
namespace ferry::simulation {

using host::Answer;
using host::Decision;
using host::DestinationDecision;
using host::Side;
using host::Written;

void World::arrive(int number, const std::shared_ptr<Move>& move, const Respond& respond) {
  Host& host = *hosts_.at(number);
  auto arrival = std::make_shared<Arrival>();
  arrival->id = move->id;
  arrival->from = move->from;
  arrival->place.slot = ++last_slot_ % port::kMaxSlot + 1;
  arrival->place.at.address = port::Address::from_ipv4(0x0A000001 + static_cast<unsigned>(number));
  arrival->place.at.udp_port = port::udp_port_of_slot(arrival->place.slot);
  arrival->heard = events_.now();
  if (network_.is_bound(arrival->place.at)) return respond({});
  const Ids& ids = move->group->record;
  auto& known = host.groups[ids.front()];
  arrival->group = known.lock();
  if (!arrival->group) {
    known = arrival->group = std::make_shared<ArrivalGroup>(ids.size());
    arrival->group->ids = ids;
  }
  if (arrival->group->decision.decided()) return respond({});
  arrival->index = move->index;
  network_.bind(arrival->place.at);
  host.arrivals.emplace(move->id, arrival);
  watch(number, move->id);
  respond({true, Answer::kUnknown, arrival->place});
}

void World::restore_there(int number, MoveId id, int program, const std::shared_ptr<Image>& image,
                          const Respond& respond) {
  Host& host = *hosts_.at(number);
  const auto found = host.arrivals.find(id);
  if (found == host.arrivals.end() || found->second->group->decision.decided()) {
    return respond({});
  }
  const auto arrival = found->second;
  if (fault(Step::kRestore, number, arrival->from)) return;
  const unsigned life = host.life;
  const bool fails = faults_left_ > 0 && events_.chance(fault_probability_ / 2);
  if (fails) {
    --faults_left_;
    ++totals_.faults[std::size_t(Step::kRestore)][std::size_t(Fault::kCriu)];
  }
  // CRIU works for a while, whatever becomes of the ferryd.
  auto copy = std::make_shared<Copy>(
      events_, network_, [this](const std::string& what) { fail(what); }, program, number,
      arrival->place);
  copy->move = id;
  copy->stopped = true;
  copies_.push_back(copy);
  events_.in(
      a_while(milliseconds(50)), [this, number, id, copy, image, arrival, life, respond, fails] {
        if (copy->dead) return;  // its host was rebooted
        const bool same = hosts_[number]->life == life;
        if (fails || (same && arrival->group->decision.decided())) {
          copy->dead = true;
          if (same) give_up(number, *arrival->group);
          return respond({});
        }
        copy->load(*image);
        if (same) {
          hosts_[number]->note(
              host::Journal::held(id, Side::kDestination, held(arrival->place, arrival->from)));
          arrival->group->decision.held(arrival->index);
          arrival->copy = copy;
          respond({.ok = true});
        }
        poll_restore(copy, id);
        fault(Step::kHeld, number, arrival->from);
      });
}

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
    } else if (arrival->second->group->decision.decided() && !arrival->second->group->deciding) {
      committed = arrival->second->group->decision.committed();
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
  const int from = found->second->from;
  const auto group = found->second->group;
  if (group->deciding) return;  // the caller asks again
  std::vector<std::shared_ptr<Arrival>> arrivals;
  for (const auto& [other, arrival] : host.arrivals) {
    if (arrival->group == group) arrivals.push_back(arrival);
  }
  const bool undecided = !group->decision.decided();
  for (const auto& arrival : arrivals) {
    if (arrival->copy && arrival->copy->dead) group->decision.failed();
  }
  group->decision.promised();
  using Step_ = DestinationDecision::Step;
  for (Step_ step; (step = group->decision.next()) != Step_::kNone;) {
    if (fault(Step::kCommit, number, from)) return;
    const bool commits = step == Step_::kRecordCommit;
    const bool skips = commits && options_.without == Without::kRecordThere;
    const unsigned life = host.life;
    const Written written =
        skips ? Written::kDurable
              : write(number, group->ids, Side::kDestination,
                      commits ? Decision::kCommitted : Decision::kAborted, Step::kCommit);
    if (host.life != life) return;  // between the records of a group
    group->decision.written(written);
    if (commits && fault(Step::kCommitted, number, from)) return;
    if (!commits && written != Written::kDurable) {
      // Nothing is said before the abort is on record.
      group->deciding = true;
      events_.in(milliseconds(500), [this, number, id, group, life] {
        if (hosts_[number]->life != life) return;
        group->deciding = false;
        commit(number, id, [](const Reply&) {});
      });
      return;
    }
  }
  if (undecided && !group->decision.committed()) give_up(number, *group);
  respond({true, group->decision.answer(), {}});
}

Answer World::abort(int number, MoveId id) {
  Host& host = *hosts_.at(number);
  if (const auto found = host.arrivals.find(id); found != host.arrivals.end()) {
    ArrivalGroup& group = *found->second->group;
    if (!group.deciding && !group.decision.decided() && group.decision.failed()) {
      give_up(number, group);
    }
    return group.decision.answer();
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

void World::give_up(int number, ArrivalGroup& group) {
  group.decision.failed();
  for (const auto& [id, arrival] : hosts_.at(number)->arrivals) {
    if (arrival->group.get() != &group) continue;
    note_forgotten(number, id, Side::kDestination);
    network_.close(arrival->place.at);
    if (arrival->copy) arrival->copy->dead = true;
  }
}

// An arrival that waits asks how its source has decided.
void World::watch(int number, MoveId id) {
  const unsigned life = hosts_[number]->life;
  events_.in(events_.between(milliseconds(300), milliseconds(700)), [this, number, id, life] {
    Host& host = *hosts_[number];
    const auto found = host.arrivals.find(id);
    if (host.life != life || found == host.arrivals.end()) return;
    const auto arrival = found->second;
    if (arrival->group->decision.decided()) return;
    call(
        number, arrival->from,
        [this, from = arrival->from, id](const Respond& respond) {
          respond({true, source_says(from, id), {}});
        },
        [this, number, id, arrival](const auto& reply) {
          if (reply) arrival->heard = events_.now();
          const Answer answer = reply ? reply->answer : Answer::kUnknown;
          if (answer == Answer::kCommitted) commit(number, id, [](const Reply&) {});
          if (answer == Answer::kAborted) abort(number, id);
          // What is held may be committed at the source.
          if (!arrival->group->decision.waits() && events_.now() - arrival->heard > seconds(60)) {
            abort(number, id);
          }
          watch(number, id);
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
    if (!arrival->second->group->decision.committed()) return std::nullopt;
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
