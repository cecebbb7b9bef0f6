#include <atomic>
#include <deque>
#include <mutex>
#include <thread>

#include "../rnic/workload.h"
#include "two_programs.h"

// The two ends of a connection in programs of their own, with random requests. Each moves at random
// points, also both at once, and letters take their time: everything is executed exactly once, in
// order. So it is when the ends are quiet for a while, and their QPs leave the devices before a stop, and
// when the connection is made between moves, under addresses from before them. Most ends give each other
// memory windows, bind and invalidate them; some are connected by XRC in either direction.
namespace ferry::virt::testing {
namespace {

// One program, and how far its move is.
struct Mover : Program {
  enum class Step : std::uint8_t { kIdle, kTold, kStopped, kParked, kEntered };

  r::Endpoint end;
  r::SharedReceives receives;
  std::deque<device::Letter> letters;  // on their way to the other one
  Step step = Step::kIdle;
  bool is_connected = true;
  unsigned moves = 0, given_up = 0;
  unsigned early = 0;  // stops before which the QP had left the device
  std::mutex agent;    // held by who does what the agent of a program does
  std::atomic<bool> ends{false};
  std::thread progress;

  Mover(const char* name, std::uint64_t seed, std::uint32_t address, bool is_xrc,
        std::vector<std::string>* errors)
      : end(name, seed, errors) {
    open(address);
    if (is_xrc) {
      make_xrc();
    } else {
      if (seed % 2 == 0) receives.srq = create_srq(r::SharedReceives::kSlots);
      end.qp = create_qp(r::Endpoint::capabilities(), IBV_QPT_RC, receives.srq);
    }
    if (receives.srq != nullptr) {
      receives.mr = reg(receives.memory(), receives.memory_size());
      end.shared = &receives;
    }
    end.mr = reg(end.memory(), end.memory_size(), kRemote | IBV_ACCESS_MW_BIND);
    if (!is_xrc && seed % 3 != 0) {
      EXPECT_EQ(context->alloc_mw(pd, IBV_MW_TYPE_2, &end.window), 0);
    }
    context->prepare();
    progress = std::thread([this] {
      while (!ends) {
        {
          std::lock_guard lock(agent);
          context->progress();
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  }
  ~Mover() {
    ends = true;
    progress.join();
  }
  void make_xrc() {
    device::Xrcd* xrcd = nullptr;
    ASSERT_EQ(context->open_xrcd({}, &xrcd), 0);
    device::SrqInit srq;
    srq.pd = pd;
    srq.xrcd = xrcd;
    srq.cq = cq;
    srq.attributes = {r::SharedReceives::kSlots, 1, 0};
    ASSERT_EQ(context->create_srq(&srq, &receives.srq), 0);
    device::QpInit init;
    init.pd = pd;
    init.send_cq = cq;
    init.type = IBV_QPT_XRC_SEND;
    init.cap = r::Endpoint::capabilities();
    ASSERT_EQ(context->create_qp(&init, &end.qp), 0);
    init = {};
    init.xrcd = xrcd;
    init.type = IBV_QPT_XRC_RECV;
    ASSERT_EQ(context->create_qp(&init, &end.target), 0);
    Program::init(end.target);
  }
  void poll() {
    ibv_wc completions[4];
    const int count = cq->poll(4, completions);
    for (int i = 0; i < count; ++i) end.completed(completions[i]);
  }
  void collect() {
    std::vector<device::Letter> written;
    context->take_letters(&written);
    letters.insert(letters.end(), written.begin(), written.end());
  }
  void give_up() {
    context->resume(true);
    step = Step::kIdle;
    ++given_up;
  }
  // The next step of its move.
  void advance(port::SplitMix64& random) {
    std::lock_guard lock(agent);
    device::Parcel parcel;
    std::uint32_t unacked = 0;
    switch (step) {
      case Step::kIdle:
        context->suspend_peers();
        step = Step::kTold;
        break;
      case Step::kTold:
        if (context->peers_are_suspended() &&
            context->quiesce(std::chrono::milliseconds(3), &unacked) == 0) {
          step = Step::kStopped;
          if (behind(end.qp) == nullptr) ++early;
        } else if (random.chance(0.05)) {
          give_up();
        }
        break;
      case Step::kStopped:
        if (random.chance(0.2)) return give_up();
        ASSERT_EQ(context->park(&parcel), 0);
        step = Step::kParked;
        break;
      case Step::kParked:
        device->address = INADDR_LOOPBACK + static_cast<std::uint32_t>(random.next() % 4);
        ASSERT_EQ(context->unpark(context->place()), 0);
        step = Step::kEntered;
        break;
      case Step::kEntered:
        context->resume(false);
        step = Step::kIdle;
        ++moves;
        break;
    }
  }
};

struct Pair {
  Pair(std::uint64_t seed, bool is_connected)
      : random(seed),
        a("a", seed, INADDR_LOOPBACK, seed % 5 == 0, &errors),
        b("b", ~seed, INADDR_LOOPBACK + 1, seed % 5 == 0, &errors) {
    a.end.peer = &b.end;
    b.end.peer = &a.end;
    for (Mover* mover : {&a, &b}) {
      mover->is_connected = false;
      mover->init(mover->end.qp);
      // Where they began: others than those two may be there, which have not moved.
      mover->context->moved({{port::Address::from_ipv4(INADDR_LOOPBACK),
                              port::Address::from_ipv4(INADDR_LOOPBACK + 1)},
                             {}});
    }
    if (!is_connected) return;
    for (Mover* mover : {&a, &b}) mover->context->moved({});
    connect(a, b);
    connect(b, a);
  }
  static void connect(Mover& mover, Mover& peer) {
    const auto receives_by = [](const r::Endpoint& end) {
      return (end.target != nullptr ? end.target : end.qp)->qpn();
    };
    r::to_rts(mover.end.qp, receives_by(peer.end), peer.gid());
    if (mover.end.target != nullptr) r::to_rts(mover.end.target, peer.end.qp->qpn(), peer.gid());
    mover.is_connected = true;
  }

  void deliver(Mover& from, Mover& to) {
    from.collect();
    if (from.letters.empty()) return;
    std::lock_guard lock(to.agent);
    const int error = to.context->deliver(from.letters.front());
    if (error == ENOENT && !to.is_connected) return;  // it is tried again
    EXPECT_EQ(error, 0);
    trace.push_back(std::string(&from == &a ? "a: " : "b: ") + name_of(from.letters.front()));
    from.letters.pop_front();
  }
  // What the programs and whoever carries letters do at a time.
  void work(bool posts) {
    if (random.chance(0.003)) is_quiet = !is_quiet;
    for (Mover* mover : {&a, &b}) {
      const double busy = is_quiet ? 0.002 : 0.5;
      if (posts && mover->is_connected && random.chance(busy)) mover->end.post_request(false);
      if (random.chance(0.6)) mover->end.post_receive();
      mover->poll();
    }
    if (random.chance(0.3)) deliver(a, b);
    if (random.chance(0.3)) deliver(b, a);
  }
  void advance(double begin) {
    for (Mover* mover : {&a, &b}) {
      if (!random.chance(mover->step == Mover::Step::kIdle ? begin : 0.2)) continue;
      const Mover::Step before = mover->step;
      mover->advance(random);
      if (mover->step == before) continue;
      trace.push_back(std::string(mover == &a ? "a" : "b") + " at step " +
                      std::to_string(static_cast<int>(mover->step)));
    }
  }
  std::string describe() {
    std::string text;
    for (Mover* mover : {&a, &b}) {
      ibv_qp_attr attributes{};
      mover->end.qp->query(&attributes);
      text += mover->end.describe() + ", step " + std::to_string(static_cast<int>(mover->step)) +
              ", " + std::to_string(mover->letters.size()) + " letters, QP in state " +
              std::to_string(attributes.qp_state) + "\n";
    }
    constexpr std::size_t kLatest = 60;
    for (std::size_t i = trace.size() - std::min(trace.size(), kLatest); i < trace.size(); ++i)
      text += trace[i] + "\n";
    return text;
  }
  bool is_over() {
    return a.end.done() && b.end.done() && a.step == Mover::Step::kIdle &&
           b.step == Mover::Step::kIdle && a.letters.empty() && b.letters.empty();
  }
  // A call of the program that takes an arbitrary time waits while its device is away.
  void connect_some() {
    for (Mover* mover : {&a, &b}) {
      const bool is_away = mover->step != Mover::Step::kIdle && mover->step != Mover::Step::kTold;
      if (mover->is_connected || is_away || !random.chance(0.02)) continue;
      Mover& peer = mover == &a ? b : a;
      if (peer.step != Mover::Step::kIdle && peer.step != Mover::Step::kTold) continue;
      connect(*mover, peer);
      trace.push_back(std::string(mover == &a ? "a" : "b") + " connects");
    }
  }
  void play() {
    for (int i = 0; i < 2500 || !a.is_connected || !b.is_connected; ++i) {
      work(true);
      advance(0.01);
      connect_some();
      if (::testing::Test::HasFatalFailure()) return;
    }
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    // A last request of each that is signaled, so that everything before it is known to be done.
    for (Mover* mover : {&a, &b}) {
      const std::size_t before = mover->end.requests_posted();
      while (mover->end.requests_posted() == before) {
        mover->end.post_request(true);
        work(false);
        advance(0);
        if (::testing::Test::HasFailure()) return;
        ASSERT_LT(std::chrono::steady_clock::now(), limit) << describe();
      }
    }
    while (!is_over()) {
      ASSERT_LT(std::chrono::steady_clock::now(), limit) << describe();
      ASSERT_TRUE(errors.empty()) << errors[0];
      work(false);
      advance(0);
    }
    a.end.check();
    b.end.check();
    EXPECT_TRUE(errors.empty()) << errors[0];
  }

  port::SplitMix64 random;
  bool is_quiet = false;  // the programs do hardly anything
  std::vector<std::string> errors, trace;
  Mover a, b;
};

void play_seeds(bool are_connected) {
  const char* wanted = std::getenv("FERRY_SEED");
  const std::uint64_t first = wanted != nullptr ? std::strtoull(wanted, nullptr, 0) : 1;
  const std::uint64_t last = wanted != nullptr ? first : 30;
  unsigned moves = 0, given_up = 0, early = 0, xrc_moves = 0;
  std::uint64_t window_writes = 0, window_endings = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("FERRY_SEED=" + std::to_string(seed));
    Pair pair(seed, are_connected);
    pair.play();
    if (::testing::Test::HasFailure()) return;
    moves += pair.a.moves + pair.b.moves;
    given_up += pair.a.given_up + pair.b.given_up;
    early += pair.a.early + pair.b.early;
    if (pair.a.end.target != nullptr) xrc_moves += pair.a.moves + pair.b.moves;
    window_writes += pair.a.end.window_writes() + pair.b.end.window_writes();
    window_endings += pair.a.end.window_endings() + pair.b.end.window_endings();
  }
  std::printf("%u moves, %u given up; the QP had left before %u stops\n", moves, given_up, early);
  if (wanted == nullptr) {
    EXPECT_GT(early, 0u);
    EXPECT_GT(moves, 0u);
    EXPECT_GT(xrc_moves, 0u);
    EXPECT_GT(window_writes, 0u);
    EXPECT_GT(window_endings, 0u);
  }
}

TEST(RandomPeers, EverythingIsExecutedOnce) {
  play_seeds(true);
}

TEST(RandomPeers, EverythingIsExecutedOnceWhenTheyConnectBetweenMoves) {
  play_seeds(false);
}

}  // namespace
}  // namespace ferry::virt::testing
