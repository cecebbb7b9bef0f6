#include "world.h"

#include <algorithm>

// The source's side of a move: src/host/move/move.cc, stopped_tree.cc, settle.cc, and CRIU's dump.
namespace ferry::simulation {

using host::Answer;
using host::Decision;
using host::Side;
using host::SourceDecision;
using host::Stamp;
using host::Written;

bool World::is_being_moved(const Host& host, int program) const {
  return std::any_of(host.moves.begin(), host.moves.end(), [program](const auto& item) {
    return item.second->program == program && !item.second->group->decision.decided();
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
  for (const auto& move : moves) check(move, 0);
  again(events_.chance(0.5) ? milliseconds(20) : milliseconds(2000), left - 1);
}

// The program, now and then with others of its host; nothing when it cannot be moved now.
std::vector<std::shared_ptr<World::Move>> World::gather(int program) {
  const auto copy = live(program);
  if (!copy || copy->stopped || !hosts_.at(copy->on)->up) return {};
  Host& host = *hosts_.at(copy->on);
  if (is_being_moved(host, program)) return {};
  std::vector<std::shared_ptr<Copy>> members{copy};
  const bool together = events_.chance(0.7);
  for (unsigned p = 0; together && p < programs_; ++p) {
    const auto other = live(static_cast<int>(p));
    if (!other || other == copy || other->on != copy->on || other->stopped) continue;
    if (!is_being_moved(host, other->program)) members.push_back(other);
  }
  int to = static_cast<int>(events_.pick(0, hosts_.size() - 2));
  if (to >= copy->on) ++to;
  const bool as_one = options_.without != Without::kOneDecision;
  if (members.size() > 1) ++totals_.groups;
  std::vector<std::shared_ptr<Move>> moves;
  std::shared_ptr<Group> group;
  const MoveId first = last_move_ + 1;
  for (const auto& member : members) {
    auto move = std::make_shared<Move>();
    move->id = ++last_move_;
    move->program = member->program;
    move->from = member->on;
    move->to = to;
    move->life = host.life;
    move->copy = member;
    if (!group || !as_one) {
      group = std::make_shared<Group>(as_one ? members.size() : 1);
      group->from = move->from;
      group->to = to;
      group->life = host.life;
    }
    move->group = group;
    move->index = group->ids.size();
    group->ids.push_back(move->id);
    group->moves.push_back(move);
    together_[move->id] = first;
    host.moves.emplace(move->id, move);
    ++totals_.moves;
    if (!under_way_.empty()) ++totals_.overlapping;
    if (member->move != 0 && !member->done()) ++totals_.again;
    under_way_.insert(move->id);
    trace("move " + std::to_string(move->id) + ": program " + std::to_string(move->program) +
          " from host " + std::to_string(move->from) + " to " + std::to_string(move->to) +
          (members.size() > 1 ? ", of group " + std::to_string(first) : ""));
    moves.push_back(std::move(move));
  }
  return moves;
}

// No move of a group ends otherwise than another.
void World::outcome(MoveId id, bool committed) {
  const auto [known, is_first] = outcomes_.emplace(together_.at(id), committed);
  if (known->second != committed) fail("a group is moved in part");
  const bool is_group = together_.contains(id + 1) && together_.at(id + 1) == id;
  if (is_first && committed && (is_group || together_.at(id) != id)) ++totals_.groups_committed;
}

void World::check(const std::shared_ptr<Move>& move, unsigned tries) {
  Group& group = *move->group;
  if (hosts_[move->from]->life != move->life || group.decision.decided()) return;
  if (!move->copy->peers_are_known()) {
    if (tries == 200) return abandon(move->group);
    move->copy->prepare();
    events_.in(milliseconds(20), [this, move, tries] { check(move, tries + 1); });
    return;
  }
  if (fault(Step::kCheck, move->from, move->to)) return;
  call(
      move->from, move->to, [](const Respond& respond) { respond({.ok = true}); },
      [this, move](const auto& reply) {
        if (!reply) return abandon(move->group);
        if (++move->group->checked < move->group->ids.size()) return;
        for (const auto& member : move->group->moves) {
          if (const auto other = member.lock()) prepare(other);
        }
      });
}

void World::prepare(const std::shared_ptr<Move>& move) {
  if (hosts_[move->from]->life != move->life || move->group->decision.decided()) return;
  if (fault(Step::kPrepare, move->from, move->to)) return;
  call(
      move->from, move->to,
      [this, move](const Respond& respond) { arrive(move->to, move, respond); },
      [this, move](const auto& reply) {
        if (!reply || !reply->ok) return abandon(move->group);
        move->new_place = reply->place;
        if (++move->group->prepared < move->group->ids.size()) return;
        for (const auto& member : move->group->moves) {
          if (const auto other = member.lock()) stop(other);
        }
      });
}

void World::stop(const std::shared_ptr<Move>& move) {
  Copy& copy = *move->copy;
  if (hosts_[move->from]->life != move->life || move->group->decision.decided()) return;
  if (fault(Step::kStop, move->from, move->to)) return;
  if (copy.dead || !copy.runs || copy.stopped) return abandon(move->group);
  Host& host = *hosts_[move->from];
  const auto entries = copy.stop();
  note_over(move->from, copy.move, Side::kDestination);  // that brought it here
  forget_ended(move->from, copy.move);
  host.arrivals.erase(copy.move);
  copy.move = move->id;
  move->stopped = true;
  host.note(host::Journal::held(move->id, Side::kSource, held(copy.place, move->to, entries)));
  network_.stop_reading(copy.place.at);
  stand_in(move->from, move->id);
  events_.in(a_while(milliseconds(5)), [this, move] { freeze(move); });
  fault(Step::kTaken, move->from, move->to);
}

// CRIU freezes the tree and tells its ferryd; without one the dump fails.
void World::freeze(const std::shared_ptr<Move>& move) {
  const bool fails = faults_left_ > 0 && events_.chance(fault_probability_ / 4);
  if (fails) {
    --faults_left_;
    ++totals_.faults[std::size_t(Step::kTaken)][std::size_t(Fault::kCriu)];
  }
  const bool same = hosts_[move->from]->life == move->life;
  if (fails && same) abandon(move->group);
  if (!same || move->group->decision.decided()) return awake(move->copy);
  move->copy->runs = false;
  poll_dump(move->copy, move->id);
  events_.in(a_while(milliseconds(30)), [this, move] { transfer(move); });
}

void World::transfer(const std::shared_ptr<Move>& move) {
  if (hosts_[move->from]->life != move->life || move->group->decision.decided()) return;
  if (fault(Step::kTransfer, move->from, move->to)) return;
  auto image = std::make_shared<Image>(move->copy->image());
  if (events_.chance(0.05)) kept_[move->id] = image;
  call(
      move->from, move->to,
      [this, move, image](const Respond& respond) {
        restore(move->to, move->id, move->program, image, respond);
      },
      [this, move](const auto& reply) {
        if (!reply || !reply->ok) return abandon(move->group);
        auto& decision = move->group->decision;
        decision.restored(move->index);
        if (decision.state() == SourceDecision::State::kRecording) drive(move->group);
      });
}

void World::ask_commit(int from, int to, MoveId id, Done done) {
  call(
      from, to, [this, to, id](const Respond& respond) { commit(to, id, respond); },
      std::move(done));
}

void World::drive(const std::shared_ptr<Group>& group) {
  if (hosts_[group->from]->life != group->life) return;
  const auto answered = [this, group](const auto& reply) {
    group->decision.answered(reply ? reply->answer : Answer::kUnknown);
    if (options_.without == Without::kStayingFrozen && !reply) group->decision.operator_aborts();
    if (group->decision.decided()) return drive(group);
    events_.in(milliseconds(100), [this, group] { drive(group); });
  };
  switch (group->decision.next()) {
    case SourceDecision::Step::kNone: return finish(group);
    case SourceDecision::Step::kRecordCommit: {
      for (const auto& weak : group->moves) {
        const auto move = weak.lock();
        if (!move) continue;
        const auto there = held(move->new_place, move->to).processes.at(0).place;
        hosts_[group->from]->note(host::Journal::going(move->id, {"", {there}}));
      }
      if (fault(Step::kRecord, group->from, group->to)) return;
      const Written written =
          write(group->from, group->ids, Side::kSource, Decision::kCommitted, Step::kRecord);
      if (fault(Step::kRecorded, group->from, group->to)) return;
      const bool revokes = options_.without != Without::kRevoking;
      group->decision.written(written == Written::kUnknown && !revokes ? Written::kNot : written);
      return drive(group);
    }
    case SourceDecision::Step::kAskCommit:
      return ask_commit(group->from, group->to, group->ids.front(), answered);
    case SourceDecision::Step::kAskAbort:
      return call(
          group->from, group->to,
          [this, group](const Respond& respond) {
            respond({true, abort(group->to, group->ids.front()), {}});
          },
          answered);
  }
}

void World::finish(const std::shared_ptr<Group>& group) {
  const bool committed = group->decision.committed();
  if (fault(Step::kCommitted, group->from, group->to)) return;
  write(group->from, group->ids, Side::kSource,
        committed ? Decision::kConfirmed : Decision::kAborted, Step::kCommitted);
  for (const MoveId id : group->ids) decided(group->from, id, committed);
}

// Something failed. It is too late when the promise is on record.
void World::abandon(const std::shared_ptr<Group>& group) {
  if (group->decision.decided()) return;
  group->decision.failed();
  if (!group->decision.decided()) return;
  for (const auto& member : group->moves) {
    const auto move = member.lock();
    if (!move) continue;
    trace("move " + std::to_string(move->id) + " is given up");
    ++totals_.rollbacks;
    under_way_.erase(move->id);
    outcome(move->id, false);
    call(
        move->from, move->to,
        [this, move](const Respond& respond) {
          respond({true, abort(move->to, move->id), {}});
        },
        [](const auto&) {});
    // What was stopped waits for the word: its process asks.
    if (!move->stopped) hosts_[move->from]->moves.erase(move->id);
  }
}

// The post-dump action: CRIU asks until there is an answer.
void World::poll_dump(const std::shared_ptr<Copy>& copy, MoveId id) {
  if (copy->dead) return;
  Host& host = *hosts_.at(copy->on);
  std::optional<bool> committed;
  if (host.up) {
    if (const auto move = host.moves.find(id); move != host.moves.end()) {
      if (move->second->group->decision.decided())
        committed = move->second->group->decision.committed();
    } else {
      const auto decision = recovered(copy->on, id);
      if (decision.decided()) committed = decision.committed();
    }
  }
  if (!committed) {
    events_.in(a_while(milliseconds(100)), [this, copy, id] { poll_dump(copy, id); });
  } else if (*committed) {
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

// A promise of a former ferryd: nobody knows whether the destination has committed.
void World::settle(int number, MoveId id) {
  Host& host = *hosts_.at(number);
  host.settling.insert(id);
  const auto settled = [this, number, id](bool committed) {
    hosts_[number]->settling.erase(id);
    ++totals_.settled;
    decided(number, id, committed);
  };
  // Another move of its group may have asked.
  if (const auto now = recovered(number, id); now.decided()) return settled(now.committed());
  const auto& entry = *host.journal.find(id, Side::kSource);
  ask_commit(
      number, peer_of(entry), id,
      [this, number, id, settled, group = entry.record->moves](const auto& reply) {
        auto decision = recovered(number, id);
        if (decision.decided()) return settled(decision.committed());
        decision.answered(reply ? reply->answer : Answer::kUnknown);
        if (!decision.decided()) {
          const unsigned life = hosts_[number]->life;
          events_.in(milliseconds(100), [this, number, id, life] {
            if (hosts_[number]->life == life) settle(number, id);
          });
          return;
        }
        const auto record = decision.committed() ? Decision::kConfirmed : Decision::kAborted;
        // What cannot be recorded is asked again by the next one.
        if (write(number, group, Side::kSource, record, Step::kCommitted) != Written::kDurable) {
          hosts_[number]->journal.take(
              host::Journal::decision(Side::kSource, {record, "", "", group}));
        }
        settled(decision.committed());
      });
}

void World::decided(int number, MoveId id, bool committed) {
  Host& host = *hosts_.at(number);
  under_way_.erase(id);
  trace("move " + std::to_string(id) + (committed ? " is committed" : " is aborted"));
  ++(committed ? totals_.commits : totals_.rollbacks);
  if (committed && host.journal.find(id, Side::kSource) != nullptr) keep_committed(number, id);
}

// The stand-in goes on for what is left of its term.
void World::keep_committed(int number, MoveId id) {
  Host& host = *hosts_.at(number);
  const Stamp now = stamp(number);
  if (!host.journal.find(id, Side::kSource)->since) {
    host.note(host::Journal::since(id, now));
  }
  const auto& entry = *host.journal.find(id, Side::kSource);
  const auto socket = host.stand_ins.find(id);
  if (socket == host.stand_ins.end()) return;
  const Place place = place_of(entry.going->places.at(0));
  const Time since = events_.now() - host::age_of(*entry.since, now);
  // The numbers of moves rise, as an RNIC's count of its stops does.
  const auto stops = static_cast<std::uint32_t>(id);
  socket->second->stand_in->committed(place.at, place.slot, stops, since);
  const auto term = host.terms.emplace(id, host::StandInTerm(since)).first;
  if (entry.left)
    term->second.program_left(events_.now() - host::age_of(*entry.left, now),
                              transport::MigrationSettings().paused_limit);
  keep_stand_in(number, id);
}

Answer World::source_says(int number, MoveId id) const {
  const Host& host = *hosts_.at(number);
  if (const auto move = host.moves.find(id); move != host.moves.end()) {
    return move->second->group->decision.answer();
  }
  return recovered(number, id).answer();
}

SourceDecision World::recovered(int number, MoveId id) const {
  auto record = on_record(number, id, Side::kSource);
  if (options_.without == Without::kAskingAgain && record == Decision::kCommitted) {
    record = Decision::kConfirmed;
  }
  return SourceDecision::recovered(record);
}

// Answers on the old socket, by what the journal has.
void World::stand_in(int number, MoveId id) {
  Host& host = *hosts_.at(number);
  const device::Slot slot = slot_of(host.journal.find(id, Side::kSource)->held->processes[0].place);
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

void World::keep_stand_in(int number, MoveId id) {
  const unsigned life = hosts_[number]->life;
  events_.in(seconds(5), [this, number, id, life] {
    Host& host = *hosts_[number];
    const auto socket = host.stand_ins.find(id);
    if (host.life != life || socket == host.stand_ins.end()) return;
    socket->second->stand_in->handle_timeout(events_.now());
    const bool expired = socket->second->stand_in->expired(events_.now());
    if (!host.terms.at(id).over(expired, events_.now())) return keep_stand_in(number, id);
    ++totals_.stand_ins_expired;
    network_.close(socket->second->place.at);
    host.stand_ins.erase(socket);
    host.terms.erase(id);
    host.moves.erase(id);
    note_over(number, id, Side::kSource);
  });
}

}  // namespace ferry::simulation
