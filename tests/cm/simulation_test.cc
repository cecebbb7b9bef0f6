#include <algorithm>
#include <random>

#include "cm/script.h"

// Two managers, a network that loses, repeats, delays and reorders, and programs that connect,
// accept or reject, disconnect and forget at random. Whatever happens, both ends learn how each
// connection ended, and nothing is left behind.
namespace ferry::cm {
namespace {

struct Flight {
  Time arrival;
  Datagram datagram;
};

class Simulation {
 public:
  explicit Simulation(unsigned seed) : random_(seed) {
    a_.random = seed;
    b_.random = seed * 77ull + 1;
  }

  void run() {
    constexpr int kConnections = 20;
    int made = 0;
    for (unsigned step = 0; step < 200000; ++step) {
      if (made < kConnections && chance(0.05)) {
        begin(a_, b_, made++);
      }
      collect(a_);
      collect(b_);
      deliver_events(a_);
      deliver_events(b_);
      if (!advance()) {
        if (made == kConnections) break;
        now_ += milliseconds(100);
      }
    }
    // Their owners let go of what is over.
    EXPECT_EQ(active_ended_, made);
    EXPECT_EQ(a_.manager.size(), 0u);
    EXPECT_EQ(b_.manager.size(), 0u);
    EXPECT_GT(established_ + rejected_ + unreachable_, 0);
  }

 private:
  bool chance(double p) { return std::uniform_real_distribution<>()(random_) < p; }

  void begin(Party& from, Party& to, int number) {
    Req req;
    req.service_id = kService;
    req.guid = 0xA1;
    req.qpn = 100u + static_cast<unsigned>(number);
    req.path.ack_timeout = 14;
    ASSERT_NE(from.manager.connect(req, from.address, to.address, now_), 0u);
  }

  void collect(Party& from) {
    Datagram d;
    while (from.manager.next_datagram(&d)) {
      if (chance(0.25)) continue;
      const int copies = chance(0.15) ? 2 : 1;
      for (int i = 0; i < copies; ++i) {
        const auto delay = milliseconds(std::uniform_int_distribution<>(1, 400)(random_));
        flights_.push_back({now_ + delay, d});
      }
    }
  }

  void deliver_events(Party& p) {
    Event e;
    while (p.manager.next_event(&e)) {
      const bool active = &p == &a_;
      switch (e.type) {
        case Event::Type::kRequest:
          if (chance(0.2)) {
            EXPECT_EQ(p.manager.reject(e.id, Reason::kConsumer, {}, now_), 0);
            p.manager.forget(e.id, now_);
          } else if (chance(0.1)) {
            p.manager.forget(e.id, now_);
          } else {
            Reply reply = p.reply();
            reply.qpn = e.id & 0xFFFF;
            EXPECT_EQ(p.manager.accept(e.id, reply, now_), 0);
          }
          break;
        case Event::Type::kReply:
          EXPECT_EQ(p.manager.establish(e.id, now_), 0);
          ++established_;
          if (chance(0.3)) {
            p.manager.forget(e.id, now_);
            ++active_ended_;
          } else {
            EXPECT_EQ(p.manager.disconnect(e.id, now_), 0);
          }
          break;
        case Event::Type::kEstablished:
          if (chance(0.3)) p.manager.disconnect(e.id, now_);
          break;
        case Event::Type::kDisconnected:
          p.manager.disconnect(e.id, now_);  // EINVAL on the side that began
          break;
        case Event::Type::kRejected:
        case Event::Type::kUnreachable:
        case Event::Type::kTimewaitExit:
          rejected_ += e.type == Event::Type::kRejected;
          unreachable_ += e.type == Event::Type::kUnreachable;
          p.manager.forget(e.id, now_);
          active_ended_ += active;
          break;
        default: ADD_FAILURE() << name_of(e.type);
      }
    }
  }

  // To the next thing that happens. False: nothing will.
  bool advance() {
    Time next = std::min(a_.manager.next_deadline(), b_.manager.next_deadline());
    for (const Flight& f : flights_) next = std::min(next, f.arrival);
    if (next == kNever) return false;
    now_ = std::max(now_, next);
    std::vector<Flight> due;
    std::erase_if(flights_, [&](const Flight& f) {
      if (f.arrival > now_) return false;
      due.push_back(f);
      return true;
    });
    std::shuffle(due.begin(), due.end(), random_);
    for (const Flight& f : due) {
      Party& to = f.datagram.to == a_.address ? a_ : b_;
      to.manager.handle({0, f.datagram.from, f.datagram.to, f.datagram.mad}, now_);
    }
    a_.manager.handle_timeouts(now_);
    b_.manager.handle_timeouts(now_);
    return true;
  }

  Party a_{1}, b_{2};
  std::mt19937 random_;
  Time now_{0};
  std::vector<Flight> flights_;
  int established_ = 0, rejected_ = 0, unreachable_ = 0, active_ended_ = 0;
};

TEST(CmSimulation, EveryConnectionEnds) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation(seed).run();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace ferry::cm
