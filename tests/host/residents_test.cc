#include "host/standin/residents.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "port/slot.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using test::Folder;

// A process that waits for its end.
struct WaitingChild {
  pid_t pid = ::fork();
  WaitingChild() {
    if (pid != 0) return;
    ::close_range(3, ~0u, 0);
    for (;;) ::pause();
  }
  ~WaitingChild() { end(); }
  void end() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = 0;
  }
};

Place place(std::uint32_t slot, std::uint32_t epoch = 1) {
  const auto endpoint = [&](std::uint32_t ip) {
    return port::Endpoint{port::Address::from_ipv4(ip), port::udp_port_of_slot(slot)};
  };
  return {endpoint(0x0A4E0101), endpoint(0x0A4E0201), "h2", "10.77.0.2:4780", epoch, false};
}

struct ResidentsTest : testing::Test {
  Folder folder;
  const std::string path = folder.path("residents");
};

TEST_F(ResidentsTest, NobodyHasAnythingAtFirst) {
  const Residents residents(path);
  EXPECT_TRUE(residents.all().empty());
  EXPECT_TRUE(residents.of(::getpid()).places.empty());
  EXPECT_EQ(std::filesystem::file_size(path), 0u);
}

TEST_F(ResidentsTest, TheNextFerrydKnowsThemToo) {
  WaitingChild one, other, gone;
  {
    Residents residents(path);
    residents.settle({one.pid, 17, {place(0), place(1)}});
    residents.settle({other.pid, 18, {place(2)}});
    residents.settle({gone.pid, 19, {place(3)}});
    residents.settle({other.pid, 18, {place(2, 5)}});
    residents.forget(gone.pid);
  }
  const Residents residents(path);
  ASSERT_EQ(residents.all().size(), 2u);
  EXPECT_EQ(residents.of(one.pid).places, (std::vector{place(0), place(1)}));
  EXPECT_EQ(residents.of(one.pid).network, 17u);
  EXPECT_EQ(residents.of(other.pid).places, (std::vector{place(2, 5)}));
  EXPECT_TRUE(residents.of(gone.pid).places.empty());
}

TEST_F(ResidentsTest, WhoHasEndedHasNothing) {
  WaitingChild one, other;
  Residents residents(path);
  residents.settle({one.pid, 1, {place(0)}});
  residents.settle({other.pid, 1, {place(1)}});
  EXPECT_TRUE(residents.take_ended().empty());
  const pid_t ended = one.pid;
  one.end();
  EXPECT_TRUE(residents.of(ended).places.empty());
  EXPECT_EQ(residents.take_ended(), std::vector{place(0)});
  EXPECT_TRUE(residents.take_ended().empty());
  EXPECT_EQ(residents.of(other.pid).places.size(), 1u);
  residents.settle({ended, 1, {place(0)}});
  EXPECT_TRUE(residents.of(ended).places.empty());
}

// Its process id may be another's when the next ferryd comes, and is after a reboot.
TEST_F(ResidentsTest, NobodyInheritsTheirs) {
  WaitingChild one;
  { Residents(path).settle({one.pid, 1, {place(0)}}); }
  const std::string text = folder.read("residents");
  const auto with = [&](const std::string& name, const std::string& value) {
    std::string changed = text;
    const std::size_t at = changed.find("\"" + name + "\":") + name.size() + 3;
    changed.replace(at, changed.find_first_of(",}", at) - at, value);
    folder.write("residents", changed);
    return Residents(path).all().size();
  };
  EXPECT_EQ(with("network", "1"), 1u);
  EXPECT_EQ(with("started", "1"), 0u);
  EXPECT_EQ(with("boot", "1"), 0u);
}

TEST_F(ResidentsTest, WhatIsDamagedIsIgnored) {
  for (const char* text :
       {"", "{", "[]", "{\"boot\":1}", "null", "{\"boot\":\"x\",\"residents\":7}"}) {
    folder.write("residents", text);
    EXPECT_TRUE(Residents(path).all().empty()) << text;
  }
}

TEST_F(ResidentsTest, GoesOnWhereNothingCanBeWritten) {
  WaitingChild one;
  Residents residents(folder.path("none/residents"));
  residents.settle({one.pid, 1, {place(0)}});
  EXPECT_EQ(residents.of(one.pid).places.size(), 1u);
}

}  // namespace
}  // namespace ferry::host
