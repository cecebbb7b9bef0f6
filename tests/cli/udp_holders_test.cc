#include "cli/doctor/udp_holders.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/unique_fd.h"
#include "port/address_text.h"
#include "port/udp_socket.h"
#include "temporary.h"

namespace ferry::cli::doctor {
namespace {

using test::Folder;

// A /proc with the kernel's lists of UDP sockets.
struct PlayedProc : testing::Test {
  void SetUp() override { std::filesystem::create_directory(proc.path("net")); }
  void process(const std::string& pid, const std::string& name, const std::string& inode,
               const std::string& maps) {
    std::filesystem::create_directories(proc.path(pid + "/fd"));
    std::filesystem::create_symlink("socket:[" + inode + "]", proc.path(pid + "/fd/3"));
    std::filesystem::create_symlink("/usr/bin/" + name, proc.path(pid + "/exe"));
    proc.write(pid + "/comm", name + "\n");
    proc.write(pid + "/maps", maps);
  }
  static std::string line(const std::string& local, int user, const std::string& inode) {
    return "  1: " + local + " 00000000:0000 07 00000000:00000000 00:00000000 00000000 " +
           std::to_string(user) + "        0 " + inode + " 2 0000000000000000 0\n";
  }
  Folder proc;
};

TEST_F(PlayedProc, TellsWhoHasThePort) {
  proc.write("net/udp", "head\n" + line("01014E0A:12B7", 1000, "11") +
                            line("01014E0A:0035", 0, "12") + line("00000000:12B7", 0, "13"));
  proc.write("net/udp6", "head\n" + line("000078FD000000000000000001000000:12B7", 0, "14") +
                             "nonsense\n" + line("12:12B7", 0, "15"));
  process("70", "program", "11", "7f00-7f01 r-xp 0 00:00 1   /usr/lib/libferry.so (deleted)\n");
  process("71", "ferryd", "14", "");
  process("72", "other\x1b", "12", "");
  const auto holders = udp_holders(4791, proc.path());
  ASSERT_EQ(holders.size(), 3u);
  EXPECT_EQ(port::to_string(holders[0].address), "10.78.1.1");
  EXPECT_EQ(holders[0].user, 1000u);
  EXPECT_EQ(holders[0].pid, 70);
  EXPECT_EQ(holders[0].program, "program");
  EXPECT_TRUE(holders[0].is_ferrys);
  EXPECT_TRUE(holders[1].any_address);
  EXPECT_TRUE(holders[1].address.is_ipv4());
  EXPECT_EQ(holders[1].pid, 0);
  EXPECT_FALSE(holders[1].is_ferrys);
  EXPECT_EQ(port::to_string(holders[2].address), "fd78::1");
  EXPECT_EQ(holders[2].program, "ferryd");
  EXPECT_TRUE(holders[2].is_ferrys);
}

TEST_F(PlayedProc, BelievesNoStrangersName) {
  proc.write("net/udp", "head\n" + line("01014E0A:12B7", 1000, "11"));
  process("70", "ferryd", "11", "7f00-7f01 r-xp 0 00:00 1   /tmp/nolibferry.so\n");
  const auto holders = udp_holders(4791, proc.path());
  ASSERT_EQ(holders.size(), 1u);
  EXPECT_EQ(holders[0].pid, 70);
  EXPECT_FALSE(holders[0].is_ferrys);
}

TEST_F(PlayedProc, HasNone) {
  EXPECT_TRUE(udp_holders(4791, proc.path()).empty());
}

TEST(UdpHolders, FindASocketOfThisProcess) {
  int error = 0;
  const port::Endpoint any_port{port::Address::from_ipv4(INADDR_LOOPBACK), 0};
  const UniqueFd socket(port::open_udp_socket(any_port, 0, &error));
  ASSERT_TRUE(socket);
  sockaddr_in bound{};
  socklen_t size = sizeof bound;
  ASSERT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size), 0);
  const auto holders = udp_holders(ntohs(bound.sin_port), "/proc");
  ASSERT_EQ(holders.size(), 1u);
  EXPECT_EQ(holders[0].pid, ::getpid());
  EXPECT_EQ(holders[0].address, any_port.address);
  EXPECT_FALSE(holders[0].any_address);
  EXPECT_FALSE(holders[0].is_ferrys);
}

}  // namespace
}  // namespace ferry::cli::doctor
