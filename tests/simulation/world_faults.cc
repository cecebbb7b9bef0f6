#include "world.h"

// What fails: ferryds, hosts, links between ferryds, disks.
namespace ferry::simulation {

using migrate::Decision;
using migrate::Side;
using migrate::Written;

const char* name_of(Step step) {
  static constexpr const char* kNames[] = {"check",    "prepare", "stop",      "taken",
                                           "transfer", "restore", "held",      "record",
                                           "recorded", "commit",  "committed", "resume"};
  return kNames[static_cast<std::size_t>(step)];
}

const char* name_of(Fault fault) {
  static constexpr const char* kNames[] = {"self",   "other", "both", "cut",
                                           "reboot", "disk",  "criu"};
  return kNames[static_cast<std::size_t>(fault)];
}

// True: the ferryd whose step it was is no more.
bool World::fault(Step step, int self, int other) {
  if (faults_left_ == 0 || !events_.chance(fault_probability_)) return false;
  auto kind = static_cast<Fault>(events_.pick(0, static_cast<std::uint64_t>(Fault::kReboot)));
  if (kind == Fault::kReboot && !can_reboot(other)) kind = Fault::kOther;
  --faults_left_;
  ++totals_.faults[static_cast<std::size_t>(step)][static_cast<std::size_t>(kind)];
  trace(std::string("FAULT at ") + name_of(step) + " of host " + std::to_string(self) + ": " +
        name_of(kind));
  switch (kind) {
    case Fault::kSelf: crash(self); break;
    case Fault::kOther: crash(other); break;
    case Fault::kBoth:
      crash(self);
      crash(other);
      break;
    case Fault::kCut: cut(self, other); break;
    default: reboot(other); break;
  }
  return kind == Fault::kSelf || kind == Fault::kBoth;
}

void World::crash(int number) {
  Host& host = *hosts_.at(number);
  if (!host.up) return;
  host.up = false;
  ++host.life;
  // The kernel closes what only the ferryd had.
  for (const auto& [id, socket] : host.stand_ins) network_.close(socket->place.at);
  for (const auto& [id, arrival] : host.arrivals) {
    if (!arrival->taken) network_.close(arrival->place.at);
  }
  for (const auto& [id, move] : host.moves) under_way_.erase(id);
  host.log.clear();
  host.moves.clear();
  host.arrivals.clear();
  host.groups.clear();
  host.stand_ins.clear();
  host.terms.clear();
  host.settling.clear();
  events_.in(events_.between(milliseconds(10), milliseconds(2000)),
             [this, number] { restart(number); });
}

void World::restart(int number) {
  Host& host = *hosts_.at(number);
  trace("ferryd of host " + std::to_string(number) + " is back");
  host.up = true;
  host.log = host.disk;
  for (const auto& [id, journal] : host.journal) {
    if (!journal.source) {
      const auto decision =
          migrate::DestinationDecision::recovered(on_record(number, id, Side::kDestination));
      if (!decision.committed()) continue;
      auto arrival = std::make_shared<Arrival>();
      arrival->id = id;
      arrival->from = journal.peer;
      arrival->place = journal.new_place;
      arrival->group = std::make_shared<ArrivalGroup>(1);
      arrival->group->ids = {id};
      arrival->group->decision = decision;
      // Bound still: its process has it.
      arrival->taken = network_.is_bound(journal.new_place.at);
      if (!arrival->taken) network_.bind(journal.new_place.at);
      host.arrivals.emplace(id, arrival);
      continue;
    }
    const auto decision = recovered(number, id);
    if (decision.decided() && !decision.committed()) continue;  // its process will ask
    if (options_.without != Without::kStandInsAgain) {
      network_.bind(journal.old_place.at);
      stand_in(number, id);
    }
    if (decision.decided()) {
      decided(number, id, true);
    } else {
      settle(number, id);
    }
  }
}

// A program that runs there, or that is committed to it, ends with its host, as ever.
bool World::can_reboot(int number) const {
  for (const auto& copy : copies_) {
    if (copy->on != number || copy->dead) continue;
    const auto record = hosts_[number]->disk.find({copy->move, Side::kDestination});
    const auto arrival = hosts_[number]->arrivals.find(copy->move);
    const bool committed =
        (record != hosts_[number]->disk.end() && record->second == Decision::kCommitted) ||
        (arrival != hosts_[number]->arrivals.end() && arrival->second->group->decision.committed());
    if (copy->runs || committed) return false;
    const auto journal = hosts_[number]->journal.find(copy->move);
    if (journal != hosts_[number]->journal.end() && journal->second.source) return false;
  }
  return true;
}

void World::reboot(int number) {
  for (const auto& copy : copies_) {
    if (copy->on == number) copy->dead = true;
  }
  crash(number);
}

void World::cut(int a, int b) {
  const Time until = events_.now() + events_.between(milliseconds(50), milliseconds(3000));
  cuts_[{std::min(a, b), std::max(a, b)}] = until;
}

bool World::is_cut(int a, int b) const {
  const auto found = cuts_.find({std::min(a, b), std::max(a, b)});
  return found != cuts_.end() && found->second > events_.now();
}

// A record of all these moves: the disk has all of it, or nothing.
Written World::write(int number, const Ids& moves, Side side, Decision decision, Step step) {
  Written written = Written::kDurable;
  if (options_.without != Without::kOneRecord) {
    write_one(number, moves, side, decision, step, &written);
    return written;
  }
  for (const MoveId id : moves) {
    if (!write_one(number, {id}, side, decision, step, &written)) return written;
    if (id != moves.back() && fault(step, number, number)) return Written::kUnknown;
  }
  return written;
}

bool World::write_one(int number, const Ids& moves, Side side, Decision decision, Step step,
                      Written* written) {
  Host& host = *hosts_.at(number);
  *written = Written::kDurable;
  if (faults_left_ > 0 && events_.chance(fault_probability_ * options_.disk_faults)) {
    --faults_left_;
    ++totals_.faults[static_cast<std::size_t>(step)][static_cast<std::size_t>(Fault::kDisk)];
    *written = events_.chance(0.5) ? Written::kNot : Written::kUnknown;
    trace("FAULT: the disk of host " + std::to_string(number) + " fails at " + name_of(step));
  }
  const bool found =
      *written == Written::kDurable || (*written == Written::kUnknown && events_.chance(0.5));
  for (const MoveId id : moves) {
    if (*written == Written::kDurable) host.log[{id, side}] = decision;
    if (found) host.disk[{id, side}] = decision;
  }
  return *written == Written::kDurable;
}

std::optional<Decision> World::on_record(int host, MoveId id, Side side) const {
  const auto& log = hosts_.at(host)->log;
  const auto found = log.find({id, side});
  if (found == log.end()) return std::nullopt;
  return found->second;
}

// A call between ferryds. `done` gets nothing when it is not known what came of it; it is not
// called when the caller is no more.
void World::call(int from, int to, std::function<void(const Respond&)> handle, Done done) {
  constexpr Time kTimeout = milliseconds(1000);
  const unsigned life = hosts_.at(from)->life;
  auto pending = std::make_shared<Done>(std::move(done));
  const auto answer = [this, from, life, pending](const std::optional<Reply>& reply) {
    if (!*pending || hosts_.at(from)->life != life) return;
    const Done call_back = std::move(*pending);
    *pending = nullptr;
    call_back(reply);
  };
  events_.in(kTimeout, [answer] { answer(std::nullopt); });
  events_.in(a_while(milliseconds(2)), [this, from, to, answer, handle = std::move(handle)] {
    if (is_cut(from, to)) return;
    const Host& there = *hosts_.at(to);
    if (!there.up) return answer(std::nullopt);
    handle([this, from, to, answer, life_there = there.life](const Reply& reply) {
      if (hosts_.at(to)->life != life_there) return;
      events_.in(a_while(milliseconds(2)), [this, from, to, answer, reply] {
        if (!is_cut(from, to)) answer(reply);
      });
    });
  });
}

}  // namespace ferry::simulation
