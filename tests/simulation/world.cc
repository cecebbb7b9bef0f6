#include "world.h"

#include <cstdio>

namespace ferry::simulation {

Totals& Totals::operator+=(const Totals& other) {
  for (auto member :
       {&Totals::schedules, &Totals::programs, &Totals::moves, &Totals::commits, &Totals::rollbacks,
        &Totals::requests, &Totals::packets, &Totals::settled, &Totals::stand_ins_expired,
        &Totals::overlapping, &Totals::again, &Totals::ghosts, &Totals::groups,
        &Totals::groups_committed, &Totals::several, &Totals::several_committed}) {
    this->*member += other.*member;
  }
  for (std::size_t step = 0; step < faults.size(); ++step) {
    for (std::size_t kind = 0; kind < faults[step].size(); ++kind) {
      faults[step][kind] += other.faults[step][kind];
    }
  }
  return *this;
}

std::string to_json(const Totals& totals) {
  std::string text = "{";
  const auto add = [&](const char* name, std::uint64_t value) {
    text += std::string(text.size() > 1 ? ", " : "") + '"' + name + "\": " + std::to_string(value);
  };
  add("schedules", totals.schedules);
  add("programs", totals.programs);
  add("moves", totals.moves);
  add("committed", totals.commits);
  add("rolled_back", totals.rollbacks);
  add("groups", totals.groups);
  add("groups_committed", totals.groups_committed);
  add("of_several_hosts", totals.several);
  add("of_several_hosts_committed", totals.several_committed);
  add("begun_while_others_move", totals.overlapping);
  add("begun_with_work_left_after_a_move", totals.again);
  add("settled_after_a_restart", totals.settled);
  add("stand_ins_expired", totals.stand_ins_expired);
  add("images_restored_again", totals.ghosts);
  add("requests", totals.requests);
  add("packets", totals.packets);
  text += ", \"faults\": {";
  for (std::size_t step = 0; step < totals.faults.size(); ++step) {
    text += std::string(step > 0 ? ", " : "") + '"' + name_of(static_cast<Step>(step)) + "\": {";
    bool first = true;
    for (std::size_t kind = 0; kind < totals.faults[step].size(); ++kind) {
      if (totals.faults[step][kind] == 0) continue;
      text += std::string(first ? "" : ", ") + '"' + name_of(static_cast<Fault>(kind)) +
              "\": " + std::to_string(totals.faults[step][kind]);
      first = false;
    }
    text += "}";
  }
  return text + "}}";
}

World::World(const Options& options)
    : options_(options),
      events_(options.seed * 0x9E3779B97F4A7C15 + 1),
      network_(events_, options.trace) {
  set_up();
}

World::~World() = default;

void World::fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

void World::trace(const std::string& what) const {
  if (!options_.trace) return;
  std::printf("%12.3f ms  -- %s\n", static_cast<double>(events_.now().count()) / 1e6, what.c_str());
}

std::shared_ptr<Copy> World::live(int program) const {
  for (const auto& copy : copies_) {
    if (copy->program == program && copy->runs && !copy->dead) return copy;
  }
  return nullptr;
}

void World::goes_live(const std::shared_ptr<Copy>& copy) {
  if (copy->dead) fail("a dead copy goes on");
  if (live(copy->program)) {
    fail("two live copies of program " + std::to_string(copy->program));
  }
  copy->runs = true;
}

void World::set_up() {
  network_.delay = microseconds(events_.pick(5, 200));
  if (events_.chance(0.5)) network_.loss = events_.random.unit() * 0.05;
  if (events_.chance(0.4)) network_.duplication = 0.03;
  if (events_.chance(0.3)) network_.reordering = 0.05;
  programs_ = static_cast<unsigned>(events_.pick(2, 4));
  const auto count = programs_ + events_.pick(0, 1);
  for (std::size_t i = 0; i < count; ++i) hosts_.push_back(std::make_unique<Host>());
  faults_left_ = static_cast<unsigned>(events_.pick(0, 5));
  fault_probability_ = 0.02 + events_.random.unit() * 0.15;
  transport::MigrationSettings settings;
  const bool idle = events_.chance(0.25);
  // All on hosts of their own, or some on the same, from where they move as one.
  const auto spread = static_cast<unsigned>(events_.chance(0.5) ? programs_ : events_.pick(1, 2));
  for (unsigned p = 0; p < programs_; ++p) {
    Copy::Place place;
    place.slot = ++last_slot_;
    place.at.address = port::Address::from_ipv4(0x0A000001 + p % spread);
    place.at.udp_port = port::udp_port_of_slot(place.slot);
    auto copy = std::make_shared<Copy>(
        events_, network_, [this](const std::string& what) { fail(what); }, static_cast<int>(p),
        static_cast<int>(p % spread), place);
    copy->runs = true;
    network_.bind(place.at);
    copies_.push_back(copy);
  }
  // A ring; of two, one connection.
  const unsigned connections = programs_ == 2 ? 1 : programs_;
  for (unsigned c = 0; c < connections; ++c) {
    Copy& a = *copies_[c];
    Copy& b = *copies_[(c + 1) % programs_];
    const std::size_t at_a = a.qps().size(), at_b = b.qps().size();
    const auto index = static_cast<std::uint32_t>(20 + c * 2);
    a.add_qp(index, settings, idle ? 1 : events_.pick(1, 12));
    b.add_qp(index + 1, settings, idle ? 1 : events_.pick(1, 12));
    const auto psn = static_cast<std::uint32_t>(events_.pick(0xFFFFF0, 0xFFFFFF));
    const auto peer_psn = static_cast<std::uint32_t>(events_.pick(0, 0xFFFFFF));
    // 0.5 s; with the retries longer than a ferryd is away.
    a.connect(at_a, b, at_b, psn, peer_psn, 17);
    b.connect(at_b, a, at_a, peer_psn, psn, 17);
  }
  const Time interval = microseconds(50) * events_.pick(1, 100);
  const Time start = idle ? events_.between(milliseconds(0), milliseconds(6000)) : Time(0);
  const bool together = events_.chance(0.3);
  const Time first = events_.between(Time(0), milliseconds(20));
  for (unsigned p = 0; p < programs_; ++p) {
    const auto& copy = copies_[p];
    copy->read_socket();
    events_.in(idle ? start : Time(0),
               [this, p, interval] { play(static_cast<int>(p), interval, interval); });
    const auto moves = static_cast<unsigned>(events_.pick(p == 0 ? 1 : 0, 3));
    ++orders_;
    const Time at = together ? first : events_.between(Time(0), milliseconds(50));
    events_.in(at, [this, p, moves] { order(static_cast<int>(p), moves); });
  }
  idle_until_ = start;
  // Later, when all stand-ins have expired: those who were idle meanwhile send again, and move.
  if (events_.chance(0.1)) {
    idle_until_ = seconds(90);
    events_.in(events_.between(seconds(70), seconds(85)), [this, interval] {
      for (unsigned p = 0; p < programs_; ++p) {
        const auto copy = live(static_cast<int>(p));
        if (!copy) continue;
        for (auto& qp : copy->qps()) qp.app.to_post += events_.pick(0, 3);
        play(static_cast<int>(p), interval, interval);
        ++orders_;
        order(static_cast<int>(p), static_cast<unsigned>(events_.pick(0, 1)));
      }
    });
  }
  totals_.programs = programs_;
}

// The application of a program, wherever that is: less and less often while nothing happens.
void World::play(int program, Time interval, Time next) {
  constexpr Time kSeldom = milliseconds(200);
  const auto copy = live(program);
  const bool busy = copy && copy->act();
  next = busy ? interval : std::min(next * 2, kSeldom);
  events_.in(next, [this, program, interval, next] { play(program, interval, next); });
}

bool World::over() const {
  if (orders_ > 0 || !under_way_.empty() || events_.now() < idle_until_) return false;
  for (const auto& host : hosts_) {
    if (!host->up) return false;
  }
  unsigned alive = 0;
  for (const auto& copy : copies_) {
    if (copy->dead) continue;
    if (!copy->runs || copy->stopped || !copy->done()) return false;
    ++alive;
  }
  return alive == programs_;
}

std::string World::run() {
  constexpr Time kLimit = seconds(300);
  for (std::uint64_t steps = 0; failure_.empty(); ++steps) {
    if (steps % 16 == 0 && over()) break;
    if (!events_.step()) fail("nothing will ever happen");
    if (events_.now() > kLimit) fail("stuck");
  }
  for (unsigned p = 0; failure_ == "stuck" && p < programs_; ++p) {
    const auto lives = [p](const auto& copy) {
      return copy->program == static_cast<int>(p) && !copy->dead;
    };
    if (std::none_of(copies_.begin(), copies_.end(), lives)) {
      failure_ = "no copy of program " + std::to_string(p) + " is left";
    }
  }
  totals_.schedules = 1;
  totals_.packets = network_.packets();
  if (failure_.empty()) {
    std::vector<std::shared_ptr<Copy>> alive;
    for (const auto& copy : copies_) {
      totals_.requests += copy->completed();
      if (copy->dead) continue;
      copy->act();  // takes what has arrived
      alive.push_back(copy);
    }
    for (const auto& copy : alive) copy->check_end(alive);
  }
  return failure_;
}

std::string World::describe() const {
  std::string text = "at " + std::to_string(events_.now().count()) + " ns, " +
                     std::to_string(orders_) + " programs to be moved, " +
                     std::to_string(under_way_.size()) + " moves under way";
  for (const auto& copy : copies_) text += "\n  " + copy->describe();
  return text;
}

}  // namespace ferry::simulation
