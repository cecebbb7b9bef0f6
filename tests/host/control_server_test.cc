#include "host/control/control_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "base/net.h"
#include "host/proc/process_tree.h"
#include "played_process.h"
#include "port/slot.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using test::eventually;
using test::failure_of;
using test::Folder;
using test::PlayedProcess;

// Answers as told, and notes what was asked.
struct Handler : ControlHandler {
  agent::Done pause_tree(pid_t root) override { return {0, "pause " + std::to_string(root), {}}; }
  agent::Done frozen(pid_t pid) override {
    if (pid == 99) throw std::runtime_error("no memory");
    return {0, "frozen " + std::to_string(pid)};
  }
  agent::Done dump_failed(pid_t) override { return {5, "no"}; }
  agent::Done claim(pid_t, const std::string&) override { return {}; }
  agent::Done restore_failed(pid_t, const std::string&) override { return {}; }
  agent::Done restored(const agent::Restored&) override { return {}; }
  agent::Done action(const agent::Action& action) override {
    return {action.name == "post-dump" ? 1 : 0, action.name};
  }
  WakeUp awake(pid_t, const agent::Awake&) override { return {}; }
  void resumed(pid_t, const agent::Resumed&) override {}
  void peers_know(pid_t, const agent::PeersKnow& message) override {
    if (message.remaining == 99) throw std::runtime_error("no memory");
    remaining = message.remaining;
  }
  void registered(pid_t) override { ++registrations; }
  void datagram_qps(pid_t, const std::vector<device::DatagramQps>& contexts) override {
    datagram_contexts = static_cast<int>(contexts.size());
  }
  void letters(pid_t, agent::Letters) override {}
  void locate(pid_t pid, const agent::Locate& question) override {
    std::lock_guard lock(mutex);
    asker = pid;
    sought = question.names;
  }
  std::mutex mutex;
  pid_t asker = 0;
  std::vector<port::Endpoint> sought;
  std::atomic<int> registrations{0};
  std::atomic<int> remaining{-1};
  std::atomic<int> datagram_contexts{-1};
};

struct ControlServerTest : testing::Test {
  Folder folder;
  std::string path = folder.path("ferryd.sock");
  Handler handler;

  void SetUp() override { ::setenv(agent::kSocketVariable, path.c_str(), 1); }
  void TearDown() override { ::unsetenv(agent::kSocketVariable); }

  template <typename Body>
  agent::Done ask(agent::MessageType type, const Body& body) {
    const UniqueFd socket(agent::connect_to_ferryd());
    agent::Message answer;
    agent::Done done{-1, "no answer"};
    EXPECT_EQ(agent::send_message(socket.get(), type, agent::encode(body)), 0);
    EXPECT_EQ(agent::receive_message(socket.get(), &answer, 3000), 0);
    EXPECT_TRUE(agent::parse(answer.body, &done));
    return done;
  }
};

TEST_F(ControlServerTest, AProcessIsKnownWhileItsConnectionLives) {
  ControlServer server(path);
  server.start(handler);
  {
    PlayedProcess process(path, {.slot = 51});
    ASSERT_TRUE(eventually([&] { return server.processes().size() == 1; }));
    EXPECT_EQ(server.processes()[0].pid, process.pid());
    EXPECT_EQ(server.processes()[0].build, "played");
    EXPECT_EQ(server.status(process.pid(), milliseconds(2000)).contexts.at(0).device, "played0");
  }
  EXPECT_TRUE(eventually([&] { return server.processes().empty(); }));
  EXPECT_NE(failure_of([&] { server.status(1, milliseconds(100)); }).find("not registered"),
            std::string::npos);
}

TEST_F(ControlServerTest, StopBringsTheSockets) {
  ControlServer server(path);
  server.start(handler);
  PlayedProcess process(path, {.slot = 52});
  ASSERT_TRUE(eventually([&] { return server.processes().size() == 1; }));
  auto stopped = server.stop(process.pid(), {7, 1000}, milliseconds(1000));
  ASSERT_EQ(stopped.contexts.size(), 1u);
  const int socket = stopped.contexts[0].parcel.descriptors.at(0);
  EXPECT_EQ(local_port(socket), port::udp_port_of_slot(52));
  server.stop_taken(process.pid(), milliseconds(1000));
  EXPECT_EQ(process.seen().stopped, 1);  // it has let go before stop_taken() returns
  EXPECT_TRUE(eventually([&] { return server.processes().empty(); }));
  ::close(socket);
}

TEST_F(ControlServerTest, AMuteProcessIsNotWaitedForLonger) {
  ControlServer server(path);
  server.start(handler);
  PlayedProcess process(path, {.mute = true, .slot = 53});
  ASSERT_TRUE(eventually([&] { return server.processes().size() == 1; }));
  EXPECT_NE(failure_of([&] {
              server.stop(process.pid(), {7, 50}, milliseconds(50));
            }).find("does not answer within 50 ms"),
            std::string::npos);
  // Its late answers do not confuse the next question.
  EXPECT_EQ(server.status(process.pid(), milliseconds(2000)).contexts.size(), 1u);
}

// Neither one that is halted nor one that says nothing keeps the answers of others from whoever asks
// all, and none is asked again before it has answered.
TEST_F(ControlServerTest, WhoAsksAllGetsTheAnswersOfThoseThatAnswer) {
  ControlServer server(path);
  server.start(handler);
  const UniqueFd mute(agent::connect_to_ferryd());
  agent::send_message(mute.get(), agent::MessageType::kRegister,
                      agent::encode(agent::Register{agent::kVersion, "mute", 1}));
  PlayedProcess halted(path, {.slot = 53}), honest(path, {.slot = 54});
  ASSERT_TRUE(eventually([&] { return server.processes().size() == 3; }));
  ::kill(halted.pid(), SIGSTOP);
  ASSERT_TRUE(eventually([&] { return is_halted(halted.pid()); }));
  for (int i = 0; i < 3; ++i) {
    std::map<pid_t, agent::StatusReply> replies;
    ASSERT_TRUE(eventually([&] {
      replies = server.statuses(milliseconds(100));
      return !replies.empty();
    }));
    ASSERT_EQ(replies.size(), 1u);
    EXPECT_EQ(replies.at(honest.pid()).contexts.at(0).device, "played0");
  }
  EXPECT_NE(failure_of([&] { server.status(::getpid(), milliseconds(100)); }).find("not answer"),
            std::string::npos);
  agent::Message question;
  ASSERT_EQ(agent::receive_message(mute.get(), &question, 5000), 0);
  EXPECT_EQ(question.type, agent::MessageType::kStatus);
  EXPECT_EQ(agent::receive_message(mute.get(), &question, 0), ETIMEDOUT);
  ::kill(halted.pid(), SIGCONT);
}

TEST_F(ControlServerTest, CriusPluginIsAnswered) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root is answered";
  ControlServer server(path);
  server.start(handler);
  EXPECT_EQ(ask(agent::MessageType::kPauseTree, agent::PauseTree{5}).error, "pause 5");
  EXPECT_EQ(ask(agent::MessageType::kFrozen, agent::Frozen{6}).error, "frozen 6");
  EXPECT_EQ(ask(agent::MessageType::kDumpFailed, agent::DumpFailed{6}).code, 5);
  EXPECT_EQ(ask(agent::MessageType::kAction, agent::Action{"post-dump", 1, 2}).code, 1);
  EXPECT_EQ(ask(agent::MessageType::kAction, agent::Action{"else", 1, 2}).code, 0);
}

TEST_F(ControlServerTest, SurvivesGarbage) {
  ControlServer server(path);
  server.start(handler);
  {
    const UniqueFd socket(agent::connect_to_ferryd());
    ASSERT_EQ(::write(socket.get(), "GET / HTTP/1.0\r\n\r\n", 18), 18);
    char byte = 0;
    EXPECT_LE(::read(socket.get(), &byte, 1), 0);  // hung up on
  }
  const UniqueFd socket(agent::connect_to_ferryd());
  agent::send_message(socket.get(), agent::MessageType::kRegister, std::vector<std::byte>(3));
  agent::send_message(socket.get(), agent::MessageType::kResumed, std::vector<std::byte>(1));
  agent::send_message(socket.get(), agent::MessageType::kAwake, std::vector<std::byte>(2));
  agent::send_message(socket.get(), agent::MessageType::kPeersKnow,
                      agent::encode(agent::PeersKnow{1, 3, {}, 0}));
  EXPECT_TRUE(eventually([&] { return handler.remaining == 3; }));
  EXPECT_TRUE(server.processes().empty());
}

std::ptrdiff_t open_descriptors() {
  std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

TEST_F(ControlServerTest, DropsAnswersWithoutAQuestion) {
  ControlServer server(path);
  server.start(handler);
  const UniqueFd socket(agent::connect_to_ferryd());
  agent::send_message(socket.get(), agent::MessageType::kRegister,
                      agent::encode(agent::Register{agent::kVersion, "me", 1}));
  ASSERT_TRUE(eventually([&] { return server.processes().size() == 1; }));
  for (int i = 0; i < 20; ++i) {
    for (const auto type : {agent::MessageType::kStatusReply, agent::MessageType::kStopped,
                            static_cast<agent::MessageType>(7777)}) {
      ASSERT_EQ(agent::send_message(socket.get(), type, std::vector<std::byte>(100)), 0);
    }
  }
  agent::send_message(socket.get(), agent::MessageType::kPeersKnow,
                      agent::encode(agent::PeersKnow{1, 4, {}, 0}));
  ASSERT_TRUE(eventually([&] { return handler.remaining == 4; }));  // it has read all of them
  EXPECT_EQ(server.processes().size(), 1u);
}

// They would be ferryd's for as long as a message may take, of everybody who begins one.
TEST_F(ControlServerTest, TakesNoDescriptorsThatItHasNotAskedFor) {
  ControlServer server(path);
  server.start(handler);
  constexpr std::size_t kConnections = 10, kSent = 200;
  std::vector<UniqueFd> sockets;
  for (std::size_t i = 0; i < kConnections; ++i) sockets.emplace_back(agent::connect_to_ferryd());
  const auto before = open_descriptors();
  const std::vector<int> sent(kSent, sockets[0].get());
  for (const auto& socket : sockets) {
    // The first byte of a header.
    char byte = 0x46;
    iovec vector{&byte, 1};
    alignas(cmsghdr) std::byte control[CMSG_SPACE(kSent * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(kSent * sizeof(int));
    std::memcpy(CMSG_DATA(rights), sent.data(), kSent * sizeof(int));
    ASSERT_EQ(::sendmsg(socket.get(), &message, MSG_NOSIGNAL), 1);
  }
  const auto is_hung_up = [](const UniqueFd& socket) {
    char byte = 0;
    return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
  };
  std::ptrdiff_t most = before;
  EXPECT_TRUE(eventually([&] {
    most = std::max(most, open_descriptors());
    return std::all_of(sockets.begin(), sockets.end(), is_hung_up);
  }));
  EXPECT_LT(most, before + static_cast<std::ptrdiff_t>(2 * kConnections + kSent));
}

TEST_F(ControlServerTest, TellsAProcessWhereItsPeersAre) {
  ControlServer server(path);
  server.start(handler);
  const UniqueFd socket(agent::connect_to_ferryd());
  ASSERT_EQ(agent::send_message(socket.get(), agent::MessageType::kRegister,
                                agent::encode(agent::Register{})),
            0);
  ASSERT_TRUE(eventually([&] { return handler.registrations == 1; }));
  const port::Endpoint lost{port::Address::from_ipv4(0x0A000001), 4791};
  const port::Endpoint found{port::Address::from_ipv4(0x0A000002), 61443};
  ASSERT_EQ(agent::send_message(socket.get(), agent::MessageType::kLocate,
                                agent::encode(agent::Locate{{lost}})),
            0);
  ASSERT_TRUE(eventually([&] {
    std::lock_guard lock(handler.mutex);
    return handler.sought == std::vector{lost};
  }));
  EXPECT_EQ(handler.asker, ::getpid());
  server.located(handler.asker, {{{lost, found, 7}}});
  agent::Message answer;
  ASSERT_EQ(agent::receive_message(socket.get(), &answer, 3000), 0);
  EXPECT_EQ(answer.type, agent::MessageType::kLocated);
  agent::Located located;
  ASSERT_TRUE(agent::parse(answer.body, &located));
  ASSERT_EQ(located.places.size(), 1u);
  EXPECT_EQ(located.places[0].name, lost);
  EXPECT_EQ(located.places[0].location, found);
  EXPECT_EQ(located.places[0].epoch, 7u);
  server.located(1, {});  // nobody
}

TEST_F(ControlServerTest, OutlivesWhatItsHandlerThrows) {
  ControlServer server(path);
  server.start(handler);
  if (::geteuid() == 0) {
    EXPECT_EQ(ask(agent::MessageType::kFrozen, agent::Frozen{99}).error, "no memory");
  }
  const UniqueFd socket(agent::connect_to_ferryd());
  for (const std::uint32_t remaining : {99u, 5u}) {
    agent::send_message(socket.get(), agent::MessageType::kPeersKnow,
                        agent::encode(agent::PeersKnow{1, remaining, {}, 0}));
  }
  EXPECT_TRUE(eventually([&] { return handler.remaining == 5; }));
}

// Runs in a process of another user, who may reach the socket; its exit status.
template <typename Call>
int as_nobody(const Folder& folder, Call call) {
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  const pid_t child = ::fork();
  if (child == 0) {
    const bool changed =
        ::setresgid(65534, 65534, 65534) == 0 && ::setresuid(65534, 65534, 65534) == 0;
    ::_exit(changed ? call() : 99);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

// 0, or errno; `ticket` gets what ferryd said.
int ask_for_ticket(int socket, std::string* ticket) {
  agent::Message answer;
  agent::Ticket body;
  if (const int error = agent::send_message(socket, agent::MessageType::kWhoAmI, {})) return error;
  if (const int error = agent::receive_message(socket, &answer, 10000)) return error;
  if (answer.type != agent::MessageType::kTicket || !agent::parse(answer.body, &body))
    return EPROTO;
  *ticket = body.text;
  return 0;
}

TEST_F(ControlServerTest, ATicketIsOfTheUserOfItsConnection) {
  ControlServer server(path);
  server.start(handler);
  std::string first, second;
  {
    const UniqueFd one(agent::connect_to_ferryd()), other(agent::connect_to_ferryd());
    ASSERT_EQ(ask_for_ticket(one.get(), &first), 0);
    ASSERT_EQ(ask_for_ticket(other.get(), &second), 0);
    EXPECT_NE(first, second);
    EXPECT_EQ(first.size(), 32u);
    EXPECT_EQ(server.user_of(first), ::getuid());
    EXPECT_EQ(server.user_of(second), ::getuid());
    std::string again;
    ASSERT_EQ(ask_for_ticket(one.get(), &again), 0);
    EXPECT_FALSE(server.user_of(first)) << "an old ticket";
    first = again;
  }
  EXPECT_TRUE(eventually([&] { return !server.user_of(first) && !server.user_of(second); }));
  EXPECT_FALSE(server.user_of(""));
  EXPECT_FALSE(server.user_of(std::string(32, '0')));
  if (::geteuid() != 0) return;
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  int release[2];
  ASSERT_EQ(::pipe(release), 0);
  std::thread judge([&] {
    char text[32];
    EXPECT_EQ(::read(pipe[0], text, sizeof text), 32);
    EXPECT_EQ(server.user_of(std::string(text, sizeof text)), 65534u);
    EXPECT_EQ(::write(release[1], "x", 1), 1);
  });
  EXPECT_EQ(as_nobody(folder,
                      [&] {
                        const int socket = agent::connect_to_ferryd();
                        std::string ticket;
                        char byte = 0;
                        if (ask_for_ticket(socket, &ticket) != 0) return 1;
                        if (::write(pipe[1], ticket.data(), ticket.size()) != 32) return 2;
                        return ::read(release[0], &byte, 1) == 1 ? 0 : 3;
                      }),
            0);
  judge.join();
  for (const int fd : {pipe[0], pipe[1], release[0], release[1]}) ::close(fd);
}

TEST_F(ControlServerTest, OnlyRootDrivesCriu) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs a second user";
  ControlServer server(path);
  server.start(handler);
  EXPECT_EQ(as_nobody(folder,
                      [&] {
                        const auto refused = [&](agent::MessageType type, const auto& body) {
                          const auto done = ask(type, body);
                          return done.code == EPERM && done.error == "only root may do this";
                        };
                        return refused(agent::MessageType::kPauseTree, agent::PauseTree{1}) &&
                                       refused(agent::MessageType::kFrozen, agent::Frozen{1}) &&
                                       refused(agent::MessageType::kDumpFailed,
                                               agent::DumpFailed{1}) &&
                                       refused(agent::MessageType::kAction,
                                               agent::Action{"post-restore", 1, 7})
                                   ? 0
                                   : 1;
                      }),
            0);
}

// A container's root has user id 0 like the host's. It comes by the socket for programs.
TEST_F(ControlServerTest, RootOfAContainerIsNobodysRoot) {
  ControlServer server(path);
  server.start(handler);
  const std::string inside = ControlServer::programs_socket(path);
  ::setenv(agent::kSocketVariable, inside.c_str(), 1);
  {
    PlayedProcess process(inside, {.slot = 55});
    EXPECT_TRUE(eventually([&] { return server.processes().size() == 1; }));
    EXPECT_EQ(server.status(process.pid(), milliseconds(2000)).contexts.at(0).device, "played0");
  }
  EXPECT_EQ(ask(agent::MessageType::kPauseTree, agent::PauseTree{1}).code, EPERM);
  EXPECT_EQ(ask(agent::MessageType::kFrozen, agent::Frozen{1}).code, EPERM);
  EXPECT_EQ(ask(agent::MessageType::kDumpFailed, agent::DumpFailed{1}).code, EPERM);
  EXPECT_EQ(ask(agent::MessageType::kRestored, agent::Restored{"", 1}).code, EPERM);
  EXPECT_EQ(ask(agent::MessageType::kAction, agent::Action{"post-restore", 1, 7}).code, EPERM);
  std::string ticket;
  const UniqueFd asker(agent::connect_to_ferryd());
  EXPECT_NE(ask_for_ticket(asker.get(), &ticket), 0);
}

TEST_F(ControlServerTest, AContainerHasOnlySoManyConnections) {
  ControlServer server(path, 2);
  server.start(handler);
  ::setenv(agent::kSocketVariable, ControlServer::programs_socket(path).c_str(), 1);
  const UniqueFd first(agent::connect_to_ferryd()), second(agent::connect_to_ferryd()),
      third(agent::connect_to_ferryd());
  agent::Message message;
  EXPECT_EQ(agent::receive_message(third.get(), &message, 10000), EPIPE);
  EXPECT_EQ(agent::receive_message(second.get(), &message, 0), ETIMEDOUT);
  // The host's root is no container's.
  ::setenv(agent::kSocketVariable, path.c_str(), 1);
  std::vector<UniqueFd> many;
  for (int i = 0; i < 5; ++i) many.emplace_back(agent::connect_to_ferryd());
  std::string ticket;
  EXPECT_EQ(ask_for_ticket(many.back().get(), &ticket), 0);
}

// As root of a container may, as often as it likes.
TEST_F(ControlServerTest, NamespacesInAContainerBringItNoMoreConnections) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  ControlServer server(path, 2);
  server.start(handler);
  ::setenv(agent::kSocketVariable, ControlServer::programs_socket(path).c_str(), 1);
  const pid_t container = ::fork();
  if (container == 0) {
    // Its init, and in three namespaces below a process each that connects.
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(2);
    const pid_t init = ::fork();
    if (init == 0) {
      int last = 0;
      for (int i = 0; i < 3; ++i) {
        int told[2];
        if (::pipe(told) != 0) ::_exit(3);
        if (::fork() == 0) {
          if (::unshare(CLONE_NEWPID) != 0) ::_exit(3);
          if (::fork() != 0) {
            for (;;) ::pause();
          }
          const int socket = agent::connect_to_ferryd();
          agent::Message message;
          const int error = agent::receive_message(socket, &message, i < 2 ? 200 : 10000);
          if (::write(told[1], &error, sizeof error) < 0) ::_exit(4);
          for (;;) ::pause();
        }
        if (::read(told[0], &last, sizeof last) != sizeof last) ::_exit(5);
      }
      ::_exit(last == EPIPE ? 0 : 6);
    }
    int status = 0;
    ::waitpid(init, &status, 0);
    ::_exit(WEXITSTATUS(status));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(container, &status, 0), container);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// The connection was inherited; the pid may be another process's by now.
TEST_F(ControlServerTest, ARegistrationEndsWithItsProcess) {
  ControlServer server(path);
  server.start(handler);
  int release[2];
  ASSERT_EQ(::pipe(release), 0);
  const pid_t process = ::fork();
  if (process == 0) {
    const int socket = agent::connect_to_ferryd();
    const pid_t heir = ::fork();
    if (heir == 0) {  // until the test ends
      ::close(release[1]);
      char byte = 0;
      const ssize_t end = ::read(release[0], &byte, 1);
      ::_exit(end == 0 ? 0 : 1);
    }
    agent::send_message(socket, agent::MessageType::kRegister,
                        agent::encode(agent::Register{agent::kVersion, "heir", 4096}));
    for (;;) ::pause();
  }
  ASSERT_TRUE(eventually([&] { return server.processes().size() == 1; }));
  EXPECT_EQ(server.processes()[0].pid, process);
  ::kill(process, SIGKILL);
  ::waitpid(process, nullptr, 0);
  EXPECT_TRUE(eventually([&] { return server.processes().empty(); }));
  EXPECT_NE(failure_of([&] { server.status(process, milliseconds(100)); }).find("not registered"),
            std::string::npos);
  ::close(release[0]);
  ::close(release[1]);
}

TEST_F(ControlServerTest, AUserHasOnlySoManyConnections) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs a second user";
  ControlServer server(path, 3);
  server.start(handler);
  EXPECT_EQ(as_nobody(folder,
                      [&] {
                        std::string ticket;
                        for (int i = 0; i < 3; ++i) {
                          if (ask_for_ticket(agent::connect_to_ferryd(), &ticket) != 0) return 1;
                        }
                        return ask_for_ticket(agent::connect_to_ferryd(), &ticket) != 0 ? 0 : 2;
                      }),
            0);
  const UniqueFd ours(agent::connect_to_ferryd());
  std::string ticket;
  EXPECT_EQ(ask_for_ticket(ours.get(), &ticket), 0);  // another's limit is not ours
}

// True when another process can serve there.
bool is_free_for_another(const std::string& path) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const std::string failure = failure_of([&] { ControlServer another(path); });
    if (failure.empty()) ::_exit(0);
    ::_exit(failure.find("another ferryd is running") != std::string::npos ? 1 : 2);
  }
  int status = -1;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(status == 0 || status == 1 << 8) << status;
  return status == 0;
}

TEST_F(ControlServerTest, OneFerrydPerSocket) {
  folder.write("ferryd.sock", "stale");
  ControlServer server(path);
  server.start(handler);
  EXPECT_FALSE(is_free_for_another(path));
  PlayedProcess process(path, {.slot = 54});
  EXPECT_TRUE(eventually([&] { return server.processes().size() == 1; }));
}

// As of a ferryd that is killed between fork and exec.
TEST_F(ControlServerTest, WhatAKilledOneHasForkedDoesNotHoldItsSocket) {
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t killed = ::fork();
  if (killed == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ControlServer server(path);
    const pid_t forked = ::fork();
    if (forked == 0) {
      ::alarm(600);  // in case the test does not end it
      for (;;) ::pause();
    }
    if (::write(ready[1], &forked, sizeof forked) != sizeof forked) ::_exit(1);
    for (;;) ::pause();
  }
  pid_t left = 0;
  ASSERT_EQ(::read(ready[0], &left, sizeof left), static_cast<ssize_t>(sizeof left));
  EXPECT_FALSE(is_free_for_another(path));
  ::kill(killed, SIGKILL);
  ::waitpid(killed, nullptr, 0);
  EXPECT_TRUE(is_free_for_another(path));
  ::kill(left, SIGKILL);
  for (const int end : ready) ::close(end);
}

}  // namespace
}  // namespace ferry::host
