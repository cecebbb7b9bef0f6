#include "world.h"

// What fails: ferryds, hosts, links between ferryds, disks.
namespace ferry::simulation {

using host::Decision;
using host::Side;
using host::Written;

const char* name_of(Step step) {
  static constexpr const char* kNames[] = {"check",     "prepare", "stop",   "taken",    "transfer",
                                           "restore",   "held",    "record", "recorded", "commit",
                                           "committed", "resume",  "lead"};
  return kNames[static_cast<std::size_t>(step)];
}

const char* name_of(Fault fault) {
  static constexpr const char* kNames[] = {"self",   "other", "both", "cut",
                                           "reboot", "disk",  "criu"};
  return kNames[static_cast<std::size_t>(fault)];
}

host::Held held(const Copy::Place& place, int peer,
                const std::vector<std::vector<std::byte>>& entries) {
  rnic::Slot slot;
  slot.local = place.at;
  slot.slot = place.slot;
  slot.entries = entries;
  host::Held held;
  held.peer = std::to_string(peer);
  held.processes.push_back({1, 1, 0, {1, {{"rdma", {slot}}}}});
  return held;
}

const rnic::Slot& slot_of(const host::ProcessSlots& place) {
  return place.contexts.at(0).slots.at(0);
}

Copy::Place place_of(const host::ProcessSlots& place) {
  return {slot_of(place).local, slot_of(place).slot};
}

int peer_of(const host::Journal::Entry& entry) {
  return std::stoi(entry.held->peer);
}

void World::Host::note(const std::string& line) {
  disk += line + '\n';
  journal.take(line);
}

// What a bad disk does not take, only the ferryd that runs knows.
void World::note_if_possible(int number, const std::string& line) {
  Host& host = *hosts_.at(number);
  if (events_.now() < host.bad_until) {
    host.journal.take(line);
  } else {
    host.note(line);
  }
}

void World::note_over(int number, MoveId move, Side side) {
  Host& host = *hosts_.at(number);
  if (host.journal.find(move, side) == nullptr) return;
  note_if_possible(number, host.journal.over(move, side));
  if (events_.now() < host.bad_until || host.disk.size() < 4096) return;
  host.disk = host.journal.text();
  host.synced = host.disk.size();
}

void World::note_forgotten(int number, MoveId move, Side side) {
  if (hosts_.at(number)->journal.find(move, side) == nullptr) return;
  note_if_possible(number, host::Journal::forgotten(move, side));
}

host::Journal World::Host::read() const {
  host::Journal read;
  for (std::size_t begin = 0; begin < disk.size();) {
    const std::size_t end = std::min(disk.find('\n', begin), disk.size());
    read.take(disk.substr(begin, end - begin));
    begin = end + 1;
  }
  return read;
}

host::Stamp World::stamp(int number) const {
  return {hosts_.at(number)->boots, events_.now(), events_.now()};
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
  host.journal = {};
  host.moves.clear();
  host.arrivals.clear();
  host.groups.clear();
  host.stand_ins.clear();
  host.terms.clear();
  // Peers of what it held give up after 4.3 s without an answer, however often it has died in them.
  constexpr Time kPatience = milliseconds(4300), kShortest = milliseconds(10),
                 kLongest = milliseconds(2000);
  if (events_.now() - host.away_since > kPatience) {
    host.away_since = events_.now();
    host.away = Time(0);
  }
  const Time away = events_.between(kShortest, std::max(kLongest - host.away, kShortest));
  host.away += away;
  events_.in(away, [this, number] { restart(number); });
}

void World::restart(int number) {
  Host& host = *hosts_.at(number);
  trace("ferryd of host " + std::to_string(number) + " is back");
  host.up = true;
  host.journal = host.read();
  const auto entries = host.journal.entries();
  for (const auto& [key, entry] : entries) {
    const auto [id, side] = key;
    if (side == Side::kDestination) {
      recover_arrival(number, id, entry);
      continue;
    }
    if (!entry.held) {
      note_forgotten(number, id, side);
      continue;
    }
    // Bound still: its process has never let go of it.
    const Place old = place_of(entry.held->processes.at(0).place);
    if (options_.without != Without::kStandInsAgain && !network_.is_bound(old.at)) {
      network_.bind(old.at);
      stand_in(number, id);
    }
    recover(number, id, entry);
  }
}

// A program that runs there, or that is committed to it, ends with its host, as ever.
bool World::can_reboot(int number) const {
  const auto journal = hosts_[number]->read();
  for (const auto& copy : copies_) {
    if (copy->on != number || copy->dead) continue;
    const auto* record = journal.find(copy->move, Side::kDestination);
    const auto arrival = hosts_[number]->arrivals.find(copy->move);
    const bool committed = (record != nullptr && record->decision() == Decision::kCommitted) ||
                           (arrival != hosts_[number]->arrivals.end() &&
                            arrival->second->group->machine.decision().committed());
    if (copy->runs || committed) return false;
    if (journal.find(copy->move, Side::kSource) != nullptr) return false;
  }
  return true;
}

void World::reboot(int number) {
  for (const auto& copy : copies_) {
    if (copy->on == number) copy->dead = true;
  }
  crash(number);
  Host& host = *hosts_.at(number);
  ++host.boots;
  host.disk.resize(events_.pick(host.synced, host.disk.size()));
  if (!host.disk.empty() && host.disk.back() != '\n') host.disk += '\n';
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
  const bool is_bad = events_.now() < host.bad_until;
  if (is_bad || (faults_left_ > 0 && events_.chance(fault_probability_ * options_.disk_faults))) {
    if (!is_bad) {
      --faults_left_;
      ++totals_.faults[static_cast<std::size_t>(step)][static_cast<std::size_t>(Fault::kDisk)];
      // What makes a disk fail is seldom over at once, and may take the ferryd along.
      if (events_.chance(0.3)) host.bad_until = events_.now() + a_while(milliseconds(500));
      if (events_.chance(0.3)) {
        events_.in(a_while(milliseconds(300)), [this, number] { crash(number); });
      }
    }
    *written = events_.chance(0.5) ? Written::kNot : Written::kUnknown;
    trace("FAULT: the disk of host " + std::to_string(number) + " fails at " + name_of(step));
  }
  const std::string line = host::Journal::decision(side, {decision, "", "", moves});
  if (*written == Written::kDurable || (*written == Written::kUnknown && events_.chance(0.5))) {
    host.disk += line + '\n';
    host.synced = host.disk.size();
  }
  if (*written == Written::kDurable) host.journal.take(line);
  return *written == Written::kDurable;
}

std::optional<Decision> World::on_record(int host, MoveId id, Side side) const {
  const auto* entry = hosts_.at(host)->journal.find(id, side);
  return entry != nullptr ? entry->decision() : std::nullopt;
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
