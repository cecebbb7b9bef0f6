// A driver in the place of one that was killed, and programs that say what they have, or something else.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <vector>

#include "chosen_engine.h"
#include "played.h"

namespace ferry::pipe {
namespace {

constexpr Domain kResumeBridge{1, 7, 0};

class ResumeTest : public testing::Test {
 protected:
  ResumeTest() {
    begin();
    server_ = come(1, 11);
    client_ = come(2, 12);
    listener_ = server_->listening(address_of(1, 80));
  }
  ~ResumeTest() override {
    for (auto* program : {&server_, &client_}) {
      if (*program) (*program)->end();
    }
  }

  std::unique_ptr<PlayedProgram> come(std::uint8_t number, std::int32_t pid) {
    auto network = std::make_shared<PlayedNetwork>(number, address_of(number, 0), kResumeBridge);
    return std::make_unique<PlayedProgram>(*driver_, std::move(network), 1, 0, pid);
  }
  void begin() {
    Driver::Settings settings;
    settings.records = records_;
    settings.container.sessions = most_sessions_;
    if (most_sockets_ != 0) settings.container.sockets = most_sockets_;
    driver_ = std::make_unique<Driver>(settings, *pool_, *engine_);
  }
  // The next driver's pool has no more than `memory`, if that is not 0.
  void restart(std::size_t memory = 0) {
    if (server_->session()) of_server_ = server_->lose_driver();
    if (client_->session()) of_client_ = client_->lose_driver();
    driver_.reset();
    if (memory != 0) pool_ = std::make_unique<Pool>(Pool::Settings{memory, false});
    begin();
  }
  void both_resume() {
    ASSERT_EQ(client_->resume(*driver_, of_client_).error, 0);
    ASSERT_EQ(server_->resume(*driver_, of_server_).error, 0);
  }
  void listen_again() {
    ASSERT_EQ(server_->ask(about(Call::kRestore, listener_, AF_INET)).error, 0);
    ASSERT_EQ(server_->ask(Call::kBind, listener_, 0, 0, address_of(1, 80)).error, 0);
    ASSERT_EQ(server_->ask(Call::kListen, listener_, 8).error, 0);
  }
  // What the server says of what it has accepted, and of which it has read 100 bytes.
  std::int32_t restore_server() {
    EXPECT_EQ(server_->ask(about(Call::kRestore, accepted_, AF_INET)).error, 0);
    EXPECT_EQ(server_->ask(about(Call::kGiveRings, accepted_), rings_of_server_).error, 0);
    return server_->ask(about(Call::kRejoin, accepted_, 0, 0, 100)).error;
  }
  // A connection over which the client has sent 1000 bytes, of which the server has read 100.
  void connect() {
    id_ = client_->socket();
    ASSERT_EQ(client_->ask(Call::kConnect, id_, 0, 0, address_of(1, 80)).error, 0);
    accepted_ = server_->ask(Call::kAccept, listener_).socket;
    keep(server_->rings_of_answer, &rings_of_server_);
    client_->ask(Call::kRings, id_);
    keep(client_->rings_of_answer, &rings_);
    block_ = client_->ask(Call::kAllocate, id_, 0, 4096).number;
    client_->send(id_, block_, 0, 1000);
    work(*client_);
    server_->read(accepted_, 100);
    work(*server_);
    ASSERT_EQ(server_->of(accepted_).received, 1000U);
  }
  static void keep(const std::vector<std::shared_ptr<Ring>>& rings, std::vector<Given>* kept) {
    for (const auto& ring : rings) kept->push_back(PlayedProgram::copy(ring->descriptor()));
  }
  void work(PlayedProgram& program) {
    while (driver_->work(program.session(), 64) || driver_->pump()) {
    }
    driver_->announce();
    program.reap();
  }
  static ControlRequest about(Call call, SocketId socket, std::uint32_t number = 0,
                              std::uint64_t first = 0, std::uint64_t second = 0) {
    ControlRequest request;
    request.call = call;
    request.socket = socket;
    request.number = number;
    request.sizes[0] = first;
    request.sizes[1] = second;
    return request;
  }
  // What the client says before kRejoin.
  void restore_client(PlayedProgram& program) {
    EXPECT_EQ(program.ask(about(Call::kRestore, id_, AF_INET)).error, 0);
    EXPECT_EQ(program.ask(about(Call::kGiveRings, id_), rings_).error, 0);
    EXPECT_EQ(program.ask(about(Call::kRestoreBlock, id_, block_, 0, 4096)).error, 0);
  }
  ControlRequest rejoining(std::uint64_t done, std::uint64_t bytes, std::uint32_t following,
                           std::uint64_t read = 0) {
    ControlRequest request = about(Call::kRejoin, id_, following, bytes, read);
    request.count = done;
    return request;
  }

  std::size_t most_sessions_ = 1024;  // of a container
  std::size_t most_sockets_ = 0;      // of a container; 0: the default
  const std::shared_ptr<Records> records_ = std::make_shared<Records>();
  std::unique_ptr<Pool> pool_ = std::make_unique<Pool>(Pool::Settings{});
  const std::unique_ptr<Engine> engine_ = chosen_engine();
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<PlayedProgram> server_, client_;
  Peer of_server_, of_client_;
  SocketId listener_, id_, accepted_;
  std::vector<Given> rings_, rings_of_server_;
  std::uint32_t block_ = 0;
};

TEST_F(ResumeTest, NobodyGetsAnEndOfAnother) {
  connect();
  restart();
  EXPECT_EQ(driver_->absent(), (std::vector<Process>{{11, 0}, {12, 0}}));
  for (const Process& other : {Process{13, 0}, Process{12, 1}}) {
    Peer thief = of_client_;
    thief.pid = other.pid;
    thief.started = other.started;
    ASSERT_EQ(client_->resume(*driver_, thief).error, 0) << "he may have sockets";
    restore_client(*client_);
    EXPECT_EQ(client_->ask(rejoining(1, 1000, 0)).error, ENOTCONN);
    client_->ask(Call::kResumed, {});
    client_->end();
  }
  ASSERT_EQ(client_->resume(*driver_, of_client_).error, 0);
  restore_client(*client_);
  EXPECT_EQ(client_->ask(rejoining(1, 1000, 0)).error, 0);
  EXPECT_EQ(client_->ask(rejoining(1, 1000, 0)).error, ENOTCONN) << "once";
  ASSERT_EQ(server_->resume(*driver_, of_server_).error, 0);
  server_->ask(Call::kResumed, {});
  work(*client_);
  EXPECT_TRUE(client_->of(id_).flags & kReadClosed) << "the server does not have its end any more";
}

TEST_F(ResumeTest, WhatAProgramSaysIsChecked) {
  connect();
  const std::uint64_t far = std::uint64_t{1} << 40;
  const struct {
    const char* what;
    std::uint64_t done, bytes;
    std::uint32_t following;
    std::uint64_t read;
  } wrong[] = {{"more is done than was received", 2, 1001, 0, 0},
               {"sends without an end", 1, 1000, 100'000, 0},
               {"more sends than there can be", ~std::uint64_t{0}, 1000, 1, 0},
               {"it has read what was not received", 1, 1000, 0, far}};
  for (const auto& each : wrong) {
    SCOPED_TRACE(each.what);
    restart();
    ASSERT_EQ(client_->resume(*driver_, of_client_).error, 0);
    ASSERT_EQ(server_->resume(*driver_, of_server_).error, 0);
    restore_client(*client_);
    EXPECT_EQ(client_->ask(rejoining(each.done, each.bytes, each.following, each.read)).error,
              EINVAL);
    EXPECT_EQ(client_->ask(rejoining(1, 1000, 0)).error, ENOTCONN) << "it has had its turn";
    client_->ask(Call::kClose, id_);
    server_->ask(Call::kResumed, {});
    client_->ask(Call::kResumed, {});
    id_ = {};
    rings_.clear();
    rings_of_server_.clear();
    listener_ = server_->listening(address_of(1, 80));
    connect();
  }
}

TEST_F(ResumeTest, WhatAProgramGivesIsChecked) {
  connect();
  restart();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  const UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), kHugePage), 0);
  ASSERT_EQ(client_->resume(*driver_, of_client_).error, 0);
  EXPECT_EQ(client_->ask(about(Call::kRestore, {1000, 1}, AF_INET)).error, EMFILE)
      << "no such number";
  EXPECT_EQ(client_->ask(about(Call::kRestore, {id_.number, 1000}, AF_INET)).error, EMFILE);
  EXPECT_EQ(client_->ask(about(Call::kRestore, id_, AF_UNIX)).error, EAFNOSUPPORT);
  EXPECT_EQ(client_->ask(about(Call::kRestore, id_, AF_INET)).error, 0);
  EXPECT_EQ(client_->ask(about(Call::kRestore, id_, AF_INET)).error, EMFILE) << "it is there";
  EXPECT_EQ(client_->ask(rejoining(1, 1000, 0)).error, EINVAL) << "without rings";
  for (const int bad : {reader.get(), unsealed.get()}) {
    const std::vector<Given> rings{PlayedProgram::copy(bad), rings_[1]};
    EXPECT_EQ(client_->ask(about(Call::kGiveRings, id_), rings).error, EINVAL);
  }
  EXPECT_EQ(client_->ask(about(Call::kGiveRings, id_), {rings_[0]}).error, EINVAL);
  EXPECT_EQ(client_->ask(about(Call::kGiveRings, id_), rings_).error, 0);
  EXPECT_EQ(client_->ask(about(Call::kGiveRings, id_), rings_).error, EINVAL);
  const auto block = [&](std::uint32_t index, std::uint64_t offset, std::uint64_t size) {
    return client_->ask(about(Call::kRestoreBlock, id_, index, offset, size)).error;
  };
  EXPECT_EQ(block(5, 4096, 4096), 0);
  EXPECT_EQ(block(5, 65536, 64), EINVAL) << "the number is another's";
  EXPECT_EQ(block(6, 4096 + 64, 64), EINVAL) << "within another one";
  EXPECT_EQ(block(6, 0, 4097), EINVAL) << "into another one";
  EXPECT_EQ(block(6, 1, 64), EINVAL);
  EXPECT_EQ(block(6, 0, 0), EINVAL);
  EXPECT_EQ(block(6, ~std::uint64_t{63}, 128), EINVAL);
  EXPECT_EQ(block(6, 0, ~std::uint64_t{0}), EINVAL);
  EXPECT_EQ(block(70'000, 65536, 64), EINVAL);
  EXPECT_EQ(block(6, 0, 4096), 0);
  EXPECT_EQ(client_->ask(Call::kAllocate, id_, 0, 64).sizes[0], 8192U) << "behind both";

  // A session's own: queues, doorbell, notice.
  const auto resume_with = [&](int memory, int doorbell, int notice) {
    const auto session = driver_->open(of_server_);
    ControlRequest request = about(Call::kResume, {}, kControlVersion);
    const auto answer = driver_->handle(
        session, request,
        {PlayedProgram::copy(memory), PlayedProgram::copy(doorbell), PlayedProgram::copy(notice)});
    return answer.reply.error;
  };
  const int memory = client_->session()->queue_descriptor(),
            doorbell = client_->session()->doorbell(), notice = client_->session()->notice();
  EXPECT_EQ(resume_with(memory, doorbell, notice), 0);
  EXPECT_EQ(resume_with(rings_[0]->get(), doorbell, notice), EINVAL);
  EXPECT_EQ(resume_with(unsealed.get(), doorbell, notice), EINVAL);
  EXPECT_EQ(resume_with(memory, writer.get(), notice), EINVAL);
  EXPECT_EQ(resume_with(memory, doorbell, writer.get()), EINVAL);
  EXPECT_EQ(resume_with(memory, notice, doorbell), EINVAL);
}

// The driver is killed between what it does and its answer.
TEST_F(ResumeTest, AnAnswerThatIsLostIsAskedForAgain) {
  id_ = client_->socket();
  client_->ask(Call::kRings, id_);
  keep(client_->rings_of_answer, &rings_);
  ASSERT_EQ(client_->ask(Call::kConnect, id_, 0, 0, address_of(1, 80)).error, 0);
  const auto lost = driver_->handle(server_->session(), about(Call::kAccept, listener_), {});
  restart();
  // The next driver is killed as well, when it has given the program another socket of that generation.
  ASSERT_EQ(server_->resume(*driver_, of_server_).error, 0);
  EXPECT_EQ(server_->socket().generation, lost.reply.socket.generation);
  restart();
  both_resume();
  listen_again();
  server_->ask(Call::kResumed, {});
  EXPECT_EQ(client_->ask(about(Call::kRestore, id_, AF_INET)).error, 0);
  EXPECT_EQ(client_->ask(about(Call::kGiveRings, id_), rings_).error, 0);
  client_->ask(Call::kResumed, {});
  const auto connected = client_->ask(Call::kConnect, id_, 0, 0, address_of(1, 80));
  EXPECT_EQ(connected.error, 0);
  EXPECT_EQ(connected.peer, address_of(1, 80));
  const auto accepted = server_->ask(Call::kAccept, listener_);
  EXPECT_EQ(accepted.error, 0);
  EXPECT_EQ(accepted.peer, connected.local);
  EXPECT_EQ(server_->ask(Call::kAccept, listener_).error, EAGAIN) << "it is one connection";
  EXPECT_EQ(driver_->connections(), 1U);
}

TEST_F(ResumeTest, WhoHasAcceptedDoesNotConnect) {
  connect();
  restart();
  both_resume();
  EXPECT_EQ(server_->ask(about(Call::kRestore, accepted_, AF_INET)).error, 0);
  EXPECT_EQ(server_->ask(Call::kConnect, accepted_, 0, 0, address_of(1, 80)).error, EISCONN);
  EXPECT_EQ(server_->ask(about(Call::kGiveRings, accepted_), rings_of_server_).error, 0);
  EXPECT_EQ(server_->ask(about(Call::kRejoin, accepted_, 0, 0, 100)).error, 0);
}

// More is done then than was received.
TEST_F(ResumeTest, ThatNobodyReadsIsKnownToTheNextDriver) {
  connect();
  ASSERT_EQ(server_->ask(Call::kShutdown, accepted_, SHUT_RD).error, 0);
  client_->send(id_, block_, 0, 500);
  work(*client_);
  ASSERT_EQ(client_->of(id_).done, 2U);
  restart();
  ASSERT_EQ(client_->resume(*driver_, of_client_).error, 0);
  client_->told.clear();
  restore_client(*client_);
  EXPECT_EQ(client_->ask(rejoining(2, 1500, 0)).error, 0);
  work(*client_);
  EXPECT_EQ(client_->of(id_).flags, kReadClosed);
  client_->send(id_, block_, 0, 500);
  work(*client_);
  EXPECT_EQ(client_->of(id_).done, 3U);
  ASSERT_EQ(server_->resume(*driver_, of_server_).error, 0);
  EXPECT_EQ(restore_server(), 0);
}

TEST_F(ResumeTest, AResetLastsAlsoWithoutItsRule) {
  connect();
  driver_->change(command_of("deny any any"));
  client_->send(id_, block_, 0, 500);
  work(*client_);
  restart();
  both_resume();
  for (auto* program : {&client_, &server_}) (*program)->told.clear();
  restore_client(*client_);
  EXPECT_EQ(client_->ask(rejoining(2, 1500, 0)).error, 0);
  EXPECT_EQ(restore_server(), 0);
  work(*client_);
  work(*server_);
  EXPECT_TRUE(client_->of(id_).flags & kReset);
  EXPECT_TRUE(server_->of(accepted_).flags & kReset);
  EXPECT_EQ(server_->of(accepted_).received, 1000U);
}

// As of a program that calls exec().
TEST_F(ResumeTest, WhoStaysAwayIsGivenUp) {
  connect();
  restart();
  const std::size_t kept = pool_->used();
  ASSERT_EQ(server_->resume(*driver_, of_server_).error, 0);
  EXPECT_EQ(restore_server(), 0);
  server_->ask(Call::kResumed, {});
  EXPECT_EQ(pool_->used(), kept);
  driver_->give_up_absent();
  EXPECT_LT(pool_->used(), kept);
  work(*server_);
  EXPECT_TRUE(server_->of(accepted_).flags & kReset);
  server_->ask(Call::kClose, accepted_);
  EXPECT_EQ(driver_->connections(), 0U);
  ASSERT_EQ(client_->resume(*driver_, of_client_).error, 0) << "it may have new ones";
  restore_client(*client_);
  EXPECT_EQ(client_->ask(rejoining(1, 1000, 0)).error, ENOTCONN);
}

// Else the places that a container has would be those of who comes first.
TEST_F(ResumeTest, NobodyElseGetsThePlaceOfWhoComesAgain) {
  connect();
  most_sessions_ = 1;
  restart();
  const Peer other{13, 0, 1, std::make_shared<PlayedNetwork>(2, address_of(2, 0), kResumeBridge),
                   0};
  EXPECT_EQ(driver_->open(other), nullptr);
  both_resume();
  restore_client(*client_);
  EXPECT_EQ(client_->ask(rejoining(1, 1000, 0)).error, 0);
  EXPECT_EQ(driver_->open(other), nullptr);
  client_->ask(Call::kResumed, {});
  const Owner& container = *client_->session()->container;
  EXPECT_EQ(container.sessions, 1U);
  EXPECT_EQ(container.absent_sessions, 0U);
  EXPECT_EQ(container.sockets, 1U) << "each place counts once";
}

// The records tell the ends of a process apart by this name.
TEST_F(ResumeTest, AProcessHasEachNameOnce) {
  connect();
  restart();
  both_resume();
  const auto& session = client_->session();
  const auto twin = driver_->open(session->peer);
  const auto answer = driver_->handle(
      twin, about(Call::kResume, {1, 1}, kControlVersion, session->name),
      {PlayedProgram::copy(session->queue_descriptor()), PlayedProgram::copy(session->doorbell()),
       PlayedProgram::copy(session->notice())});
  EXPECT_EQ(answer.reply.error, EEXIST);
}

// What a server sends on a connection that it has accepted from a driver after that to which the client came is all
// said to that one: its end is the end, and no reset.
TEST_F(ResumeTest, ABacklogThatLivedOnIsEndedAsAnyConnection) {
  id_ = client_->socket();
  ASSERT_EQ(client_->ask(Call::kConnect, id_, 0, 0, address_of(1, 80)).error, 0);
  client_->ask(Call::kRings, id_);
  keep(client_->rings_of_answer, &rings_);
  restart();
  both_resume();
  listen_again();
  server_->ask(Call::kResumed, {});
  EXPECT_EQ(client_->ask(about(Call::kRestore, id_, AF_INET)).error, 0);
  EXPECT_EQ(client_->ask(about(Call::kGiveRings, id_), rings_).error, 0);
  EXPECT_EQ(client_->ask(rejoining(0, 0, 0)).error, 0);
  client_->ask(Call::kResumed, {});
  ASSERT_EQ(server_->ask(Call::kAccept, listener_).error, 0);
  server_->end();
  server_.reset();
  work(*client_);
  EXPECT_NE(client_->of(id_).flags & kEnd, 0);
  EXPECT_EQ(client_->of(id_).flags & kReset, 0);
}

TEST_F(ResumeTest, NobodyElseGetsTheMemoryOfWhoComesAgain) {
  connect();
  const std::size_t all = pool_->used();
  restart(all);
  EXPECT_EQ(pool_->used(), all);
  const auto other = driver_->open(
      {13, 0, 1, std::make_shared<PlayedNetwork>(3, address_of(3, 0), kResumeBridge), 0});
  EXPECT_EQ(driver_->handle(other, about(Call::kHello, {}, kControlVersion), {}).reply.error,
            ENOBUFS);
  both_resume();
  restore_client(*client_);
  EXPECT_EQ(client_->ask(rejoining(1, 1000, 0)).error, 0);
  EXPECT_EQ(restore_server(), 0);
  for (auto* program : {&client_, &server_}) (*program)->ask(Call::kResumed, {});
  EXPECT_EQ(pool_->used(), all) << "and counts once";
}

// What it has it keeps, also where the next driver allows less.
TEST_F(ResumeTest, ALowerLimitTakesNothingAway) {
  connect();
  restart(1);
  both_resume();
  restore_client(*client_);
  EXPECT_EQ(client_->ask(rejoining(1, 1000, 0)).error, 0);
  EXPECT_EQ(client_->ask(Call::kRings, client_->socket()).error, ENOBUFS);
}

TEST_F(ResumeTest, AProgramHasNoMoreQueuesOrSocketsThanItMay) {
  Peer peer = server_->session()->peer;
  const auto resume_with = [&](std::uint32_t lanes, std::uint32_t sockets) {
    const UniqueFd memory = sealed_memory("test", QueueMemory::size(lanes), 0);
    const auto session = driver_->open(peer);
    ControlRequest request = about(Call::kResume, {sockets, 1}, kControlVersion);
    const auto answer = driver_->handle(
        session, request,
        {PlayedProgram::copy(memory.get()), PlayedProgram::copy(server_->session()->doorbell()),
         PlayedProgram::copy(server_->session()->notice())});
    if (answer.reply.error != 0) return answer.reply.error;
    const auto last =
        driver_->handle(session, about(Call::kRestore, {sockets - 1, 1}, AF_INET), {});
    return last.reply.error;
  };
  EXPECT_EQ(resume_with(1, 16384), 0);
  EXPECT_EQ(resume_with(1, 16385), EMFILE);
  EXPECT_EQ(resume_with(8192, 1), EINVAL);
}

// The program has the socket all the same: another one of this number would be taken for it.
TEST_F(ResumeTest, TheNumberOfASocketThatCannotGoOnIsGivenWhenItIsClosed) {
  connect();
  restart();
  both_resume();
  const SocketId beyond{id_.number + 3, id_.generation},
      unknown{id_.number + 1, id_.generation + 100};
  EXPECT_EQ(client_->ask(about(Call::kRestore, id_, AF_INET)).error, 0);
  EXPECT_EQ(client_->ask(about(Call::kGiveUp, id_)).error, 0);
  for (const SocketId refused : {beyond, unknown}) {
    EXPECT_EQ(client_->ask(about(Call::kRestore, refused, AF_INET)).error, EMFILE);
  }
  EXPECT_EQ(client_->ask(Call::kResumed, {}).error, 0);
  std::set<std::uint32_t> given;
  for (int i = 0; i < 6; ++i) given.insert(client_->socket().number);
  for (const SocketId held : {id_, beyond, unknown}) {
    EXPECT_FALSE(given.contains(held.number));
    EXPECT_EQ(client_->ask(about(Call::kClose, held)).error, 0);
    EXPECT_EQ(client_->ask(about(Call::kClose, held)).error, EBADF) << "it is closed";
    EXPECT_EQ(client_->socket().number, held.number);
  }
}

TEST_F(ResumeTest, NoNewSocketGetsANumberThatTheProgramMayHave) {
  connect();
  const SocketId second = client_->socket(), third = client_->socket();
  most_sockets_ = 2;
  restart();
  both_resume();
  EXPECT_GT(client_->socket().number, third.number);
  EXPECT_EQ(client_->ask(about(Call::kRestore, third, AF_INET)).error, EMFILE);
  EXPECT_EQ(client_->ask(about(Call::kRestore, id_, AF_INET)).error, 0);
  EXPECT_EQ(client_->ask(Call::kResumed, {}).error, 0);
  EXPECT_EQ(client_->ask(about(Call::kClose, id_)).error, 0);
  const SocketId next = client_->socket();
  EXPECT_TRUE(next.number == id_.number || next.number == second.number);
}

TEST_F(ResumeTest, ASocketThatWasRefusedMayBeRestoredLater) {
  connect();
  restart();
  both_resume();
  EXPECT_EQ(client_->ask(about(Call::kRestore, id_, AF_INET)).error, 0);
  EXPECT_EQ(client_->ask(about(Call::kGiveUp, id_)).error, 0);
  EXPECT_EQ(client_->ask(about(Call::kRestore, id_, AF_INET)).error, 0);
  EXPECT_EQ(client_->ask(Call::kResumed, {}).error, 0);
  EXPECT_NE(client_->socket().number, id_.number);
  EXPECT_EQ(client_->ask(about(Call::kClose, id_)).error, 0);
  EXPECT_EQ(client_->socket().number, id_.number);
}

TEST_F(ResumeTest, WhoHasEndedLeavesItsPeers) {
  connect();
  restart();
  driver_->has_ended({12, 0});
  EXPECT_EQ(driver_->absent(), (std::vector<Process>{{11, 0}}));
  driver_->has_ended({11, 0});
  EXPECT_TRUE(driver_->absent().empty());
  EXPECT_EQ(driver_->connections(), 0U);
}

}  // namespace
}  // namespace ferry::pipe
