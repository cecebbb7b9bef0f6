#include "agent/agent.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "device/fake.h"
#include "device/parcel.h"
#include "rnic/slot.h"

namespace ferry::agent {
namespace {

using namespace std::chrono_literals;
using device::fake::FakeContext;

// A ferryd that the test plays by hand, and an agent with one context.
struct Conversation : ::testing::Test {
  std::string directory = "/tmp/ferry-agent-test-XXXXXX";
  std::string path;
  int listener = -1;
  int peer = -1;
  std::shared_ptr<device::fake::Log> log = std::make_shared<device::fake::Log>();
  struct : device::EventSink, device::MoveSink {
    void completion(device::Cq&) override {}
    void asynchronous(ibv_event_type, device::Object*) override {}
    void seeks() override { agent->has_news(); }
    void has_letters() override { agent->has_news(); }
    Agent* agent = nullptr;
  } sink;
  device::fake::FakeRnic rnic{log, "fake0", "eth9", 1};
  std::unique_ptr<device::MovableContext> context;
  FakeContext* fake = nullptr;
  Registry registry;
  ControlBlock control;
  std::unique_ptr<Agent> agent;

  void SetUp() override {
    ASSERT_NE(::mkdtemp(directory.data()), nullptr);
    path = directory + "/ferryd.sock";
    ::setenv(kSocketVariable, path.c_str(), 1);
    int error = 0;
    context = rnic.open_movable(sink, sink, &error);
    fake = rnic.last_opened();
    device::Pd* pd;
    device::Cq* cq;
    device::Qp* qp;
    ASSERT_EQ(context->alloc_pd(&pd), 0);
    ASSERT_EQ(context->create_cq({8}, &cq), 0);
    device::QpInit init;
    init.pd = pd, init.send_cq = init.recv_cq = cq;
    ASSERT_EQ(context->create_qp(&init, &qp), 0);
    ibv_qp_attr rts{};
    rts.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(qp->modify(rts, IBV_QP_STATE), 0);
    Registry::Change(registry).add({context.get(), "fake0", "eth9"});
    agent = std::make_unique<Agent>(registry, control);
  }
  void TearDown() override {
    agent.reset();
    for (int* d : {&listener, &peer}) {
      if (*d >= 0) ::close(*d);
    }
    for (int d : fake->parcel.descriptors) ::close(d);
    ::unlink(path.c_str());
    ::rmdir(directory.c_str());
    ::unsetenv(kSocketVariable);
  }

  void listen() {
    listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::listen(listener, 4), 0);
    const timeval limit{5, 0};
    ::setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  void accept() {
    if (peer >= 0) ::close(peer);
    peer = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    ASSERT_GE(peer, 0);
  }
  Message receive(MessageType type) {
    Message message;
    EXPECT_EQ(receive_message(peer, &message, 5000), 0);
    EXPECT_EQ(message.type, type);
    return message;
  }
  template <typename T>
  T receive_as(MessageType type) {
    Message message = receive(type);
    T out;
    EXPECT_TRUE(parse(message.body, &out));
    close_descriptors(&message.descriptors);
    return out;
  }
  void connect() {
    listen();
    ASSERT_EQ(agent->start(), 0);
    accept();
    registered = receive_as<Register>(MessageType::kRegister);
  }
  // A socket to give away: any descriptor will do for the fake.
  void give_fake_a_socket() {
    rnic::Slot slot;
    slot.descriptor = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    slot.slot = 3;
    slot.entries = {{std::byte{1}}};
    std::vector<rnic::Slot> slots;
    ASSERT_TRUE(rnic::to_slots(fake->parcel, &slots));
    slots.push_back(slot);
    fake->parcel = rnic::to_parcel(slots);
  }
  bool at_end() {
    Message message;
    const int error = receive_message(peer, &message, 5000);
    return error == EPIPE || error == ECONNRESET;  // the latter when it left something unread
  }
  // As far as AWAKE.
  void stop_and_wake() {
    sink.agent = agent.get();
    ASSERT_EQ(send_message(peer, MessageType::kStop, encode(Stop{1, 1000})), 0);
    receive(MessageType::kStopped);
    ASSERT_EQ(send_message(peer, MessageType::kStopTaken, {}), 0);
    EXPECT_TRUE(at_end());
    std::atomic_ref(control.command).store(ControlBlock::kGo);
    accept();
    receive(MessageType::kAwake);
  }
  Register registered;
};

TEST_F(Conversation, RegistersAndAnswersStatus) {
  connect();
  EXPECT_EQ(registered.version, kVersion);
  EXPECT_EQ(registered.control_block, reinterpret_cast<std::uint64_t>(&control));
  ASSERT_EQ(send_message(peer, MessageType::kStatus, {}), 0);
  const auto status = receive_as<StatusReply>(MessageType::kStatusReply);
  ASSERT_EQ(status.contexts.size(), 1u);
  EXPECT_EQ(status.contexts[0].device, "fake0");
  EXPECT_EQ(status.contexts[0].qps.size(), 1u);
}

// CRIU dumps no process that holds one.
TEST_F(Conversation, GivesAUserfaultfdAndKeepsNone) {
  connect();
  ASSERT_EQ(send_message(peer, MessageType::kTrack, {}), 0);
  Message message = receive(MessageType::kTracked);
  Tracked reply;
  ASSERT_TRUE(parse(message.body, &reply));
  EXPECT_EQ(message.descriptors.size(), reply.error == 0 ? 1u : 0u);
  close_descriptors(&message.descriptors);
  ASSERT_EQ(send_message(peer, MessageType::kStatus, {}), 0);
  receive(MessageType::kStatusReply);
  int held = 0;
  for (int d = 0; d < 256; ++d) {
    char target[64] = "";
    const std::string link = "/proc/self/fd/" + std::to_string(d);
    if (::readlink(link.c_str(), target, sizeof target - 1) > 0) {
      held += std::string(target) == "anon_inode:[userfaultfd]" ? 1 : 0;
    }
  }
  EXPECT_EQ(held, 0);
}

TEST_F(Conversation, TellsWhereItsRnicsAre) {
  connect();
  rnic::Slot slot;
  slot.slot = 3;
  slot.local = {port::Address::from_ipv4(0x0A000002), 61443};
  slot.origin = {port::Address::from_ipv4(0x0A000001), 4791};
  slot.epoch = 5;
  fake->parcel = rnic::to_parcel({slot});
  ASSERT_EQ(send_message(peer, MessageType::kStatus, {}), 0);
  const auto status = receive_as<StatusReply>(MessageType::kStatusReply);
  fake->parcel = {};
  ASSERT_EQ(status.contexts.size(), 1u);
  std::vector<rnic::Slot> places;
  ASSERT_TRUE(rnic::to_slots(status.contexts[0].place, &places));
  ASSERT_EQ(places.size(), 1u);
  const rnic::Slot& place = places[0];
  EXPECT_EQ(place.slot, 3u);
  EXPECT_EQ(place.local, slot.local);
  EXPECT_EQ(place.origin, slot.origin);
  EXPECT_EQ(place.epoch, 5u);
}

TEST_F(Conversation, AsksForPeersThatDoNotAnswer) {
  connect();
  sink.agent = agent.get();
  const port::Endpoint lost{port::Address::from_ipv4(0x0A000001), 4791};
  const port::Endpoint found{port::Address::from_ipv4(0x0A000002), 61443};
  fake->seek(lost);
  const auto question = receive_as<Locate>(MessageType::kLocate);
  ASSERT_EQ(question.names.size(), 1u);
  EXPECT_EQ(question.names[0], lost);
  Located answer;
  answer.places = {{lost, found, 7}};
  ASSERT_EQ(send_message(peer, MessageType::kLocated, encode(answer)), 0);
  // The answer was taken before what comes after it.
  ASSERT_EQ(send_message(peer, MessageType::kStatus, {}), 0);
  receive(MessageType::kStatusReply);
  const auto told = fake->told();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].name, lost);
  EXPECT_EQ(told[0].location, found);
  EXPECT_EQ(told[0].epoch, 7u);
  // Each time anew, and not without need.
  fake->seek(found);
  EXPECT_EQ(receive_as<Locate>(MessageType::kLocate).names.size(), 1u);
  agent->has_news();
  ASSERT_EQ(send_message(peer, MessageType::kStatus, {}), 0);
  receive(MessageType::kStatusReply);
}

// SUSPEND is asked again and again, and asks the peers once.
TEST_F(Conversation, SuspendsPeersBeforeAStop) {
  connect();
  const Suspend request{7, 60000, false};
  const auto ask = [&](const Suspend& question) {
    EXPECT_EQ(send_message(peer, MessageType::kSuspend, encode(question)), 0);
    return receive_as<Suspending>(MessageType::kSuspending);
  };
  EXPECT_FALSE(ask(request).done);
  EXPECT_FALSE(ask(request).done);
  fake->peers_suspended = true;
  EXPECT_TRUE(ask(request).done);
  EXPECT_EQ(log->count("suspend_peers"), 1u);
  EXPECT_EQ(log->count("release_peers"), 0u);
  EXPECT_FALSE(ask({7, 0, true}).done);
  EXPECT_EQ(log->count("release_peers"), 1u);
  EXPECT_TRUE(ask({8, 60000, false}).done);
  EXPECT_EQ(log->count("suspend_peers"), 2u);
}

// No stop follows: ferryd may be no more.
TEST_F(Conversation, ReleasesPeersByItself) {
  connect();
  ASSERT_EQ(send_message(peer, MessageType::kSuspend, encode(Suspend{7, 1, false})), 0);
  receive(MessageType::kSuspending);
  while (log->count("release_peers") == 0) std::this_thread::yield();
  ASSERT_EQ(send_message(peer, MessageType::kSuspend, encode(Suspend{8, 60000, false})), 0);
  receive(MessageType::kSuspending);
  ::shutdown(peer, SHUT_RDWR);
  while (log->count("release_peers") == 1) std::this_thread::yield();
}

TEST_F(Conversation, CarriesLettersBothWays) {
  const device::Letter letter{{port::Address::from_ipv4(1), 17},
                              {port::Address::from_ipv4(2), 18},
                              {std::byte{1}, std::byte{2}}};
  sink.agent = agent.get();
  fake->write(letter);  // before there is a ferryd
  connect();
  const auto first = receive_as<Letters>(MessageType::kLetters);
  ASSERT_EQ(first.letters.size(), 1u);
  EXPECT_EQ(first.letters[0].from, letter.from);
  EXPECT_EQ(first.letters[0].to, letter.to);
  EXPECT_EQ(first.letters[0].bytes, letter.bytes);
  fake->write(letter);
  EXPECT_EQ(receive_as<Letters>(MessageType::kLetters).letters.size(), 1u);

  ASSERT_EQ(send_message(peer, MessageType::kDeliver,
                         encode(Letters{{letter, {letter.from, letter.to, {}}}})),
            0);
  EXPECT_EQ(receive_as<Delivered>(MessageType::kDelivered).errors,
            (std::vector<std::int32_t>{0, EINVAL}));
  ASSERT_EQ(fake->delivered().size(), 2u);
  EXPECT_EQ(fake->delivered()[0].bytes, letter.bytes);
}

// A peer that stops as well waits for it.
TEST_F(Conversation, CarriesTheLettersOfAStopBeforeTheProcessIsAway) {
  connect();
  sink.agent = agent.get();
  fake->last_letter = {
      {port::Address::from_ipv4(1), 17}, {port::Address::from_ipv4(2), 18}, {std::byte{1}}};
  ASSERT_EQ(send_message(peer, MessageType::kStop, encode(Stop{1, 5000})), 0);
  receive(MessageType::kStopped);
  EXPECT_EQ(receive_as<Letters>(MessageType::kLetters).letters.size(), 1u);
}

TEST_F(Conversation, ContextsHearOfGidsThatHaveMoved) {
  connect();
  const device::MovedNames moved{{port::Address::from_ipv4(1), port::Address::from_ipv4(2)}, {}};
  ASSERT_EQ(send_message(peer, MessageType::kMovedNames, encode(moved)), 0);
  while (log->count("moved 2 0") == 0) std::this_thread::yield();
  ASSERT_EQ(send_message(peer, MessageType::kMovedNames, encode(device::MovedNames{})), 0);
  while (log->count("moved 0 0") == 0) std::this_thread::yield();
  ASSERT_EQ(send_message(peer, MessageType::kMovedNames, encode(moved)), 0);
  while (log->count("moved 2 0") == 1) std::this_thread::yield();
  // One that is opened later, too.
  int error = 0;
  const auto second = rnic.open_movable(sink, sink, &error);
  Registry::Change change(registry);
  change.add({second.get(), "fake0", "eth9"});
  EXPECT_EQ(log->count("moved 2 0"), 3);
  change.remove(second.get());
}

device::DatagramQps datagram_qps(std::uint32_t real_qpn) {
  return {{{port::Address::from_ipv4(1), port::Address::from_ipv4(2)}}, {{17, real_qpn}}};
}

TEST_F(Conversation, TellsWhereItsUdQpsAreWheneverThisChanges) {
  connect();
  sink.agent = agent.get();
  fake->move(datagram_qps(18));
  auto told = receive_as<DatagramQps>(MessageType::kDatagramQps);
  ASSERT_EQ(told.contexts.size(), 1u);
  EXPECT_EQ(told.contexts[0], datagram_qps(18));
  fake->move(datagram_qps(18));  // nothing new
  fake->move({});
  told = receive_as<DatagramQps>(MessageType::kDatagramQps);
  EXPECT_TRUE(told.contexts.empty());
  fake->move(datagram_qps(19));
  receive(MessageType::kDatagramQps);
  // The next ferryd has not heard.
  accept();
  receive(MessageType::kRegister);
  told = receive_as<DatagramQps>(MessageType::kDatagramQps);
  ASSERT_EQ(told.contexts.size(), 1u);
  EXPECT_EQ(told.contexts[0], datagram_qps(19));
}

TEST_F(Conversation, GoesOnWhenOthersHaveHeardWhereItsUdQpsAre) {
  connect();
  stop_and_wake();
  fake->move(datagram_qps(18));
  ASSERT_EQ(send_message(peer, MessageType::kResume, encode(Resume{false, {{"eth9", {}}}})), 0);
  const auto told = receive_as<DatagramQps>(MessageType::kDatagramQps);
  EXPECT_EQ(told.contexts.size(), 1u);
  EXPECT_EQ(log->count("unpark"), 1u);
  EXPECT_EQ(log->count("resume"), 0u);
  // Meanwhile it answers.
  ASSERT_EQ(send_message(peer, MessageType::kStatus, {}), 0);
  receive(MessageType::kStatusReply);
  EXPECT_EQ(log->count("resume"), 0u);
  ASSERT_EQ(send_message(peer, MessageType::kDatagramQpsTold, {}), 0);
  receive(MessageType::kResumed);
  EXPECT_EQ(log->count("resume"), 1u);
}

TEST_F(Conversation, AnEarlyStopIsServedWhenItHasGoneOn) {
  connect();
  stop_and_wake();
  fake->move(datagram_qps(18));
  ASSERT_EQ(send_message(peer, MessageType::kResume, encode(Resume{false, {{"eth9", {}}}})), 0);
  receive(MessageType::kDatagramQps);
  ASSERT_EQ(send_message(peer, MessageType::kStop, encode(Stop{2, 1000})), 0);
  receive(MessageType::kResumed);
  Message message;
  do {
    ASSERT_EQ(receive_message(peer, &message, 5000), 0);
  } while (message.type == MessageType::kPeersKnow);
  Stopped stopped;
  ASSERT_TRUE(parse(message.body, &stopped));
  EXPECT_EQ(stopped.move_id, 2u);
}

TEST_F(Conversation, GoesOnWhenFerrydDoesNotSayThatOthersHaveHeard) {
  connect();
  stop_and_wake();
  fake->move(datagram_qps(18));
  ASSERT_EQ(send_message(peer, MessageType::kResume, encode(Resume{false, {{"eth9", {}}}})), 0);
  receive(MessageType::kDatagramQps);
  receive(MessageType::kResumed);
  EXPECT_EQ(log->count("resume"), 1u);
}

TEST_F(Conversation, FindsAFerrydThatStartsLater) {
  ASSERT_EQ(agent->start(), 0);
  std::this_thread::sleep_for(50ms);
  listen();
  accept();
  receive(MessageType::kRegister);
}

TEST_F(Conversation, ConnectsAgainWhenFerrydIsRestarted) {
  connect();
  while (log->count("repeat_letters") == 0) std::this_thread::yield();
  ::shutdown(peer, SHUT_RDWR);
  accept();
  receive(MessageType::kRegister);
  // What the former ferryd has not carried is written again.
  while (log->count("repeat_letters") == 1) std::this_thread::yield();
}

TEST_F(Conversation, GarbageEndsTheConnectionOnly) {
  connect();
  ASSERT_EQ(::write(peer, "garbage, and not little of it", 29), 29);
  EXPECT_TRUE(at_end());
  accept();
  receive(MessageType::kRegister);
}

TEST_F(Conversation, TheThreadBlocksAllSignalsButFaults) {
  connect();
  std::string mask;
  for (const char* line : {"SigBlk"}) {
    // The only other thread of this process.
    FILE* list = ::popen(
        ("grep -H " + std::string(line) + " /proc/" + std::to_string(::getpid()) +
         "/task/*/status; grep -H ferry-agent /proc/" + std::to_string(::getpid()) + "/task/*/comm")
            .c_str(),
        "r");
    char text[512];
    std::string all;
    while (std::fgets(text, sizeof text, list)) all += text;
    ::pclose(list);
    const auto comm = all.find("comm:ferry-agent");
    ASSERT_NE(comm, std::string::npos) << all;
    const auto start = all.rfind("/task/", comm) + 6;
    const std::string thread = all.substr(start, all.find('/', start) - start);
    const auto status = all.find("/task/" + thread + "/status:SigBlk:");
    ASSERT_NE(status, std::string::npos) << all;
    mask = all.substr(all.find(':', all.find(':', status) + 1) + 2, 16);
  }
  const auto blocked = std::stoull(mask, nullptr, 16);
  EXPECT_EQ(blocked >> (SIGSEGV - 1) & 1, 0u);
  EXPECT_EQ(blocked >> (SIGBUS - 1) & 1, 0u);
  EXPECT_EQ(blocked >> (SIGTERM - 1) & 1, 1u);
  EXPECT_EQ(blocked >> (SIGALRM - 1) & 1, 1u);
  EXPECT_EQ(blocked >> (SIGFPE - 1) & 1, 1u);
}

TEST_F(Conversation, StopsGivesAwayAndResumesAfterAFreeze) {
  connect();
  give_fake_a_socket();
  const int given = fake->parcel.descriptors.at(0);
  fake->unacked_psns = 42;
  ASSERT_EQ(send_message(peer, MessageType::kStop, encode(Stop{77, 1000})), 0);
  Message message = receive(MessageType::kStopped);
  Stopped stopped;
  ASSERT_TRUE(parse(message.body, &stopped));
  EXPECT_EQ(stopped.move_id, 77u);
  EXPECT_EQ(stopped.error, 0);
  EXPECT_EQ(stopped.qps, 1u);
  EXPECT_EQ(stopped.unacked_psns, 42u);
  ASSERT_EQ(stopped.contexts.size(), 1u);
  EXPECT_EQ(stopped.contexts[0].netdev, "eth9");
  std::vector<rnic::Slot> slots;
  ASSERT_TRUE(rnic::to_slots(stopped.contexts[0].parcel, &slots));
  EXPECT_EQ(slots.at(0).slot, 3u);
  ASSERT_EQ(message.descriptors.size(), 1u);
  ASSERT_TRUE(give_descriptors(&message.descriptors, &stopped.contexts));
  ASSERT_EQ(send_message(peer, MessageType::kStopTaken, {}), 0);
  // No descriptor of the library remains.
  EXPECT_TRUE(at_end());
  EXPECT_EQ(::fcntl(given, F_GETFD), -1);

  // Nothing happens until the control block says so.
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(log->count("resume"), 0u);
  fake->resume_pending = 1;
  std::atomic_ref(control.freezes).fetch_add(1);
  std::atomic_ref(control.command).store(ControlBlock::kFrozen);
  accept();
  const auto awake = receive_as<Awake>(MessageType::kAwake);
  EXPECT_EQ(awake.move_id, 77u);
  EXPECT_EQ(awake.registration.control_block, registered.control_block);
  EXPECT_EQ(std::atomic_ref(control.command).load(), ControlBlock::kNone);

  // No decision yet: it asks again, on a new connection.
  ASSERT_EQ(send_message(peer, MessageType::kStay, encode(Stay{5})), 0);
  EXPECT_TRUE(at_end());
  accept();
  receive_as<Awake>(MessageType::kAwake);
  EXPECT_EQ(log->count("resume"), 0u);

  auto sockets = descriptors_of(stopped.contexts);
  ASSERT_EQ(
      send_message(peer, MessageType::kResume, encode(Resume{false, stopped.contexts}), sockets),
      0);
  close_descriptors(&sockets);
  const auto resumed = receive_as<Resumed>(MessageType::kResumed);
  EXPECT_EQ(resumed.move_id, 77u);
  EXPECT_EQ(resumed.error, 0);
  EXPECT_EQ(log->count("unpark"), 1u);
  EXPECT_EQ(log->last("unpark"), "1");

  auto know = receive_as<PeersKnow>(MessageType::kPeersKnow);
  EXPECT_EQ(know.move_id, 77u);
  EXPECT_EQ(know.remaining, 1u);
  EXPECT_TRUE(know.qpns.empty());
  fake->resume_pending = 0;
  know = receive_as<PeersKnow>(MessageType::kPeersKnow);
  EXPECT_EQ(know.remaining, 0u);
  EXPECT_EQ(know.qpns.size(), 1u);
  know = receive_as<PeersKnow>(MessageType::kPeersKnow);  // the last, with the retransmissions
  EXPECT_TRUE(know.qpns.empty());

  // The connection serves on.
  ASSERT_EQ(send_message(peer, MessageType::kStatus, {}), 0);
  receive(MessageType::kStatusReply);
}

TEST_F(Conversation, ARollbackSaysSoToTheDevice) {
  connect();
  stop_and_wake();
  Resume resume{true, {{"eth9", {}}}};
  ASSERT_EQ(send_message(peer, MessageType::kResume, encode(resume)), 0);
  receive(MessageType::kResumed);
  EXPECT_EQ(log->last("resume"), "rollback");
}

// The device was made anew just now.
TEST_F(Conversation, ADeviceThatCannotBeEnteredYetIsTriedAgainAfterARollback) {
  connect();
  stop_and_wake();
  log->fail_next("unpark", ENODEV);
  const Resume resume{true, {{"eth9", device::to_parcel("rxe0")}}};
  ASSERT_EQ(send_message(peer, MessageType::kResume, encode(resume)), 0);
  EXPECT_TRUE(at_end());
  accept();
  receive(MessageType::kAwake);
  EXPECT_EQ(log->count("resume"), 0u);
  ASSERT_EQ(send_message(peer, MessageType::kResume, encode(resume)), 0);
  EXPECT_EQ(receive_as<Resumed>(MessageType::kResumed).error, 0);
  EXPECT_EQ(log->last("resume"), "rollback");
}

// It had asked by itself, and was told after that.
TEST_F(Conversation, AWordAboutAnEarlierStopSaysNothingAboutTheNext) {
  connect();
  std::atomic_ref command(control.command);
  command.store(ControlBlock::kGo);
  ASSERT_EQ(send_message(peer, MessageType::kStop, encode(Stop{2, 1000})), 0);
  receive(MessageType::kStopped);
  EXPECT_EQ(command.load(), ControlBlock::kNone);
  ASSERT_EQ(send_message(peer, MessageType::kStopTaken, {}), 0);
  EXPECT_TRUE(at_end());
  command.store(ControlBlock::kGo);
  accept();
  receive(MessageType::kAwake);
}

TEST_F(Conversation, AResumeThatDoesNotFitIsNotFollowed) {
  connect();
  stop_and_wake();
  ASSERT_EQ(send_message(peer, MessageType::kResume, encode(Resume{true, {}})),
            0);  // one context is missing
  accept();
  receive(MessageType::kAwake);
  EXPECT_EQ(log->count("resume"), 0u);
}

TEST_F(Conversation, RollsBackByItselfWhenStopIsNotTaken) {
  connect();
  give_fake_a_socket();
  ASSERT_EQ(send_message(peer, MessageType::kStop, encode(Stop{1, 50})), 0);
  Message message = receive(MessageType::kStopped);
  close_descriptors(&message.descriptors);
  EXPECT_TRUE(at_end());
  EXPECT_EQ(log->count("unpark"), 1u);
  EXPECT_EQ(log->last("resume"), "rollback");
  EXPECT_GE(::fcntl(fake->parcel.descriptors.at(0), F_GETFD), 0);
  accept();
  receive(MessageType::kRegister);
}

TEST_F(Conversation, AFailedSuspendOrDetachIsReportedAndUndone) {
  connect();
  log->fail_next("quiesce", EIO);
  ASSERT_EQ(send_message(peer, MessageType::kStop, encode(Stop{1, 1000})), 0);
  EXPECT_EQ(receive_as<Stopped>(MessageType::kStopped).error, EIO);
  EXPECT_EQ(log->count("resume"), 0u);
  log->fail_next("park", ENOMEM);
  ASSERT_EQ(send_message(peer, MessageType::kStop, encode(Stop{2, 1000})), 0);
  EXPECT_EQ(receive_as<Stopped>(MessageType::kStopped).error, ENOMEM);
  EXPECT_EQ(log->last("resume"), "rollback");
  EXPECT_EQ(log->count("unpark"), 0u);
  Registry::Change change(registry);  // not shut out any more
}

TEST_F(Conversation, AMalformedStopStopsNothing) {
  connect();
  ASSERT_EQ(send_message(peer, MessageType::kStop, std::vector<std::byte>(3)), 0);
  EXPECT_EQ(receive_as<Stopped>(MessageType::kStopped).error, EPROTO);
  EXPECT_EQ(log->count("quiesce"), 0u);
}

}  // namespace
}  // namespace ferry::agent
