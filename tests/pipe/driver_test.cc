// The driver against programs that do not use PD Lib, and do not behave.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "chosen_engine.h"
#include "pipe/engine/software_engine.h"
#include "played.h"

namespace ferry::pipe {
namespace {

constexpr Domain kBridge{1, 7, 0}, kOtherBridge{1, 8, 0};

class DriverTest : public testing::Test {
 protected:
  std::shared_ptr<PlayedNetwork> network(std::uint64_t id, std::uint8_t last,
                                         Domain domain = kBridge) {
    return std::make_shared<PlayedNetwork>(id, address_of(last, 0), domain);
  }
  void work(PlayedProgram& program) {
    while (driver_.work(program.session(), 64) || driver_.pump()) {
    }
    driver_.announce();
    program.reap();
  }
  // A connection of two programs; the client has a block of 64 KiB.
  void connect(PlayedProgram& server, PlayedProgram& client) {
    listener_ = server.listening(address_of(1, 80));
    client_ = client.socket();
    ASSERT_EQ(client.ask(Call::kConnect, client_, 0, 0, address_of(1, 80)).error, 0);
    const auto accepted = server.ask(Call::kAccept, listener_);
    ASSERT_EQ(accepted.error, 0);
    server_ = accepted.socket;
    receive_ring_ = server.rings_of_answer.at(1);
    const auto block = client.ask(Call::kAllocate, client_, 0, 65536);
    ASSERT_EQ(block.error, 0);
    block_ = block.number;
    client.ask(Call::kRings, client_);
    send_ring_ = client.rings_of_answer.at(0);
  }

  Pool pool_{{}};
  const std::unique_ptr<Engine> engine_ = chosen_engine();
  Driver driver_{{}, pool_, *engine_};
  SocketId listener_, client_, server_;
  std::uint32_t block_ = 0;
  std::shared_ptr<Ring> send_ring_, receive_ring_;
};

TEST_F(DriverTest, CopiesFromRingToRing) {
  PlayedProgram server(driver_, network(1, 1)), client(driver_, network(2, 2));
  connect(server, client);
  std::memcpy(send_ring_->base() + 100, "message", 7);
  ASSERT_TRUE(client.send(client_, block_, 100, 7));
  work(client);
  server.reap();
  EXPECT_EQ(client.of(client_).done, 1U);
  EXPECT_EQ(server.of(server_).received, 7U);
  EXPECT_EQ(std::memcmp(receive_ring_->base(), "message", 7), 0);
}

TEST_F(DriverTest, ABadEntryEndsTheConnectionOfWhoHasWrittenIt) {
  struct Case {
    const char* what;
    std::uint32_t block;
    std::uint64_t offset;
    std::uint32_t length;
  };
  for (const Case& bad :
       {Case{"no such block", 9, 0, 1}, Case{"before the block", 0, ~0ULL - 3, 8},
        Case{"beyond the block", 0, 65535, 2}, Case{"beyond the ring", 0, 1ULL << 40, 1}}) {
    SCOPED_TRACE(bad.what);
    PlayedProgram server(driver_, network(1, 1)), client(driver_, network(2, 2));
    PlayedProgram bystander(driver_, network(3, 3));
    connect(server, client);
    const SocketId other = bystander.socket();
    ASSERT_EQ(bystander.ask(Call::kConnect, other, 0, 0, address_of(1, 80)).error, 0);
    client.send(client_, bad.block, bad.offset, bad.length);
    work(client);
    server.reap();
    bystander.reap();
    EXPECT_TRUE(client.of(client_).flags & kReset);
    EXPECT_TRUE(server.of(server_).flags & kReset);
    EXPECT_EQ(server.of(server_).received, 0U);
    EXPECT_FALSE(bystander.of(other).flags & kReset);
    for (auto* program : {&server, &client, &bystander}) program->end();
  }
}

TEST_F(DriverTest, EntriesForSocketsOfOthersMeanNothing) {
  PlayedProgram server(driver_, network(1, 1)), client(driver_, network(2, 2)),
      thief(driver_, network(3, 3));
  connect(server, client);
  // The number and generation of another program's socket.
  thief.send(client_, block_, 0, 100);
  thief.read(server_, 0);
  Entry entry;
  std::memset(static_cast<void*>(&entry), 0xff, sizeof entry);
  thief.submit(entry);
  work(thief);
  server.reap();
  EXPECT_EQ(server.of(server_).received, 0U);
  EXPECT_EQ(server.of(server_).flags, 0);
}

TEST_F(DriverTest, ReadingWhatIsNotThereEndsTheConnection) {
  PlayedProgram server(driver_, network(1, 1)), client(driver_, network(2, 2));
  connect(server, client);
  client.send(client_, block_, 0, 100);
  work(client);
  server.read(server_, 101);
  work(server);
  EXPECT_TRUE(server.of(server_).flags & kReset);
}

TEST_F(DriverTest, WhoFloodsASocketBreaksItsOwn) {
  PlayedProgram server(driver_, network(1, 1)), client(driver_, network(2, 2));
  connect(server, client);
  for (int round = 0; round < 4; ++round) {
    while (client.send(client_, block_, 0, 65536)) {
    }
    work(client);
  }
  EXPECT_TRUE(client.of(client_).flags & kReset);
}

TEST_F(DriverTest, ScribbledPositionsHarmNobody) {
  PlayedProgram server(driver_, network(1, 1)), client(driver_, network(2, 2));
  connect(server, client);
  for (std::uint32_t lane = 0; lane < client.lanes(); ++lane) {
    client.queue(lane).submitted = ~0ULL;
    client.queue(lane).taken = 12345;
    client.queue(lane).reaped = ~0ULL - 7;
    std::memset(static_cast<void*>(client.queue(lane).submissions), 0x5a,
                sizeof(Queue::submissions));
  }
  work(client);
  EXPECT_EQ(server.of(server_).received, 0U);
  client.end();
  driver_.announce();
  server.reap();
  EXPECT_TRUE(server.of(server_).flags & kEnd);
}

TEST_F(DriverTest, ANoticeNeverWaits) {
  PlayedProgram server(driver_, network(1, 1)), client(driver_, network(2, 2));
  connect(server, client);
  // The file is the driver's as well. A count that is full, which takes no more, would keep it waiting.
  const int notice = server.session()->notice();
  ASSERT_EQ(::fcntl(notice, F_SETFL, 0), 0);
  const std::uint64_t full = ~0ULL - 1;
  [[maybe_unused]] const ssize_t written = ::write(notice, &full, sizeof full);
  server.want_notice();
  client.send(client_, block_, 0, 100);
  work(client);
  server.reap();
  EXPECT_EQ(server.of(server_).received, 100U);
  pollfd readable{notice, POLLIN, 0};
  EXPECT_EQ(::poll(&readable, 1, 10'000), 1);
}

TEST_F(DriverTest, WhoNeverStopsSubmittingKeepsNobody) {
  class Refilling : public SoftwareEngine {
   public:
    std::size_t submit(std::span<const Entry> entries) override {
      if (refill && left > 0) refill();
      return SoftwareEngine::submit(entries);
    }
    std::function<void()> refill;
    std::size_t left = 8 * std::size_t{kQueueDepth};
  } engine;
  Driver driver({}, pool_, engine);
  PlayedProgram server(driver, network(1, 1)), client(driver, network(2, 2));
  server.listening(address_of(1, 80));
  std::vector<std::pair<SocketId, std::uint32_t>> senders;
  for (int number = 0; number < 2; ++number) {
    const SocketId id = client.socket();
    ASSERT_EQ(client.ask(Call::kConnect, id, 0, 0, address_of(1, 80)).error, 0);
    senders.emplace_back(id, client.ask(Call::kAllocate, id, 0, 4096).number);
  }
  const SocketId listener{0, 1};
  for (int number = 0; number < 2; ++number) {
    ASSERT_EQ(server.ask(Call::kAccept, listener).error, 0);
  }
  std::size_t sent = 0;
  engine.refill = [&] {
    while (client.send(senders[sent % 2].first, senders[sent % 2].second, 0, 1)) ++sent;
    engine.left = sent < engine.left ? engine.left : 0;
  };
  engine.refill();
  client.socket();
  EXPECT_LE(sent, 3 * std::size_t{kQueueDepth});
}

TEST_F(DriverTest, CompletionsWaitForRoom) {
  PlayedProgram server(driver_, network(1, 1)), client(driver_, network(2, 2));
  connect(server, client);
  // More than the queue holds, of a server that does not look.
  for (unsigned number = 0; number < kQueueDepth + 10; ++number) {
    ASSERT_TRUE(client.send(client_, block_, 0, 1));
    work(client);
  }
  EXPECT_EQ(client.of(client_).done, kQueueDepth + 10);
  server.reap();
  EXPECT_LT(server.of(server_).received, kQueueDepth + 10);
  work(server);
  EXPECT_EQ(server.of(server_).received, kQueueDepth + 10);
}

TEST_F(DriverTest, OnlyTheOwnerOfAnAddressBindsIt) {
  const auto of_client = network(2, 2);
  PlayedProgram client(driver_, of_client);
  const SocketId id = client.socket();
  EXPECT_EQ(client.ask(Call::kBind, id, 0, 0, address_of(1, 80)).error, EADDRNOTAVAIL);
  of_client->is_bound = false;
  EXPECT_EQ(client.ask(Call::kBind, id, 0, 0, address_of(2, 80)).error, EACCES);
  of_client->is_bound = true;
  EXPECT_EQ(client.ask(Call::kBind, id, 0, 0, address_of(2, 80)).error, 0);
  EXPECT_EQ(client.ask(Call::kBind, id, 0, 0, address_of(2, 80)).error, EINVAL);
}

// An address on an interface that leads elsewhere, as lo, which root of a container gives to whom it likes.
TEST_F(DriverTest, WhoConnectsDoesSoFromAnAddressOfThatNetwork) {
  const auto of_client = network(2, 2);
  of_client->add(address_of(77, 0), {2, 1, 0});
  of_client->add(address_of(3, 0), kBridge);
  PlayedProgram server(driver_, network(1, 1)), client(driver_, of_client);
  const SocketId listener = server.listening(address_of(1, 80));
  const auto connect_from = [&](std::uint8_t last) {
    const SocketId id = client.socket();
    EXPECT_EQ(client.ask(Call::kBind, id, 0, 0, address_of(last, 90)).error, 0);
    return client.ask(Call::kConnect, id, 0, 0, address_of(1, 80)).error;
  };
  EXPECT_EQ(connect_from(77), kForeign) << "what TCP says of it is the kernel's matter";
  EXPECT_EQ(server.ask(Call::kAccept, listener).error, EAGAIN);
  EXPECT_EQ(connect_from(3), 0);
  EXPECT_EQ(server.ask(Call::kAccept, listener).peer, address_of(3, 90));
}

TEST_F(DriverTest, NetworksMayHaveTheSameAddresses) {
  PlayedProgram red(driver_, network(1, 1, kBridge)), blue(driver_, network(2, 1, kOtherBridge));
  const SocketId red_listener = red.listening(address_of(1, 80));
  const SocketId blue_listener = blue.listening(address_of(1, 80));
  PlayedProgram client(driver_, network(3, 3, kOtherBridge));
  const SocketId id = client.socket();
  ASSERT_EQ(client.ask(Call::kConnect, id, 0, 0, address_of(1, 80)).error, 0);
  EXPECT_EQ(red.ask(Call::kAccept, red_listener).error, EAGAIN);
  EXPECT_EQ(blue.ask(Call::kAccept, blue_listener).error, 0);
  PlayedProgram elsewhere(driver_, network(4, 4, {9, 9, 9}));
  EXPECT_EQ(elsewhere.ask(Call::kConnect, elsewhere.socket(), 0, 0, address_of(1, 80)).error,
            kForeign);
}

TEST_F(DriverTest, OneNetworkHasAnAddressOnce) {
  PlayedProgram first(driver_, network(1, 1)), second(driver_, network(2, 1));
  first.listening(address_of(1, 80));
  const SocketId id = second.socket();
  ASSERT_EQ(second.ask(Call::kBind, id, 0, 0, address_of(1, 80)).error, 0);
  EXPECT_EQ(second.ask(Call::kListen, id, 1).error, EADDRINUSE);
}

TEST_F(DriverTest, WhoListensAtAnyAddressKeepsItsOwn) {
  const auto of_thief = network(2, 9), of_sleeper = network(3, 8);
  PlayedProgram server(driver_, network(1, 1)), thief(driver_, of_thief),
      client(driver_, network(4, 4));
  SocketAddress any = address_of(0, 80);
  any.ip = {};
  server.listening(any);
  // Its root adds the address of the server.
  of_thief->add(address_of(1, 0), kBridge);
  const SocketId id = thief.socket();
  ASSERT_EQ(thief.ask(Call::kBind, id, 0, 0, address_of(1, 80)).error, 0);
  EXPECT_EQ(thief.ask(Call::kListen, id, 1).error, EADDRINUSE);
  EXPECT_EQ(client.ask(Call::kConnect, client.socket(), 0, 0, address_of(1, 80)).error, 0);
  // One that listens at any address has the address later.
  PlayedProgram sleeper(driver_, of_sleeper);
  sleeper.listening(any);
  EXPECT_EQ(client.ask(Call::kConnect, client.socket(), 0, 0, address_of(1, 80)).error, 0);
  of_sleeper->add(address_of(1, 0), kBridge);
  EXPECT_EQ(client.ask(Call::kConnect, client.socket(), 0, 0, address_of(1, 80)).error, kForeign)
      << "whose it is, the bridge decides";
  sleeper.end();
  EXPECT_EQ(client.ask(Call::kConnect, client.socket(), 0, 0, address_of(1, 80)).error, 0);
}

TEST_F(DriverTest, ANetworkIsAskedOnceForEachConnection) {
  const auto shared = network(1, 1);
  PlayedProgram server(driver_, shared), client(driver_, network(2, 2));
  for (std::uint8_t last = 0; last < 100; ++last) {
    shared->add(address_of(last, 0), kBridge);
    server.listening(address_of(last, 80));
  }
  SocketAddress any = address_of(0, 80);
  any.ip = {};
  const SocketId at_any = server.listening(any);
  shared->questions = 0;
  EXPECT_EQ(client.ask(Call::kConnect, client.socket(), 0, 0, address_of(7, 80)).error, 0);
  EXPECT_EQ(shared->questions, 1);
  EXPECT_EQ(server.ask(Call::kAccept, at_any).error, EAGAIN) << "who listens at the address has it";
}

TEST_F(DriverTest, ContainersThatShareANetworkHaveLimitsOfTheirOwn) {
  Driver::Settings settings;
  settings.container.memory = 9 << 20;  // with the queues
  Driver driver(settings, pool_, *engine_);
  const auto shared = network(1, 1);
  PlayedProgram first(driver, shared, 1), again(driver, shared, 1), second(driver, shared, 2);
  EXPECT_EQ(first.ask(Call::kRings, first.socket()).error, 0);
  EXPECT_EQ(again.ask(Call::kRings, again.socket()).error, ENOBUFS);
  EXPECT_EQ(second.ask(Call::kRings, second.socket()).error, 0);
}

TEST_F(DriverTest, AUserHasNoMoreByMoreContainers) {
  Driver::Settings settings;
  settings.user.memory = 9 << 20;
  settings.user.sockets = 3;
  settings.user.sessions = 3;
  Driver driver(settings, pool_, *engine_);
  constexpr std::uint32_t kUser = 1000;
  PlayedProgram first(driver, network(1, 1), 1, kUser), second(driver, network(2, 2), 2, kUser),
      root(driver, network(3, 3), 3), other(driver, network(4, 4), 4, kUser + 1);
  EXPECT_EQ(first.ask(Call::kRings, first.socket()).error, 0);
  const SocketId id = second.socket();
  EXPECT_EQ(second.ask(Call::kRings, id).error, ENOBUFS);
  EXPECT_EQ(second.ask(Call::kSocket, {}, AF_INET).error, 0);
  EXPECT_EQ(second.ask(Call::kSocket, {}, AF_INET).error, EMFILE);
  EXPECT_EQ(root.ask(Call::kRings, root.socket()).error, 0);
  EXPECT_EQ(other.ask(Call::kRings, other.socket()).error, 0);
  first.end();
  first.rings_of_answer.clear();
  EXPECT_EQ(second.ask(Call::kRings, id).error, 0);
  auto third = driver.open({1, kUser, 5, network(5, 5)}),
       fourth = driver.open({1, kUser, 6, network(6, 6)});
  EXPECT_TRUE(third && fourth);
  EXPECT_FALSE(driver.open({1, kUser, 7, network(7, 7)}));
  third.reset();
  EXPECT_TRUE(driver.open({1, kUser, 7, network(7, 7)}));
}

TEST_F(DriverTest, QueuesAreMemoryOfTheirContainer) {
  Driver::Settings settings;
  settings.container.memory = 2 * QueueMemory::size(1);
  Driver driver(settings, pool_, *engine_);
  const auto shared = network(1, 1);
  ControlRequest hello;
  hello.call = Call::kHello;
  hello.number = kControlVersion;
  std::vector<std::shared_ptr<Session>> sessions;
  const auto come = [&] {
    sessions.push_back(driver.open({1, 0, 1, shared}));
    return driver.handle(sessions.back(), hello, {}).reply.error;
  };
  EXPECT_EQ(come(), 0);
  EXPECT_EQ(come(), 0);
  EXPECT_EQ(pool_.used(), settings.container.memory);
  EXPECT_EQ(come(), ENOBUFS);
  sessions.erase(sessions.begin());
  EXPECT_EQ(come(), 0);
}

TEST_F(DriverTest, ABacklogHasAnEnd) {
  PlayedProgram server(driver_, network(1, 1)), client(driver_, network(2, 2));
  const SocketId listener = server.listening(address_of(1, 80), 2);
  const auto connect_one = [&] {
    return client.ask(Call::kConnect, client.socket(), 0, 0, address_of(1, 80)).error;
  };
  EXPECT_EQ(connect_one(), 0);
  EXPECT_EQ(connect_one(), 0);
  EXPECT_EQ(connect_one(), ECONNREFUSED);
  EXPECT_EQ(server.ask(Call::kAccept, listener).error, 0);
  EXPECT_EQ(connect_one(), 0);
  server.end();
  EXPECT_EQ(connect_one(), kForeign);
}

TEST_F(DriverTest, WhoListensNoMoreByTcpGetsNoConnections) {
  const auto of_server = network(1, 1);
  PlayedProgram server(driver_, of_server), client(driver_, network(2, 2));
  server.listening(address_of(1, 80));
  of_server->is_listening = false;
  EXPECT_EQ(client.ask(Call::kConnect, client.socket(), 0, 0, address_of(1, 80)).error, kForeign);
  of_server->is_listening = true;
  EXPECT_EQ(client.ask(Call::kConnect, client.socket(), 0, 0, address_of(1, 80)).error, 0);
}

TEST_F(DriverTest, AnAddressHasOneListenerOfANetwork) {
  const auto shared = network(1, 1);
  PlayedProgram first(driver_, shared), second(driver_, shared);
  first.listening(address_of(1, 80));
  const SocketId id = second.socket();
  ASSERT_EQ(second.ask(Call::kBind, id, 0, 0, address_of(1, 80)).error, 0);
  EXPECT_EQ(second.ask(Call::kListen, id, 1).error, EADDRINUSE);
  first.end();
  EXPECT_EQ(second.ask(Call::kListen, id, 1).error, 0);
}

TEST_F(DriverTest, AContainerHasSoManySockets) {
  Driver::Settings settings;
  settings.container.sockets = 3;
  Driver driver(settings, pool_, *engine_);
  const auto shared = network(1, 1);
  PlayedProgram first(driver, shared), second(driver, shared), other(driver, network(2, 2));
  const SocketId id = first.socket();
  first.socket();
  second.socket();
  EXPECT_EQ(second.ask(Call::kSocket, {}, AF_INET).error, EMFILE);
  EXPECT_EQ(other.ask(Call::kSocket, {}, AF_INET).error, 0);
  first.ask(Call::kClose, id);
  EXPECT_EQ(second.ask(Call::kSocket, {}, AF_INET).error, 0);
  second.end();
  EXPECT_EQ(first.ask(Call::kSocket, {}, AF_INET).error, 0);
}

TEST_F(DriverTest, ABacklogKeepsAContainersShareOfConnections) {
  Driver::Settings settings;
  settings.container.waiting = 2;
  Driver driver(settings, pool_, *engine_);
  PlayedProgram server(driver, network(1, 1)), client(driver, network(2, 2));
  const SocketId one = server.listening(address_of(1, 80)),
                 two = server.listening(address_of(1, 81));
  // Closed at once: the connection waits still.
  const auto connect_to = [&](std::uint16_t port) {
    const SocketId id = client.socket();
    const int error = client.ask(Call::kConnect, id, 0, 0, address_of(1, port)).error;
    client.ask(Call::kClose, id);
    return error;
  };
  EXPECT_EQ(connect_to(80), 0);
  EXPECT_EQ(connect_to(81), 0);
  EXPECT_EQ(connect_to(80), ECONNREFUSED);
  EXPECT_EQ(server.ask(Call::kAccept, one).error, 0);
  EXPECT_EQ(connect_to(80), 0);
  EXPECT_EQ(connect_to(81), ECONNREFUSED);
  server.ask(Call::kClose, two);
  EXPECT_EQ(connect_to(80), 0);
}

TEST_F(DriverTest, AListenerThatClosesEndsWhatWaits) {
  PlayedProgram server(driver_, network(1, 1)), client(driver_, network(2, 2));
  const SocketId listener = server.listening(address_of(1, 80));
  const SocketId id = client.socket();
  ASSERT_EQ(client.ask(Call::kConnect, id, 0, 0, address_of(1, 80)).error, 0);
  server.ask(Call::kClose, listener);
  driver_.announce();
  client.reap();
  EXPECT_TRUE(client.of(id).flags & kReset);
  client.ask(Call::kClose, id);
  EXPECT_EQ(driver_.connections(), 0U);
}

TEST_F(DriverTest, ACopyThatFailsIsAResetAndNoData) {
  PlayedEngine engine(1);
  Driver driver({}, pool_, engine);
  PlayedProgram server(driver, network(1, 1)), client(driver, network(2, 2));
  const SocketId listener = server.listening(address_of(1, 80));
  const SocketId id = client.socket();
  ASSERT_EQ(client.ask(Call::kConnect, id, 0, 0, address_of(1, 80)).error, 0);
  const SocketId accepted = server.ask(Call::kAccept, listener).socket;
  const auto block = client.ask(Call::kAllocate, id, 0, 4096);
  engine.fails_next = true;
  client.send(id, block.number, 0, 4096);
  driver.work(client.session(), 64);
  while (!engine.is_idle()) driver.pump();
  driver.announce();
  client.reap();
  server.reap();
  EXPECT_TRUE(client.of(id).flags & kReset);
  EXPECT_TRUE(server.of(accepted).flags & kReset);
  EXPECT_EQ(server.of(accepted).received, 0U);
}

TEST_F(DriverTest, RequestsOfAnyContentAreAnswered) {
  PlayedProgram program(driver_, network(1, 1));
  const SocketId id = program.socket();
  for (std::uint32_t call = 0; call < 20; ++call) {
    for (const std::uint64_t number : {0ULL, 1ULL, 0xffffffffULL, ~0ULL}) {
      ControlRequest request;
      request.call = static_cast<Call>(call);
      if (request.call == Call::kClose) continue;
      request.socket = id;
      request.number = static_cast<std::uint32_t>(number);
      request.sizes[0] = request.sizes[1] = number;
      std::memset(request.name, 0xff, sizeof request.name);
      program.ask(request);
    }
  }
  EXPECT_EQ(program.ask(Call::kClose, id).error, 0);
  EXPECT_EQ(program.ask(Call::kClose, id).error, EBADF);
  EXPECT_EQ(program.ask(Call::kClose, {~0U, ~0U}).error, EBADF);
}

}  // namespace
}  // namespace ferry::pipe
