#include "host/guest/guest_port.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/companion.h"
#include "base/failure.h"
#include "ferryd_here.h"
#include "host/guest/nic_keeper.h"
#include "host/guest/nics.h"
#include "host/guest/talk/lines.h"
#include "own_mounts.h"
#include "own_network.h"
#include "played_process.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;

using std::chrono::seconds;
using test::eventually;
using test::PlayedProcess;

constexpr char kMac0[] = "52:54:00:00:00:10", kMac1[] = "52:54:00:00:00:11";
constexpr char kDevices[] = "/sys/class/infiniband/";
constexpr std::uint32_t kLong = 3600'000;  // ms: no test lasts so long

void make_device(const std::string& device, const std::string& interface) {
  fs::create_directories(kDevices + device + "/ports/1");
  std::ofstream(kDevices + device + "/parent") << interface << '\n';
  std::ofstream(kDevices + device + "/ports/1/state") << "4: ACTIVE\n";
}

// A machine with two NICs, nic0 and nic1, with rxe0 and rxe1 on them, and the host that asks it by its port.
struct Guest {
  Guest() {
    test::ip(std::string("link add nic0 address ") + kMac0 + " type veth peer name cable0\n" +
             "link add nic1 address " + kMac1 + " type veth peer name cable1\nlink set nic0 up");
    make_device("rxe0", "nic0");
    make_device("rxe1", "nic1");
    connect();
    begin();
  }
  ~Guest() { end(); }

  void begin() {
    keeper.emplace(NicKeeper::Setup{ferryd.folder.path("nics"),
                                    [](const auto&, const auto&) { return std::string(); }});
    port.emplace(ferryd.host, *ferryd.detachments, *ferryd.departures, *keeper, [this] {
      std::lock_guard lock(mutex);
      return std::move(guests_end);
    });
  }
  void end() {
    ferryd.host.stopping = true;
    port.reset();
    keeper.reset();
  }
  // The host's ferryd is another one from now on.
  void connect() {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    raw = ends[0];
    host.emplace(UniqueFd(ends[0]));
    std::lock_guard lock(mutex);
    guests_end.reset(ends[1]);
  }
  void send(v1::GuestRequest request) {
    request.set_id(++id);
    host->write(request, Lines::Clock::now() + seconds(60));
  }
  v1::GuestReply receive() {
    v1::GuestReply reply;
    EXPECT_TRUE(host->read(&reply, Lines::Clock::now() + seconds(60)));
    EXPECT_EQ(reply.id(), id);
    return reply;
  }
  v1::GuestReply ask(const v1::GuestRequest& request) {
    send(request);
    v1::GuestReply reply = receive();
    while (!reply.waiting().empty()) reply = receive();
    return reply;
  }

  test::FerrydHere ferryd{"guest"};
  std::mutex mutex;
  UniqueFd guests_end;
  std::optional<NicKeeper> keeper;
  std::optional<GuestPort> port;
  std::optional<Lines> host;
  int raw = -1;  // the host's end
  std::uint64_t id = 0;
};

v1::GuestRequest look(const std::vector<std::string>& nics) {
  v1::GuestRequest request;
  for (const auto& nic : nics) request.mutable_look()->add_nics(nic);
  return request;
}

v1::GuestRequest leave(const std::vector<std::string>& nics, std::uint32_t limit_ms = kLong) {
  v1::GuestRequest request;
  for (const auto& nic : nics) request.mutable_leave()->add_nics(nic);
  request.mutable_leave()->set_limit_ms(limit_ms);
  return request;
}

v1::GuestRequest come_back() {
  v1::GuestRequest request;
  request.mutable_return_();
  return request;
}

// Its QP over rxe0 is connected with itself.
PlayedProcess::Behaviour uses_rxe0() {
  const device::Letter::End own{PlayedProcess::address(), 17};
  return test::has(own, own, 1);
}

PlayedProcess::Behaviour uses_rxe1() {
  PlayedProcess::Behaviour behaviour;
  behaviour.has_rxe1 = true;
  behaviour.slot = 2;
  return behaviour;
}

using Spans = std::vector<std::string>;

// The names of what the guest has done, none of it later than its answer.
Spans told(const v1::GuestReply& reply) {
  Spans names;
  for (const auto& span : reply.spans()) {
    EXPECT_LE(span.begin_us(), span.end_us());
    EXPECT_LE(span.end_us(), reply.now_us());
    names.push_back(span.name());
  }
  return names;
}

bool is_registered(Guest& guest, const PlayedProcess& process) {
  return eventually([&] {
    const auto all = guest.ferryd.control->processes();
    return std::any_of(all.begin(), all.end(),
                       [&](const auto& each) { return each.pid == process.pid(); });
  });
}

// The process notes both a moment after ferryd has heard of it.
bool has_left(PlayedProcess& process) {
  return eventually([&] { return process.seen().stopped == 1; });
}
bool is_back(PlayedProcess& process) {
  return eventually([&] { return process.seen().resumed == 1; });
}

struct GuestPortTest : testing::Test {
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  }
  // In namespaces of its own: with NICs, with RDMA devices of the kernel in /sys, and where each of these has what
  // programs need.
  static void on_a_machine(const std::function<void(Guest&)>& call) {
    test::with_own_mounts([&] {
      test::with_own_network([&] {
        ASSERT_EQ(::mount("none", "/sys/class", "tmpfs", 0, nullptr), 0);
        ASSERT_EQ(::mount("/bin/true", need_companion("ferry-device-trial").c_str(), nullptr,
                          MS_BIND, nullptr),
                  0);
        Guest guest;
        call(guest);
      });
    });
  }
};

TEST_F(GuestPortTest, TellsWhichProgramsUseTheDevicesOfANic) {
  on_a_machine([](Guest& guest) {
    const PlayedProcess one(guest.ferryd.folder.path("sock"), uses_rxe0());
    const PlayedProcess two(guest.ferryd.folder.path("sock"), uses_rxe1());
    ASSERT_TRUE(is_registered(guest, one) && is_registered(guest, two));
    auto reply = guest.ask(look({kMac0}));
    EXPECT_EQ(reply.failure(), "");
    EXPECT_EQ(reply.host(), "guest");
    EXPECT_EQ(reply.version(), guest.ferryd.host.version);
    ASSERT_EQ(reply.devices_size(), 1);
    EXPECT_EQ(reply.devices(0), "rxe0");
    ASSERT_EQ(reply.programs_size(), 1);
    EXPECT_EQ(reply.programs(0).pid(), one.pid());
    EXPECT_EQ(reply.programs(0).qps(), 1u);
    EXPECT_FALSE(reply.programs(0).name().empty());
    reply = guest.ask(look({kMac0, kMac1, "52:54:00:00:00:99"}));
    EXPECT_EQ(reply.devices_size(), 2);
    EXPECT_EQ(reply.programs_size(), 2);
    EXPECT_EQ(guest.ask(look({})).programs_size(), 0);
  });
}

TEST_F(GuestPortTest, ProgramsLeaveTwoNicsAtOnceAndComeBack) {
  on_a_machine([](Guest& guest) {
    auto uses_both = uses_rxe0();
    uses_both.has_rxe1 = true;
    PlayedProcess one(guest.ferryd.folder.path("sock"), uses_both);
    PlayedProcess two(guest.ferryd.folder.path("sock"), uses_rxe1());
    ASSERT_TRUE(is_registered(guest, one) && is_registered(guest, two));
    auto reply = guest.ask(leave({kMac0, kMac1}));
    EXPECT_EQ(reply.failure(), "");
    EXPECT_EQ(reply.programs_size(), 2);
    EXPECT_EQ(reply.devices_size(), 2);
    EXPECT_TRUE(has_left(one));
    EXPECT_TRUE(has_left(two));
    EXPECT_TRUE(fs::exists(guest.ferryd.folder.path("nics")));
    EXPECT_EQ(guest.ask(look({kMac1})).failure(),
              "programs are leaving rxe0, rxe1 just now; wait until they are back");
    EXPECT_EQ(guest.ask(leave({kMac1})).failure(),
              "the programs that have left their devices before are not back yet");

    fs::remove_all(std::string(kDevices) + "rxe1");
    guest.send(come_back());
    reply = guest.receive();
    EXPECT_NE(reply.waiting().find("rxe1"), std::string::npos) << reply.waiting();
    make_device("rxe1", "nic1");
    while (!reply.waiting().empty()) reply = guest.receive();
    EXPECT_EQ(reply.failure(), "");
    ASSERT_EQ(reply.programs_size(), 2);
    EXPECT_GT(reply.programs(0).stood_still_ms(), 0);
    EXPECT_GT(reply.programs(1).stood_still_ms(), 0);
    EXPECT_TRUE(is_back(one));
    EXPECT_TRUE(is_back(two));
    EXPECT_FALSE(fs::exists(guest.ferryd.folder.path("nics")));

    // Once more, for a host that has not heard it.
    EXPECT_EQ(guest.ask(come_back()).programs_size(), 2);
    EXPECT_EQ(guest.ask(look({kMac0, kMac1})).failure(), "");
  });
}

TEST_F(GuestPortTest, ARepeatedRequestIsDoneOnce) {
  on_a_machine([](Guest& guest) {
    PlayedProcess one(guest.ferryd.folder.path("sock"), uses_rxe0());
    ASSERT_TRUE(is_registered(guest, one));
    for (int times = 0; times < 3; ++times) {
      guest.send(leave({kMac0}));
      --guest.id;
    }
    ++guest.id;
    v1::GuestReply reply = guest.receive();
    EXPECT_EQ(reply.waiting(), "its programs have not left their devices yet");
    while (!reply.waiting().empty()) reply = guest.receive();
    EXPECT_EQ(reply.failure(), "");
    EXPECT_EQ(guest.ask(look({kMac1})).failure(), "");  // no other answer has come before
    EXPECT_TRUE(has_left(one));
    EXPECT_EQ(guest.ask(come_back()).programs_size(), 1);
  });
}

TEST_F(GuestPortTest, ProgramsOfALeaveThatFailsGoOn) {
  on_a_machine([](Guest& guest) {
    PlayedProcess one(guest.ferryd.folder.path("sock"), uses_rxe0());
    auto refuses = uses_rxe1();
    refuses.stop_error = EBUSY;
    PlayedProcess two(guest.ferryd.folder.path("sock"), refuses);
    ASSERT_TRUE(is_registered(guest, one) && is_registered(guest, two));
    const auto reply = guest.ask(leave({kMac0, kMac1}));
    EXPECT_TRUE(reply.failure().starts_with("the programs stay on rxe0, rxe1: "))
        << reply.failure();
    EXPECT_TRUE(eventually([&] { return one.seen().resumed == one.seen().stopped; }));
    EXPECT_EQ(two.seen().stopped, 0);
    EXPECT_FALSE(fs::exists(guest.ferryd.folder.path("nics")));
    EXPECT_EQ(guest.ask(come_back()).programs_size(), 0);
    EXPECT_EQ(guest.ask(look({kMac0})).failure(), "");
  });
}

TEST_F(GuestPortTest, ProgramsComeBackUnaskedWhenTheHostIsSilentForLong) {
  on_a_machine([](Guest& guest) {
    PlayedProcess one(guest.ferryd.folder.path("sock"), uses_rxe0());
    ASSERT_TRUE(is_registered(guest, one));
    EXPECT_EQ(guest.ask(leave({kMac0}, 1)).failure(), "");
    EXPECT_TRUE(is_back(one));
    const auto reply = guest.ask(come_back());
    ASSERT_EQ(reply.programs_size(), 1);
    EXPECT_GT(reply.programs(0).stood_still_ms(), 0);
    EXPECT_NE(guest.ask(leave({kMac0}, 0)).failure().find("limit_ms"), std::string::npos);
  });
}

TEST_F(GuestPortTest, ProgramsComeBackWithTheirNic) {
  on_a_machine([](Guest& guest) {
    PlayedProcess one(guest.ferryd.folder.path("sock"), uses_rxe0());
    ASSERT_TRUE(is_registered(guest, one));
    const auto left = guest.ask(leave({kMac0}));
    EXPECT_EQ(left.failure(), "");
    EXPECT_EQ(told(left),
              (Spans{"notes how the NICs are configured", "has the programs leave their devices",
                     "switches off the slots of the NICs"}));
    test::ip(std::string("link delete nic0\nlink add other address ") + kMac0 +
             " type veth peer name cable2");
    EXPECT_TRUE(is_back(one));
    const auto reply = guest.ask(come_back());
    ASSERT_EQ(reply.programs_size(), 1);
    EXPECT_GT(reply.programs(0).stood_still_ms(), 0);
    EXPECT_EQ(told(reply), (Spans{"configures nic0", "opens its devices and makes its objects"}));
  });
}

// Each is back when both are: one with programs on both would find half of its devices otherwise.
TEST_F(GuestPortTest, ProgramsComeBackWhenAllNicsDo) {
  on_a_machine([](Guest& guest) {
    PlayedProcess one(guest.ferryd.folder.path("sock"), uses_rxe0());
    ASSERT_TRUE(is_registered(guest, one));
    EXPECT_EQ(guest.ask(leave({kMac0, kMac1})).failure(), "");
    test::ip(std::string("link delete nic0\nlink delete nic1\nlink add nic0 address ") + kMac0 +
             " type veth peer name cable2");
    EXPECT_TRUE(eventually([] { return has_interface("cable2") && nic_of(kMac0)->is_up; }));
    EXPECT_EQ(one.seen().resumed, 0);
    test::ip(std::string("link add nic1 address ") + kMac1 + " type veth peer name cable3");
    EXPECT_TRUE(is_back(one));
  });
}

TEST_F(GuestPortTest, WhatIsNoRequestDoesNoHarm) {
  on_a_machine([](Guest& guest) {
    for (const std::string line :
         {"nonsense\n", "{\"id\":\"x\"}\n", "[]\n", "\n\n", "{\"look\":{\"nics\":7}}\n",
          "{\"leave\":{\"nics\":[\"../../x\\n\"],\"limit_ms\":-1}}\n", "\xff\xfe\n"}) {
      EXPECT_EQ(::write(guest.raw, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    }
    v1::GuestRequest none;
    EXPECT_EQ(guest.ask(none).failure(), "the guest's ferryd does not know this request");
    EXPECT_EQ(guest.ask(look({"../../x\n"})).failure(), "");
    // An endless line ends the connection only.
    const std::string endless(1 << 16, 'x');
    while (::send(guest.raw, endless.data(), endless.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0 ||
           errno == EAGAIN) {
    }
    guest.connect();
    EXPECT_EQ(guest.ask(look({kMac0})).failure(), "");
  });
}

TEST_F(GuestPortTest, AnotherHostGoesOnWhereOneHasStopped) {
  on_a_machine([](Guest& guest) {
    PlayedProcess one(guest.ferryd.folder.path("sock"), uses_rxe0());
    ASSERT_TRUE(is_registered(guest, one));
    guest.send(leave({kMac0}));
    EXPECT_NE(guest.receive().waiting(), "");
    guest.host.reset();
    EXPECT_TRUE(has_left(one));
    fs::remove_all(std::string(kDevices) + "rxe0");
    guest.connect();
    guest.send(come_back());
    EXPECT_NE(guest.receive().waiting(), "");
    guest.connect();  // the former end is closed
    make_device("rxe0", "nic0");
    const auto reply = guest.ask(come_back());
    EXPECT_EQ(reply.failure(), "");
    EXPECT_EQ(reply.programs_size(), 1);
    EXPECT_TRUE(is_back(one));
  });
}

TEST_F(GuestPortTest, AReturnWaitsForProgramsThatAFormerFerrydHadLeave) {
  on_a_machine([](Guest& guest) {
    auto leaves_none0 = uses_rxe0();
    leaves_none0.leaves_none0 = true;
    PlayedProcess one(guest.ferryd.folder.path("sock"), leaves_none0);
    ASSERT_TRUE(is_registered(guest, one));
    EXPECT_EQ(guest.ask(leave({kMac0})).failure(), "");
    fs::remove_all(std::string(kDevices) + "rxe0");  // so that ending does not bring it back
    guest.end();
    EXPECT_EQ(one.seen().command, 0);
    guest.connect();
    guest.ferryd.restart();
    guest.begin();
    guest.send(come_back());
    EXPECT_NE(guest.receive().waiting().find("stopped by a former ferryd"), std::string::npos);
    const std::string node = "/sys/class/infiniband_verbs/uverbs0";
    fs::create_directories(node);
    std::ofstream(node + "/dev") << "231:192\n";
    std::ofstream(node + "/ibdev") << "none0\n";
    v1::GuestReply reply;
    do {
      reply = guest.receive();
    } while (!reply.waiting().empty());
    EXPECT_EQ(reply.failure(), "");
    EXPECT_TRUE(is_back(one));
  });
}

TEST(GuestPortAt, IsThereWhenItsFileIs) {
  const test::Folder folder;
  const auto open = guest_port_at(folder.path("port"));
  EXPECT_FALSE(open());
  folder.write("port", "");
  EXPECT_TRUE(open());
}

}  // namespace
}  // namespace ferry::host
