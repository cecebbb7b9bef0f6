#include "host/proc/tcp_table.h"

#include <gtest/gtest.h>

#include <string>

namespace ferry::host {
namespace {

std::string line_of(const std::string& place, const std::string& peer, const std::string& state) {
  return "   3: " + place + " " + peer + " " + state +
         " 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 "
         "10 0";
}

TEST(TcpTable, AConnectionIsReadFromTheKernelsTable) {
  const auto socket = parse_tcp_socket(line_of("01004D0A:C350", "02004D0A:48A8", "01"));
  ASSERT_TRUE(socket);
  EXPECT_EQ(socket->address, "10.77.0.1");
  EXPECT_EQ(socket->peer_address, "10.77.0.2");
  EXPECT_EQ(socket->port, 50000);
  EXPECT_EQ(socket->peer_port, 18600);
  EXPECT_EQ(socket->inode, 4711u);
  EXPECT_FALSE(socket->listens);
  EXPECT_FALSE(socket->is_anywhere);
}

TEST(TcpTable, WildcardsAndLoopbackAreOnEveryHost) {
  const std::string none(32, '0'), mapped = "0000000000000000FFFF0000";
  for (const auto& address :
       {std::string("00000000"), std::string("0100007F"), none, none.substr(8) + "01000000",
        mapped + "00000000", mapped + "0100007F"}) {
    const auto socket = parse_tcp_socket(line_of(address + ":48A8", none + ":0000", "0A"));
    ASSERT_TRUE(socket) << address;
    EXPECT_TRUE(socket->listens);
    EXPECT_TRUE(socket->is_anywhere) << address;
  }
  for (const auto& address : {std::string("01004D0A"), mapped + "01004D0A",
                              "000080FE" + std::string(16, '0') + "01000000"}) {
    const auto socket = parse_tcp_socket(line_of(address + ":48A8", none + ":0000", "0A"));
    ASSERT_TRUE(socket) << address;
    EXPECT_FALSE(socket->is_anywhere) << socket->address;
  }
}

TEST(TcpTable, WhatIsNoSocketIsNone) {
  EXPECT_FALSE(parse_tcp_socket(""));
  EXPECT_FALSE(parse_tcp_socket(
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt"));
  EXPECT_FALSE(parse_tcp_socket(line_of("0100", "00000000:0000", "0A")));
}

}  // namespace
}  // namespace ferry::host
