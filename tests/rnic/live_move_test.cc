#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <set>

#include "loopback.h"
#include "sim_host.h"

// Stops and moves of RNICs with threads, over real sockets, while traffic flows.
namespace ferry::rnic::testing {
namespace {

// A program that writes numbered blocks to its peer and checks that each arrives whole, on a thread
// of its own.
class Writer {
 public:
  Writer(Pair& pair, device::Mr* local, device::Mr* remote, std::byte* source, std::byte* target)
      : pair_(pair), local_(local), remote_(remote), source_(source), target_(target) {
    thread_ = std::thread([this] { main(); });
  }
  ~Writer() { stop(); }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::uint64_t done() const { return done_.load(); }

 private:
  static constexpr std::uint32_t kBlock = 20'000;
  void main() {
    while (!stop_) {
      const std::uint64_t number = done_ + 1;
      for (std::uint32_t i = 0; i < kBlock; i += 8) std::memcpy(source_ + i, &number, 8);
      const int error = Send(IBV_WR_RDMA_WRITE, number, source_, kBlock, local_)
                            .remote(target_, remote_->rkey())
                            .post(pair_.qp_a);
      ASSERT_EQ(error, 0);
      const ibv_wc wc = wait_completion(pair_.a.cq);
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc.wr_id, number);
      ASSERT_EQ(std::memcmp(source_, target_, kBlock), 0);
      done_ = number;
    }
  }
  Pair& pair_;
  device::Mr* local_;
  device::Mr* remote_;
  std::byte* source_;
  std::byte* target_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> done_{0};
  std::thread thread_;
};

std::set<int> open_descriptors() {
  std::set<int> open;
  for (int fd = 0; fd < 256; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) open.insert(fd);
  }
  return open;
}

struct LiveMove : ::testing::Test {
  const std::set<int> open_before = open_descriptors();
  Pair pair;
  std::vector<std::byte> source = std::vector<std::byte>(32'768);
  std::vector<std::byte> target = std::vector<std::byte>(32'768);
  device::Mr* mr_a = nullptr;
  device::Mr* mr_b = nullptr;

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(pair.open(loopback(true, false)));
    mr_a = pair.a.reg(source.data(), source.size());
    mr_b = pair.b.reg(target.data(), target.size());
  }
  std::unique_ptr<Writer> write() {
    return std::make_unique<Writer>(pair, mr_a, mr_b, source.data(), target.data());
  }
  static bool progresses(Writer& writer) {
    const std::uint64_t before = writer.done();
    return eventually([&] { return writer.done() > before + 10; });
  }
};

// The peer (the side that is written to) stops and goes on at its place.
TEST_F(LiveMove, RollbackOfThePassiveSide) {
  auto writer = write();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(progresses(*writer));
    std::uint32_t unacked = 0;
    pair.b.context->prepare();
    ASSERT_EQ(pair.b.context->quiesce(std::chrono::seconds(1), &unacked), 0);
    EXPECT_EQ(pair.b.context->quiesce(std::chrono::seconds(1), &unacked), EALREADY);
    std::vector<rnic::Slot> slots;
    ASSERT_EQ(pair.b.context->detach(&slots), 0);
    ASSERT_EQ(slots.size(), 1u);
    EXPECT_EQ(slots[0].entries.size(), 1u);
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ASSERT_EQ(pair.b.context->attach(slots), 0);
    pair.b.context->resume(true);
  }
  ASSERT_TRUE(progresses(*writer));
}

// The program that posts goes on posting and polling while its RNIC is stopped.
TEST_F(LiveMove, RollbackOfTheActiveSide) {
  auto writer = write();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(progresses(*writer));
    std::uint32_t unacked = 0;
    pair.a.context->prepare();
    ASSERT_EQ(pair.a.context->quiesce(std::chrono::seconds(1), &unacked), 0);
    std::vector<rnic::Slot> slots;
    ASSERT_EQ(pair.a.context->detach(&slots), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_EQ(pair.a.context->attach(slots), 0);
    pair.a.context->resume(true);
  }
  ASSERT_TRUE(progresses(*writer));
}

TEST_F(LiveMove, ResumeWithoutDetach) {
  auto writer = write();
  ASSERT_TRUE(progresses(*writer));
  pair.b.context->prepare();
  std::uint32_t unacked = 0;
  ASSERT_EQ(pair.b.context->quiesce(std::chrono::seconds(1), &unacked), 0);
  pair.b.context->resume(true);
  ASSERT_TRUE(progresses(*writer));
}

// The same process, other sockets: what CRIU's move does.
TEST_F(LiveMove, ToAnotherAddress) {
  auto writer = write();
  auto source_of_ports = udp_port_source({});
  for (unsigned host = 2; host < 8; ++host) {
    ASSERT_TRUE(progresses(*writer));
    Node& moving = host % 2 == 0 ? pair.b : pair.a;
    moving.context->prepare();
    std::uint32_t unacked = 0;
    ASSERT_EQ(moving.context->quiesce(std::chrono::seconds(1), &unacked), 0);
    std::vector<rnic::Slot> slots;
    ASSERT_EQ(moving.context->detach(&slots), 0);
    SimStandIn stand_in(*source_of_ports, slots[0], system_environment().now());
    ASSERT_TRUE(stand_in.well_formed());

    int error = 0;
    rnic::Slot fresh;
    auto port = source_of_ports->bind(port::Address::from_ipv4(0x7F000000 + host), 7, &error);
    ASSERT_NE(port, nullptr);
    fresh.local = port->local();
    fresh.slot = 7;
    fresh.descriptor = source_of_ports->release(*port);
    for (int i = 0; i < 20; ++i) {
      stand_in.run(system_environment().now());
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    const std::uint64_t before = writer->done();
    stand_in.stand_in().committed(fresh.local, fresh.slot, fresh.epoch, system_environment().now());
    ASSERT_EQ(moving.context->attach({fresh}), 0);
    EXPECT_LE(writer->done(), before + 1) << "nothing moves before resume()";
    moving.context->resume(false);
    EXPECT_TRUE(eventually([&] {
      stand_in.run(system_environment().now());
      return writer->done() > before + 5;
    }));
    std::vector<device::QpStatus> status;
    moving.context->status(&status);
    EXPECT_EQ(port::slot_of(status.at(0).wire_qpn), 7u);
    EXPECT_EQ(status.at(0).local, fresh.local);
    EXPECT_NE(status.at(0).qpn, status.at(0).wire_qpn);
  }
  // Both see the other at its last place, and the pause was measured.
  std::vector<device::QpStatus> a, b;
  pair.a.context->status(&a);
  pair.b.context->status(&b);
  EXPECT_EQ(a.at(0).peer, b.at(0).local);
  EXPECT_EQ(b.at(0).peer, a.at(0).local);
  EXPECT_GT(a.at(0).last_pause_ns, 1'000'000u);
  EXPECT_LT(a.at(0).last_pause_ns, 10'000'000'000u);
}

// A server that is upgraded in place: a fresh context gets the objects and the socket of the old
// one.
TEST_F(LiveMove, HandedToAnotherContext) {
  auto writer = write();
  ASSERT_TRUE(progresses(*writer));
  pair.b.context->prepare();
  std::uint32_t unacked = 0;
  ASSERT_EQ(pair.b.context->quiesce(std::chrono::seconds(1), &unacked), 0);
  std::vector<rnic::Slot> slots;
  ASSERT_EQ(pair.b.context->detach(&slots), 0);
  std::vector<std::byte> image;
  int count = 0;
  ASSERT_EQ(pair.b.context->describe(&image, &count), 0);

  Sink sink;
  Context::Options wanted = options(loopback(true, false));
  wanted.sink = &sink;
  int error = 0;
  auto heir = Context::open(wanted, &error);
  ASSERT_NE(heir, nullptr);
  for (std::span<const std::byte> rest = image; !rest.empty();) {
    const auto before = rest;
    device::Record record;
    ASSERT_TRUE(device::next_record(&rest, &record));
    const auto bytes = before.first(before.size() - rest.size());
    device::Object* object = nullptr;
    ASSERT_EQ(heir->restore(record.type, device::RestoreCommand::kCreate, bytes, &object), 0);
    if (record.type == device::ObjectType::kMr) {
      ASSERT_EQ(heir->restore(record.type, device::RestoreCommand::kMrKeys, bytes, &object), 0);
    } else if (record.type == device::ObjectType::kCq || record.type == device::ObjectType::kQp) {
      ASSERT_EQ(heir->restore(record.type, device::RestoreCommand::kRefill, bytes, &object), 0);
    }
  }
  ASSERT_EQ(heir->attach(slots), 0);
  heir->resume(false);
  ASSERT_TRUE(progresses(*writer));
  writer->stop();
  pair.b.context.swap(heir);
}

TEST_F(LiveMove, AttachTakesAllOrNothing) {
  std::uint32_t unacked = 0;
  ASSERT_EQ(pair.b.context->quiesce(std::chrono::seconds(1), &unacked), 0);
  std::vector<rnic::Slot> slots;
  ASSERT_EQ(pair.b.context->detach(&slots), 0);
  rnic::Slot wrong = slots[0];
  wrong.descriptor = 0;  // not a UDP socket
  EXPECT_NE(pair.b.context->attach({wrong}), 0);
  rnic::Slot other_family = slots[0];
  other_family.local.address = {};
  EXPECT_EQ(pair.b.context->attach({other_family}), EADDRNOTAVAIL);
  EXPECT_EQ(pair.b.context->attach({}), EADDRNOTAVAIL);
  ASSERT_EQ(pair.b.context->attach(slots), 0);
  pair.b.context->resume(true);
  auto writer = write();
  EXPECT_TRUE(progresses(*writer));
}

// A detached RNIC holds no descriptor: CRIU would find it.
// What is left are the sockets, which are the caller's now.
TEST_F(LiveMove, DetachClosesEveryDescriptor) {
  std::set<int> expected = open_before;
  std::array<std::vector<rnic::Slot>, 2> slots;
  const std::array<Context*, 2> contexts{pair.a.context.get(), pair.b.context.get()};
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    std::uint32_t unacked = 0;
    ASSERT_EQ(contexts[i]->quiesce(std::chrono::seconds(1), &unacked), 0);
    ASSERT_EQ(contexts[i]->detach(&slots[i]), 0);
    for (const auto& slot : slots[i]) expected.insert(slot.descriptor);
  }
  EXPECT_EQ(open_descriptors(), expected);
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    ASSERT_EQ(contexts[i]->attach(slots[i]), 0);
    contexts[i]->resume(true);
  }
}

TEST_F(LiveMove, ForkedChildFailsCleanly) {
  const pid_t child = fork();
  if (child == 0) {
    pair.a.context->abandon();
    ibv_wc wc;
    ibv_port_attr port;
    device::Pd* pd = nullptr;
    std::uint32_t unacked = 0;
    ibv_qp_attr attributes{};
    const bool fails = pair.a.cq->poll(1, &wc) < 0 && pair.a.cq->arm(false) == ENODEV &&
                       Send(IBV_WR_SEND, 1, source.data(), 1, mr_a).post(pair.qp_a) == ENODEV &&
                       post_receive(pair.qp_a, 1, source.data(), 1, mr_a) == ENODEV &&
                       pair.a.context->query_port(1, &port) == ENODEV &&
                       pair.a.context->alloc_pd(&pd) == ENODEV &&
                       pair.a.context->destroy(mr_a) == ENODEV &&
                       pair.a.context->quiesce(std::chrono::seconds(1), &unacked) == ENODEV &&
                       pair.qp_a->modify(attributes, IBV_QP_STATE) == ENODEV &&
                       pair.qp_a->query(&attributes) == ENODEV;
    _exit(fails ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  auto writer = write();
  EXPECT_TRUE(progresses(*writer));
}

}  // namespace
}  // namespace ferry::rnic::testing
