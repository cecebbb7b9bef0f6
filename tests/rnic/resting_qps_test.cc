#include <map>

#include "sim_pair.h"
#include "transport/stopped.h"
#include "wire/migration.h"

// Stops of an RNIC with many QPs, most of them idle (rnic/engine/resting_qps.h).
namespace ferry::rnic {
namespace {

using namespace testing;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using wire::MigrationType;

constexpr unsigned kQps = 200;  // more than one turn of any kind

class RestingQpsTest : public ::testing::Test, public SimPair {
 protected:
  struct Connection {
    device::Qp* a = nullptr;
    device::Qp* b = nullptr;
  };

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(open());
    mr_a = a.reg(ours.data(), ours.size());
    mr_b = b.reg(theirs.data(), theirs.size());
    for (unsigned i = 0; i < kQps; ++i) connections.push_back(connected());
    run(milliseconds(50));  // they learn of each other's kind
    network.set_filter([this](const port::Endpoint& from, const port::Endpoint&, auto bytes) {
      const auto packet = wire::parse(bytes);
      const auto message = packet ? wire::parse_migration(packet->payload) : std::nullopt;
      if (message) ++messages[{from, message->type}];
      return true;
    });
  }

  Connection connected() {
    connect();
    return {qp_a, qp_b};
  }

  // The RNIC `a` stops; its stand-in answers from here on.
  void stop() {
    std::uint32_t unacked = 0;
    ASSERT_EQ(a.context->quiesce(std::chrono::seconds(1), &unacked), 0);
    slots.clear();
    ASSERT_EQ(a.context->detach(&slots), 0);
    ASSERT_EQ(slots.size(), 1u);
    old_place = slots[0].local;
    stand_in = std::make_unique<SimStandIn>(*ports, slots[0], network.now());
    ASSERT_TRUE(stand_in->well_formed());
  }
  void prepare_and_stop() {
    a.context->prepare();
    messages.clear();
    ASSERT_NO_FATAL_FAILURE(stop());
  }
  void roll_back() {
    slots[0].descriptor = stand_in->release();
    stand_in.reset();
    ASSERT_EQ(a.context->attach(slots), 0);
    a.context->resume(true);
  }
  // To a place of its own, without a RESUME yet.
  void move() {
    int error = 0;
    const auto address = port::Address::from_ipv4(0x0A000010 + ++moves);
    auto port = ports->bind(address, 5, &error);
    ASSERT_NE(port, nullptr);
    rnic::Slot fresh;
    fresh.local = place = port->local();
    fresh.slot = 5;
    fresh.descriptor = ports->release(*port);
    stand_in->stand_in().committed(fresh.local, fresh.slot, slots[0].epoch, network.now());
    former.push_back(std::move(stand_in));
    ASSERT_EQ(a.context->attach({fresh}), 0);
  }
  void resume() { a.context->resume(false); }

  // As run(), with the stand-ins.
  void pass(transport::Time duration) {
    for (const transport::Time end = network.now() + duration; network.now() < end;) {
      run(std::min<transport::Time>(microseconds(100), end - network.now()));
      if (stand_in) stand_in->run(network.now());
      for (auto& each : former) each->run(network.now());
    }
  }

  unsigned sent(const port::Endpoint& from, MigrationType type) const {
    const auto at = messages.find({from, type});
    return at == messages.end() ? 0 : at->second;
  }
  std::vector<device::QpStatus> status(const Node& node) {
    std::vector<device::QpStatus> all;
    node.context->status(&all);
    return all;
  }
  unsigned pending() {
    unsigned count = 0;
    for (const auto& qp : status(a)) count += qp.resume_pending;
    return count;
  }

  void post(const Connection& on, bool from_a) {
    Node& node = from_a ? a : b;
    ASSERT_EQ(
        Send(IBV_WR_RDMA_WRITE, 1, from_a ? ours.data() : theirs.data(), 8, from_a ? mr_a : mr_b)
            .remote(from_a ? theirs.data() : ours.data(), (from_a ? mr_b : mr_a)->rkey())
            .post(from_a ? on.a : on.b),
        0);
    ++(&node == &a ? posted_a : posted_b);
  }
  // What was posted is done, once and without an error.
  void expect_done() {
    for (auto [node, posted] : {std::pair{&a, &posted_a}, std::pair{&b, &posted_b}}) {
      const auto done = drain(node->cq);
      EXPECT_EQ(done.size(), *posted);
      for (const ibv_wc& wc : done) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      *posted = 0;
    }
  }
  // Every connection works both ways, and nothing of the move is left.
  void expect_all_work() {
    for (const Connection& connection : connections) post(connection, true);
    pass(milliseconds(50));
    for (const Connection& connection : connections) post(connection, false);
    pass(milliseconds(50));
    expect_done();
    for (Node* node : {&a, &b}) {
      for (const auto& qp : status(*node)) {
        EXPECT_EQ(qp.migration, 0);
        EXPECT_EQ(qp.resume_pending, 0);
      }
    }
  }

  std::vector<char> ours = std::vector<char>(64), theirs = std::vector<char>(64);
  device::Mr *mr_a = nullptr, *mr_b = nullptr;
  std::vector<Connection> connections;
  std::vector<rnic::Slot> slots;
  std::unique_ptr<SimStandIn> stand_in;
  std::vector<std::unique_ptr<SimStandIn>> former;
  port::Endpoint old_place, place;
  unsigned moves = 0;
  std::size_t posted_a = 0, posted_b = 0;
  std::map<std::pair<port::Endpoint, MigrationType>, unsigned> messages;
};

TEST_F(RestingQpsTest, OnlyQpsInUseArePausedAtTheStop) {
  a.context->prepare();
  messages.clear();
  post(connections[3], true);  // its acknowledgement does not come before the stop
  ASSERT_NO_FATAL_FAILURE(stop());
  EXPECT_EQ(sent(old_place, MigrationType::kPause), 1u);
  EXPECT_EQ(slots[0].entries.size(), kQps);
  for (const auto& qp : status(a)) {
    EXPECT_EQ(qp.migration, 1);  // Stopped
    EXPECT_EQ(qp.epoch, 1u);
  }
}

TEST_F(RestingQpsTest, WithoutPreparationAllArePaused) {
  ASSERT_NO_FATAL_FAILURE(stop());
  EXPECT_EQ(sent(old_place, MigrationType::kPause), kQps);
  EXPECT_EQ(slots[0].entries.size(), kQps);
}

TEST_F(RestingQpsTest, EntriesTellWhatCameAfterThePreparation) {
  a.context->prepare();
  post(connections[5], false);
  run();
  expect_done();
  ASSERT_NO_FATAL_FAILURE(stop());
  ASSERT_EQ(slots[0].entries.size(), kQps);
  unsigned moved_on = 0;
  for (const auto& entry : slots[0].entries) {
    transport::StoppedEnd end;
    wire::ByteReader in(entry);
    ASSERT_TRUE(end.load(in));
    EXPECT_EQ(end.epoch, 1u);
    if (end.expected_psn == 0xFFFFF0) continue;
    EXPECT_EQ(end.expected_psn, 0xFFFFF1u);
    EXPECT_EQ(end.virtual_qpn, connections[5].a->qpn());
    ++moved_on;
  }
  EXPECT_EQ(moved_on, 1u);
}

TEST_F(RestingQpsTest, ResumesThoseInUseFirstAndTheOthersInTurn) {
  a.context->prepare();
  messages.clear();
  post(connections[7], true);
  ASSERT_NO_FATAL_FAILURE(stop());
  ASSERT_NO_FATAL_FAILURE(move());
  resume();
  EXPECT_EQ(sent(place, MigrationType::kResume), 1u);
  EXPECT_EQ(pending(), kQps);
  run(microseconds(1));
  EXPECT_EQ(sent(place, MigrationType::kResume), 65u);
  pass(milliseconds(20));
  EXPECT_EQ(pending(), 0u);
  EXPECT_EQ(sent(place, MigrationType::kResume), kQps);
  expect_done();
  expect_all_work();
}

TEST_F(RestingQpsTest, APostDoesNotWaitForItsTurn) {
  ASSERT_NO_FATAL_FAILURE(prepare_and_stop());
  ASSERT_NO_FATAL_FAILURE(move());
  post(connections[150], true);  // while Stopped, and
  resume();
  EXPECT_EQ(sent(place, MigrationType::kResume), 1u);
  post(connections[151], true);  // after it
  EXPECT_EQ(sent(place, MigrationType::kResume), 2u);
  pass(milliseconds(20));
  expect_done();
  expect_all_work();
}

TEST_F(RestingQpsTest, APeerThatSendsDoesNotWaitForItsTurn) {
  ASSERT_NO_FATAL_FAILURE(prepare_and_stop());
  post(connections[100], false);
  pass(milliseconds(5));
  EXPECT_EQ(sent(old_place, MigrationType::kNakStopped), 1u);
  ASSERT_NO_FATAL_FAILURE(move());
  // It hears of the new place and probes there, before the RNIC goes on.
  pass(milliseconds(10));
  EXPECT_EQ(sent(old_place, MigrationType::kMoved), 1u);
  resume();
  EXPECT_EQ(sent(place, MigrationType::kResume), 0u);
  run(microseconds(1));
  EXPECT_EQ(sent(place, MigrationType::kResume), 65u);  // one more than have their turn
  pass(milliseconds(20));
  expect_done();
  expect_all_work();
}

TEST_F(RestingQpsTest, ARollbackTellsTheNextEpoch) {
  ASSERT_NO_FATAL_FAILURE(prepare_and_stop());
  ASSERT_NO_FATAL_FAILURE(roll_back());
  for (const auto& qp : status(a)) EXPECT_EQ(qp.epoch, 2u);
  pass(milliseconds(20));
  for (const auto& qp : status(a)) EXPECT_EQ(qp.epoch, 2u);
  expect_all_work();
}

TEST_F(RestingQpsTest, AStopBeforeAllHaveResumed) {
  ASSERT_NO_FATAL_FAILURE(prepare_and_stop());
  ASSERT_NO_FATAL_FAILURE(move());
  resume();
  run(microseconds(1));
  EXPECT_EQ(sent(place, MigrationType::kResume), 64u);
  ASSERT_NO_FATAL_FAILURE(stop());  // without a preparation
  EXPECT_EQ(slots[0].entries.size(), kQps);
  for (const auto& qp : status(a)) EXPECT_EQ(qp.epoch, 2u);
  ASSERT_NO_FATAL_FAILURE(roll_back());
  pass(milliseconds(20));
  ASSERT_NO_FATAL_FAILURE(prepare_and_stop());
  ASSERT_NO_FATAL_FAILURE(move());
  resume();
  run(microseconds(1));
  EXPECT_EQ(sent(place, MigrationType::kResume), 64u);
  ASSERT_NO_FATAL_FAILURE(prepare_and_stop());  // all have something under way
  EXPECT_EQ(slots[0].entries.size(), kQps);
  for (const auto& qp : status(a)) EXPECT_EQ(qp.epoch, 5u);
  ASSERT_NO_FATAL_FAILURE(move());
  resume();
  pass(milliseconds(100));
  expect_all_work();
}

TEST_F(RestingQpsTest, QpsComeAndGoMeanwhile) {
  const auto replace = [this](std::size_t at) {
    ASSERT_EQ(a.context->destroy(connections[at].a), 0);
    ASSERT_EQ(b.context->destroy(connections[at].b), 0);
    connections[at] = connected();
  };
  a.context->prepare();
  replace(0);
  replace(kQps - 1);
  run(milliseconds(50));
  ASSERT_NO_FATAL_FAILURE(stop());
  EXPECT_EQ(slots[0].entries.size(), kQps);
  ASSERT_EQ(a.context->destroy(connections[10].a), 0);
  ASSERT_EQ(b.context->destroy(connections[10].b), 0);
  connections.erase(connections.begin() + 10);
  ASSERT_NO_FATAL_FAILURE(move());
  resume();
  run(microseconds(1));
  ASSERT_EQ(a.context->destroy(connections[20].a), 0);
  ASSERT_EQ(b.context->destroy(connections[20].b), 0);
  connections.erase(connections.begin() + 20);
  pass(milliseconds(20));
  EXPECT_EQ(status(a).size(), kQps - 2);
  expect_all_work();
}

TEST_F(RestingQpsTest, AResetWhileStoppedLeavesNothingToTell) {
  ASSERT_NO_FATAL_FAILURE(prepare_and_stop());
  ASSERT_EQ(connections[9].a->modify(attributes(IBV_QPS_RESET, 0, {}), IBV_QP_STATE), 0);
  ASSERT_NO_FATAL_FAILURE(move());
  resume();
  pass(milliseconds(20));
  EXPECT_EQ(sent(place, MigrationType::kResume), kQps - 1);
  EXPECT_EQ(pending(), 0u);
}

TEST_F(RestingQpsTest, AnImageShowsThemStopped) {
  ASSERT_NO_FATAL_FAILURE(prepare_and_stop());
  std::vector<std::byte> image;
  int count = 0;
  ASSERT_EQ(a.context->describe(&image, &count), 0);
  for (const auto& qp : status(a)) {
    EXPECT_EQ(qp.migration, 1);
    EXPECT_EQ(qp.epoch, 1u);
  }
  ASSERT_NO_FATAL_FAILURE(roll_back());
  pass(milliseconds(20));
  expect_all_work();
}

}  // namespace
}  // namespace ferry::rnic
