#include "host/standin/whereabouts.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "base/unique_fd.h"
#include "ferryd_here.h"
#include "gsi/local.h"
#include "host/proc/process_tree.h"
#include "host/standin/slots.h"
#include "played_process.h"
#include "port/slot.h"

namespace ferry::host {
namespace {

using test::eventually;
using test::FerrydHere;
using test::PlayedProcess;

constexpr std::uint64_t kService = 0x0000000001064E20;  // RDMA_PS_TCP, port 20000

port::Endpoint at(std::uint32_t ip, std::uint32_t slot) {
  return {port::Address::from_ipv4(ip), port::udp_port_of_slot(slot)};
}

const port::Endpoint kOrigin = at(0x0A4E0101, 0), kHere = at(0x0A4E0201, 3);

// A process that has, or has not, a socket of this name.
class Listener {
 public:
  enum class Of { kUs, kOwnNetwork, kNobody };
  // `folder`: there it has the path '@' and the name, instead of the abstract name.
  explicit Listener(const std::string& name, Of of = Of::kUs, const std::string& folder = {}) {
    int ready[2];
    if (::pipe(ready) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ready[1], 3);
      ::close_range(4, ~0u, 0);
      int error = of == Of::kOwnNetwork ? ::unshare(CLONE_NEWNET) : 0;
      if (of == Of::kNobody) error = ::setuid(65534);
      if (!folder.empty()) {
        error = bind_path(folder, "@" + name);
      } else if (!name.empty()) {
        gsi::open_receiver(name, &error);
      }
      const char byte = error == 0 ? 1 : 0;
      (void)!::write(3, &byte, 1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_EQ(byte, 1);
    ::close(ready[0]);
  }
  ~Listener() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  static int bind_path(const std::string& folder, const std::string& path) {
    std::filesystem::create_directories(folder + "/" + path);
    std::filesystem::remove(folder + "/" + path);
    if (::chdir(folder.c_str()) != 0) return errno;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    const int socket = ::socket(AF_UNIX, SOCK_DGRAM, 0);
    return ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  }

  pid_t pid_ = 0;
};

struct WhereaboutsTest : testing::Test {
  FerrydHere ferryd{"h2"};
  const std::uint64_t network = namespace_inode(::getpid(), "net");

  void settle(pid_t pid) { ferryd.residents->settle({pid, network, {place(1)}}); }
  Place place(std::uint32_t epoch) const {
    return {kOrigin, kHere, "h2", ferryd.host.address, epoch, false};
  }
  std::size_t listeners() {
    return ferryd.whereabouts->listeners(kOrigin.address, kService).size();
  }
};

// What a process says of itself when it is asked is for `ferry ps`.
TEST_F(WhereaboutsTest, NobodyNamesItsOwnRnics) {
  PlayedProcess liar(ferryd.folder.path("sock"), {.slot = 175, .origin = kOrigin, .epoch = ~0u});
  ASSERT_TRUE(eventually([&] { return ferryd.control->processes().size() == 1; }));
  const auto status = ferryd.control->status(liar.pid(), std::chrono::seconds(60));
  std::vector<rnic::Slot> places;
  ASSERT_TRUE(rnic::to_slots(status.contexts.at(0).place, &places));
  ASSERT_EQ(places.at(0).origin, kOrigin);
  EXPECT_EQ(ferryd.directory->told(kOrigin), std::nullopt);
  ferryd.restart();
  ASSERT_TRUE(eventually([&] { return ferryd.control->processes().size() <= 1; }));
  EXPECT_EQ(ferryd.directory->told(kOrigin), std::nullopt);
}

TEST_F(WhereaboutsTest, WhatAFormerFerrydHasPlacedIsToldAgain) {
  const Listener process("");
  const auto slots = bind_slots("", "lo", {{-1, at(0x7F000001, 946), 946, kOrigin, 4, {}}});
  ferryd.whereabouts->arrived(process.pid(), {{"lo", slots}});
  ::close(slots[0].descriptor);
  const auto told = [&] { return ferryd.directory->told(kOrigin); };
  ASSERT_TRUE(told());
  EXPECT_EQ(told()->epoch, 4u);
  EXPECT_EQ(ferryd.residents->of(process.pid()).network, network);
  ferryd.restart();
  ASSERT_TRUE(told());
  EXPECT_EQ(told()->epoch, 4u);
  ::kill(process.pid(), SIGKILL);
  EXPECT_TRUE(eventually([&] { return told() && told()->ended; }));
}

TEST_F(WhereaboutsTest, TheKernelSaysWhoListens) {
  for (const auto& name :
       {gsi::listener_name_any(kService), gsi::listener_name(kOrigin.address, kService),
        gsi::listener_name(kHere.address, kService)}) {
    const Listener process(name);
    EXPECT_EQ(listeners(), 0u) << name;  // it has not been elsewhere
    settle(process.pid());
    EXPECT_EQ(listeners(), 1u) << name;
    EXPECT_TRUE(ferryd.whereabouts->listeners(kHere.address, kService).empty());
    EXPECT_TRUE(ferryd.whereabouts->listeners(kOrigin.address, kService + 1).empty());
    ::kill(process.pid(), SIGSTOP);
    EXPECT_EQ(listeners(), 1u) << name;  // nobody waits for its answer
  }
}

TEST_F(WhereaboutsTest, WhoDoesNotListenIsNotAListener) {
  const Listener honest(gsi::listener_name_any(kService)), liar("");
  settle(liar.pid());
  EXPECT_EQ(listeners(), 0u);
  const Listener other(gsi::listener_name(at(0x0A4E0301, 0).address, kService));
  settle(other.pid());
  EXPECT_EQ(listeners(), 0u);
}

// Names that look like a listener's, and are others to the kernel.
TEST_F(WhereaboutsTest, ANameThatLooksAlikeMakesNoListener) {
  const std::string name = gsi::listener_name_any(kService);
  const Listener longer(name + std::string(1, '\0')),
      path(name, Listener::Of::kUs, ferryd.folder.path());
  settle(longer.pid());
  settle(path.pid());
  EXPECT_EQ(listeners(), 0u);
}

// There it may take any name.
TEST_F(WhereaboutsTest, ANetworkOfItsOwnMakesNoListener) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes network namespaces here";
  const Listener process(gsi::listener_name_any(kService), Listener::Of::kOwnNetwork);
  settle(process.pid());
  EXPECT_EQ(listeners(), 0u);
}

// Answers nobody before it is let go.
struct SlowDirectory : Directory {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<port::Endpoint> asked;
  std::size_t allowed = 0;

  std::optional<Place> lookup(const port::Endpoint& origin) override {
    std::unique_lock lock(mutex);
    asked.push_back(origin);
    changed.wait(lock, [&] { return asked.size() <= allowed; });
    return std::nullopt;
  }
  void allow(std::size_t count) {
    std::lock_guard lock(mutex);
    allowed = count;
    changed.notify_all();
  }
  std::size_t count() {
    std::lock_guard lock(mutex);
    return asked.size();
  }
  void renew(const Place&) override {}
  void put(const Place&) override {}
  void remove(const Place&) override {}
  void left(const Place&) override {}
  void watch(const port::Endpoint&, Watcher) override {}
  void unwatch(const port::Endpoint&) override {}
  std::optional<Place> told(const port::Endpoint&) const override { return std::nullopt; }
};

TEST_F(WhereaboutsTest, UsersAreServedInTurn) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root starts processes of others";
  SlowDirectory directory;
  {
    Whereabouts whereabouts("h1", ferryd.host.address, *ferryd.control, directory,
                            *ferryd.residents);
    const Listener other("", Listener::Of::kNobody);
    agent::Locate many;
    for (std::uint32_t slot = 0; slot < 1000; ++slot) many.names.push_back(at(0x0A4E0101, slot));
    whereabouts.locate(::getpid(), many);
    whereabouts.locate(::getpid(), many);  // once is enough
    EXPECT_TRUE(eventually([&] { return directory.count() == 1; }));
    const port::Endpoint wanted = at(0x0A4E0901, 7);
    whereabouts.locate(other.pid(), {{wanted}});
    directory.allow(1);
    EXPECT_TRUE(eventually([&] { return directory.count() == 2; }));
    EXPECT_EQ(directory.asked[1], wanted);
    directory.allow(2000);
    EXPECT_TRUE(eventually([&] { return directory.count() == 1001; }));
  }
  EXPECT_EQ(directory.count(), 1001u);
}

}  // namespace
}  // namespace ferry::host
