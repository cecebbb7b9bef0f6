#pragma once

#include <algorithm>
#include <array>
#include <deque>

#include "rig.h"
#include "virtual/messages/letters.h"

// Two programs, over devices that know nothing of moves. Letters are carried by the test, which
// tells them as a trace.
namespace ferry::virt::testing {

using r::Send;
using r::wait_completion;

struct Side : Program {
  device::Qp* qp = nullptr;
  device::Mr* mr = nullptr;
  std::array<std::uint64_t, 64> memory{};

  void start(std::uint32_t address = INADDR_LOOPBACK) {
    open(address);
    qp = create_qp();
    mr = reg(memory.data(), sizeof memory);
  }
  int receive(std::uint64_t id, std::size_t place) {
    return r::post_receive(qp, id, &memory[place], 8, mr);
  }
  int send(std::uint64_t id, std::uint64_t value) {
    return Send(IBV_WR_SEND, id, &value, 8, nullptr, IBV_SEND_SIGNALED | IBV_SEND_INLINE).post(qp);
  }
  std::vector<std::uint64_t> completions(int count) {
    std::vector<std::uint64_t> ids;
    for (; count > 0; --count) {
      const ibv_wc wc = wait_completion(cq);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << wc.wr_id;
      EXPECT_EQ(wc.qp_num, qp->qpn());
      ids.push_back(wc.wr_id);
    }
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  bool nothing_more() {
    ibv_wc wc{};
    return cq->poll(1, &wc) == 0;
  }
  void stop() {
    std::uint32_t unacked = 0;
    ASSERT_EQ(context->quiesce(std::chrono::seconds(10), &unacked), 0);
  }
  void park() {
    device::Parcel parcel;
    ASSERT_EQ(context->park(&parcel), 0);
  }
  void unpark() { ASSERT_EQ(context->unpark(context->place()), 0); }
  std::deque<device::Letter> letters;  // on their way to the other one
};

inline const char* name_of(const device::Letter& letter) {
  constexpr const char* kNames[] = {"",         "SUSPEND", "SUSPENDED", "GO_ON",       "SWITCH",
                                    "SWITCHED", "READY",   "SEEK",      "DISCONNECTED"};
  return kNames[static_cast<std::size_t>(letter.bytes[0])];
}

// What a program is, is up to the test.
template <typename End>
struct TwoEnds : ::testing::Test {
  End m, p;
  std::vector<std::string> trace;

  // Delivers what there is, until there is nothing but letters whose receiver is not connected yet.
  void carry() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (bool more = true; more;) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      more = m.context->progress();
      more |= p.context->progress();
      more |= carry_once(m, p, "m: ");
      more |= carry_once(p, m, "p: ");
    }
  }
  // False: there was nothing that could be delivered.
  bool carry_once(End& from, End& to, const std::string& who) {
    std::vector<device::Letter> written;
    from.context->take_letters(&written);
    from.letters.insert(from.letters.end(), written.begin(), written.end());
    bool some = false;
    while (!from.letters.empty()) {
      const int error = to.context->deliver(from.letters.front());
      if (error == ENOENT) break;
      EXPECT_EQ(error, 0);
      trace.push_back(who + name_of(from.letters.front()));
      from.letters.pop_front();
      some = true;
    }
    return some;
  }
  virtual void suspend(End& side) {
    side.context->suspend_peers();
    carry();
    ASSERT_TRUE(side.context->peers_are_suspended());
  }
  // `address`: where it goes.
  void move(End& side, std::uint32_t address = INADDR_LOOPBACK) {
    suspend(side);
    side.stop();
    side.park();
    side.device->address = address;
    side.unpark();
    side.context->resume(false);
    carry();
  }
};

struct TwoPrograms : TwoEnds<Side> {
  // The QPs are in use from now on, until the two completions are polled: so they leave the device in a stop only.
  void use() {
    ASSERT_EQ(p.receive(90, 60), 0);
    ASSERT_EQ(m.send(91, 0), 0);
  }
  void end_use() {
    EXPECT_EQ(m.completions(1), std::vector<std::uint64_t>{91});
    EXPECT_EQ(p.completions(1), std::vector<std::uint64_t>{90});
  }
  void expect_traffic(std::uint64_t id) {
    ASSERT_EQ(m.receive(id, 1), 0);
    ASSERT_EQ(p.receive(id, 1), 0);
    ASSERT_EQ(m.send(id + 1, id * 10), 0);
    ASSERT_EQ(p.send(id + 1, id * 11), 0);
    EXPECT_EQ(m.completions(2), (std::vector<std::uint64_t>{id, id + 1}));
    EXPECT_EQ(p.completions(2), (std::vector<std::uint64_t>{id, id + 1}));
    EXPECT_EQ(p.memory[1], id * 10);
    EXPECT_EQ(m.memory[1], id * 11);
  }
};

// Addresses of the loopback interface.
constexpr std::uint32_t kFirst = INADDR_LOOPBACK, kSecond = INADDR_LOOPBACK + 1,
                        kThird = INADDR_LOOPBACK + 2, kFourth = INADDR_LOOPBACK + 3;

// M begins at kFirst, P at kThird. Their QPs are in INIT.
struct UnconnectedPrograms : TwoPrograms {
  void SetUp() override {
    m.start(kFirst);
    p.start(kThird);
    for (Side* side : {&m, &p}) {
      r::to_init(side->qp);
      side->context->prepare();
    }
  }
  static void tell(Side& side, std::initializer_list<std::uint32_t> moved) {
    std::vector<port::Address> gids;
    for (const std::uint32_t address : moved) gids.push_back(port::Address::from_ipv4(address));
    side.context->moved({gids, {}});
  }
  static void connect(Side& side, Side& peer) { r::to_rts(side.qp, peer.qp->qpn(), peer.gid()); }
};

}  // namespace ferry::virt::testing
