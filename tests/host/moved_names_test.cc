#include <gtest/gtest.h>

#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <set>

#include "base/failure.h"
#include "base/unique_fd.h"
#include "ferry.pb.h"
#include "ferryd_here.h"
#include "played_process.h"

// What ferryds tell each other and their processes of programs that have moved with a device of the
// kernel.
namespace ferry::test {
namespace {

port::Address gid(std::uint32_t host) {
  return port::Address::from_ipv4(0x0A4F0000 + host);
}

struct MovedNames : testing::Test {
  FerrydHere here{"here"}, there{"there"};

  void SetUp() override {
    for (FerrydHere* ferryd : {&here, &there}) {
      ferryd->stop();
      ferryd->has_kernel_devices = true;
      ferryd->restart();
    }
  }
  void meet() { here.carrier->met({there.host.address, "there"}); }
  // Each has heard of the other.
  void await_meeting() {
    meet();
    ASSERT_TRUE(eventually([&] { return !there.carrier->known().empty(); }));
  }
  // A program has come to a host from another one, with these GIDs.
  static void bring(FerrydHere& ferryd, pid_t pid, std::initializer_list<std::uint32_t> gids,
                    bool comes_back = false) {
    ContextSlots context{"eth0", {}, "rxe0", {}};
    for (const std::uint32_t number : gids) context.names.push_back({gid(number), 0});
    context.names.push_back({gid(*gids.begin()), 17});
    ferryd.whereabouts->arrived(pid, {context}, comes_back);
  }
};

// Something that lives until it is ended.
struct Sleeper {
  pid_t pid = ::fork();
  Sleeper() {
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::pause();
      ::_exit(0);
    }
  }
  ~Sleeper() { end(); }
  void end() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = 0;
  }
};

TEST_F(MovedNames, ReachTheProcessesOfAllHostsBeforeTheProgramGoesOn) {
  PlayedProcess near(here.folder.path("sock"), {.slot = 1}),
      far(there.folder.path("sock"), {.slot = 2});
  ASSERT_NO_FATAL_FAILURE(await_meeting());
  ASSERT_TRUE(eventually([&] { return there.control->processes().size() == 1; }));
  Sleeper moved;
  bring(here, moved.pid, {1, 2});
  here.moved_names->arrived();
  EXPECT_TRUE(eventually([&] { return far.seen().moved_names == 2; }));
  EXPECT_TRUE(eventually([&] { return near.seen().moved_names == 2; }));
  // Those that register later, too.
  PlayedProcess late(there.folder.path("sock"), {.slot = 3});
  EXPECT_TRUE(eventually([&] { return late.seen().moved_names == 2; }));
  moved.end();
  EXPECT_TRUE(eventually([&] { return far.seen().moved_names == 0; }));
}

TEST_F(MovedNames, OfSeveralHostsComeTogether) {
  PlayedProcess process(here.folder.path("sock"), {});
  ASSERT_NO_FATAL_FAILURE(await_meeting());
  Sleeper moved, other;
  bring(here, moved.pid, {1});
  bring(there, other.pid, {1, 2, 3});
  there.moved_names->arrived();
  EXPECT_TRUE(eventually([&] { return process.seen().moved_names == 3; }));
}

TEST_F(MovedNames, AFerrydThatIsStartedAnewHearsOfThem) {
  ASSERT_NO_FATAL_FAILURE(await_meeting());
  Sleeper moved;
  bring(here, moved.pid, {1});
  here.moved_names->arrived();
  there.restart();
  PlayedProcess process(there.folder.path("sock"), {});
  EXPECT_TRUE(eventually([&] { return process.seen().moved_names == 1; }));
}

TEST_F(MovedNames, AHostThatDoesNotAnswerHoldsNobodyUp) {
  PlayedProcess process(here.folder.path("sock"), {});
  here.carrier->met({"127.0.0.1:1", "deaf"});
  Sleeper moved;
  bring(here, moved.pid, {1});
  here.moved_names->arrived();
  EXPECT_TRUE(eventually([&] { return process.seen().moved_names == 1; }));
}

// A stop that was taken back makes nobody one that has moved.
TEST_F(MovedNames, ThoseOfAProgramThatStaysDoNotCount) {
  PlayedProcess process(here.folder.path("sock"), {});
  ASSERT_TRUE(eventually([&] { return here.control->processes().size() == 1; }));
  Sleeper stays, moved;
  bring(here, stays.pid, {1, 2}, true);
  bring(here, moved.pid, {3});
  bring(here, moved.pid, {3}, true);  // on its way to the next host
  here.moved_names->arrived();
  EXPECT_TRUE(eventually([&] { return process.seen().moved_names == 1; }));
}

// Nobody is held up by a process that reads nothing.
TEST_F(MovedNames, AProcessThatDoesNotReadIsDropped) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, here.folder.path("sock").c_str());
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const agent::Register registration{agent::kVersion, {}, 4096};
  ASSERT_EQ(
      agent::send_message(socket.get(), agent::MessageType::kRegister, agent::encode(registration)),
      0);
  ASSERT_TRUE(eventually([&] { return here.control->processes().size() == 1; }));
  Sleeper moved;
  for (std::uint32_t i = 0; i < 10000 && !here.control->processes().empty(); ++i) {
    bring(here, moved.pid, {i % 2 == 0 ? 1u : 2u});
    here.moved_names->arrived();
  }
  EXPECT_TRUE(here.control->processes().empty());
}

// The kernel has QPs 18 and 19 of the process, on a device with GID 9.
struct MovedDatagrams : MovedNames {
  std::optional<PlayedProcess> process;
  struct {
    pid_t pid = 0;
  } moved;
  void SetUp() override {
    here.kernel.names_of = [this](const std::set<pid_t>& pids) {
      std::map<pid_t, std::vector<device::Letter::End>> names;
      if (pids.contains(moved.pid)) names[moved.pid] = {{gid(9), 18}, {gid(9), 19}, {gid(9), 0}};
      return names;
    };
    MovedNames::SetUp();
    process.emplace(here.folder.path("sock"), PlayedProcess::Behaviour{.slot = 2});
    moved.pid = process->pid();
    ASSERT_TRUE(eventually([&] { return here.control->processes().size() == 1; }));
    bring(here, moved.pid, {1});  // with QP 17
  }
  static v1::MovedNamesRequest question() {
    v1::MovedNamesRequest request;
    request.mutable_names();
    return request;
  }
  static device::DatagramQps qps(std::vector<device::DatagramQps::Qpn> qpns,
                                 std::uint32_t real_gid = 9) {
    return {{{gid(1), gid(real_gid)}}, std::move(qpns)};
  }
};

TEST_F(MovedDatagrams, TheProcessesOfAllHostsHearWhereUdQpsAre) {
  PlayedProcess near(here.folder.path("sock"), {.slot = 1}), far(there.folder.path("sock"), {});
  ASSERT_NO_FATAL_FAILURE(await_meeting());
  here.moved_names->datagram_qps(moved.pid, {qps({{17, 18}})});
  EXPECT_TRUE(eventually([&] { return near.seen().datagram_qpns == 1; }));
  EXPECT_TRUE(eventually([&] { return far.seen().datagram_qpns == 1; }));
  // One that it has made here has the number that the kernel gives.
  here.moved_names->datagram_qps(moved.pid, {qps({{17, 18}, {19, 19}})});
  EXPECT_TRUE(eventually([&] { return far.seen().datagram_qpns == 2; }));
  process.reset();
  EXPECT_TRUE(eventually([&] { return far.seen().datagram_qpns == 0; }));
}

// A program that has moved has made a QP since, whose number a QP of its former host has as well.
TEST_F(MovedDatagrams, ANameThatAQpOfItsFormerHostHasIsNotTaken) {
  const port::Address home = port::Address::from_ipv4(INADDR_LOOPBACK);  // that of `there`
  there.stop();
  there.kernel.there_are = [&](const QpNames::Kernel::Names& names) {
    const std::set<device::Letter::End> all(names.begin(), names.end());
    const device::Letter::End taken{home, 19};
    return all.contains(taken) ? std::set{taken} : std::set<device::Letter::End>();
  };
  there.restart();
  ASSERT_NO_FATAL_FAILURE(await_meeting());
  ContextSlots context{"eth0", {}, "rxe0", {{home, 0}, {home, 17}, {home, 19}}};
  here.whereabouts->arrived(moved.pid, {context}, false);
  here.moved_names->datagram_qps(moved.pid, {{{{home, gid(9)}}, {{17, 18}, {19, 19}}}});
  const v1::MovedNamesReply reply = here.moved_names->receive(question());
  ASSERT_EQ(reply.names().datagram_qps_size(), 1);
  ASSERT_EQ(reply.names().datagram_qps(0).qpns_size(), 1);
  EXPECT_EQ(reply.names().datagram_qps(0).qpns(0).known(), 17u);
}

TEST_F(MovedDatagrams, WhatTheKernelDoesNotSayIsDropped) {
  // The QPs of which another ferryd hears.
  const auto told = [&](const device::DatagramQps& said) {
    here.moved_names->datagram_qps(moved.pid, {said, qps({{19, 19}})});
    const v1::MovedNamesReply reply = here.moved_names->receive(question());
    int count = 0;
    for (const auto& each : reply.names().datagram_qps()) count += each.qpns_size();
    return count;
  };
  EXPECT_EQ(told(qps({{17, 20}})), 1) << "a QP that it has not";
  EXPECT_EQ(told(qps({{16, 18}})), 1) << "another one's name";
  EXPECT_EQ(told(qps({{17, 18}}, 8)), 1) << "a GID that its device has not";
  device::DatagramQps others = qps({{17, 18}});
  others.gids[0].known = gid(2);
  EXPECT_EQ(told(others), 1) << "a GID by which it is not known";
  EXPECT_EQ(told(qps({{17, 18}})), 2);
}

TEST_F(MovedNames, MalformedOnesAreRefused) {
  v1::MovedNamesRequest request;
  request.set_ferryd(there.host.address);
  request.mutable_names()->add_gids("short");
  EXPECT_THROW(here.moved_names->receive(request), Failure);
  request.clear_names();
  for (int i = 0; i < 5000; ++i) request.mutable_names()->add_gids(std::string(16, 'x'));
  EXPECT_THROW(here.moved_names->receive(request), Failure);
  request.clear_names();
  auto* const qps = request.mutable_names()->add_datagram_qps();
  qps->add_gids()->set_known(std::string(16, 'x'));
  EXPECT_THROW(here.moved_names->receive(request), Failure);
  qps->mutable_gids(0)->set_real(std::string(16, 'y'));
  for (std::uint32_t i = 0; i < 65536; ++i) qps->add_qpns()->set_known(i);
  EXPECT_NO_THROW(here.moved_names->receive(request));
  qps->add_qpns();
  EXPECT_THROW(here.moved_names->receive(request), Failure);
}

}  // namespace
}  // namespace ferry::test
