#include "wire/envelope.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "hex.h"
#include "port/sim_link.h"
#include "port/slot.h"
#include "wire/icrc.h"

// What comes to UDP port 4791 for a QP of another slot of the address.
namespace ferry::wire {
namespace {

using Bytes = std::vector<std::byte>;

const port::Address kUs = port::Address::from_ipv4(0x0A4E0101);
const port::Address kNic = port::Address::from_ipv4(0x0A4E0202);
constexpr std::uint32_t kSlot = 5;
constexpr std::uint32_t kQpn = kSlot << port::kSlotIndexBits | 0x123;

port::Endpoint at(const port::Address& address, std::uint32_t slot) {
  return {address, port::udp_port_of_slot(slot)};
}

Bytes make(Opcode opcode, std::uint32_t qpn, std::size_t payload) {
  Header header;
  header.opcode = opcode;
  header.dest_qpn = qpn;
  header.psn = 7;
  Bytes bytes(packet_size(opcode, payload));
  encode_header(header, payload, bytes);
  for (std::size_t i = 0; i < payload; ++i) bytes[header_size(opcode) + i] = std::byte(i);
  return bytes;
}

struct EnvelopeTest : testing::Test {
  port::SimNetwork network{1};
  std::unique_ptr<port::SimPort> holder = network.attach(at(kUs, 0));
  std::unique_ptr<port::SimPort> slot = network.attach(at(kUs, kSlot));
  const port::Endpoint nic{kNic, 0xC123};  // the source port of a NIC is arbitrary

  static bool pass(port::Port& port, const Bytes& bytes, const port::Endpoint& from) {
    const auto packet = parse(bytes);
    return packet && pass_on(port, *packet, bytes, from);
  }
  // What arrives at the slot's port; empty: nothing.
  Bytes arrives() {
    holder->flush();
    network.advance_to(network.now() + std::chrono::milliseconds(1));
    std::array<port::Received, 4> received;
    if (slot->receive(received) == 0) return {};
    EXPECT_EQ(received[0].from, at(kUs, 0));
    EXPECT_TRUE(verify(received[0].bytes, received[0].from, at(kUs, kSlot), 0));
    return {received[0].bytes.begin(), received[0].bytes.end()};
  }
  Bytes envelope(const Bytes& inner) {
    EXPECT_TRUE(pass(*holder, inner, nic));
    return arrives();
  }
  // What a stranger may have made: head and payload as given.
  static Bytes forge(std::span<const std::byte> payload,
                     std::uint32_t qpn = kSlot << port::kSlotIndexBits) {
    Bytes bytes = make(Opcode::kEnvelope, qpn, payload.size());
    std::copy(payload.begin(), payload.end(), bytes.begin() + kBthSize);
    return bytes;
  }
  static Bytes head(const port::Endpoint& from) {
    Bytes bytes(20);
    std::memcpy(bytes.data(), from.address.bytes.data(), 16);
    bytes[16] = std::byte(from.udp_port >> 8);
    bytes[17] = std::byte(from.udp_port & 0xFF);
    return bytes;
  }
  static Bytes join(Bytes a, const Bytes& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  static bool opens(const Bytes& bytes, const port::Endpoint& from, const port::Endpoint& local) {
    const auto packet = parse(bytes);
    return packet && open_envelope(*packet, from, local);
  }
  bool opens_here(const Bytes& bytes) const { return opens(bytes, at(kUs, 0), at(kUs, kSlot)); }
};

TEST_F(EnvelopeTest, BringsThePacketAndWhereItCameFrom) {
  for (const std::size_t length : {0u, 1u, 4u, 1023u, 4096u}) {
    const Bytes inner = make(Opcode::kRcSendOnly, kQpn, length);
    const Bytes outer = envelope(inner);
    ASSERT_FALSE(outer.empty());
    const auto passed = open_envelope(*parse(outer), at(kUs, 0), at(kUs, kSlot));
    ASSERT_TRUE(passed);
    EXPECT_EQ(passed->from, nic);
    EXPECT_EQ(passed->packet.header.opcode, Opcode::kRcSendOnly);
    EXPECT_EQ(passed->packet.header.dest_qpn, kQpn);
    EXPECT_EQ(passed->packet.header.psn, 7u);
    ASSERT_EQ(passed->packet.payload.size(), length);
    EXPECT_EQ(std::memcmp(passed->packet.payload.data(), inner.data() + kBthSize, length), 0);
  }
}

TEST_F(EnvelopeTest, ByteForByte) {
  const Bytes inner = make(Opcode::kRcSendOnly, kQpn, 4);
  Bytes outer = envelope(inner);
  ASSERT_GT(outer.size(), 4u);
  outer.resize(outer.size() - 4);  // ICRC
  EXPECT_EQ(outer, from_hex("c1 40 ffff 00 014000 00 000000"
                            "00000000000000000000ffff0a4e0202 c123 0000"
                            "04 40 ffff 00 014123 00 000007 00010203 00000000"));
}

TEST_F(EnvelopeTest, OnlyTheHolderOfTheRocePortPassesOn) {
  const Bytes inner = make(Opcode::kRcSendOnly, kQpn, 4);
  const auto other = network.attach(at(kUs, 6));
  EXPECT_FALSE(pass(*other, inner, nic));
  EXPECT_TRUE(pass(*holder, inner, nic));
}

TEST_F(EnvelopeTest, WhatIsOfNoOtherSlotIsNotPassedOn) {
  EXPECT_FALSE(pass(*holder, make(Opcode::kRcSendOnly, 0x123, 4), nic));
  EXPECT_FALSE(pass(*holder, make(Opcode::kUdSendOnly, 0xFFFFFF, 4), nic));  // multicast
  EXPECT_FALSE(pass(*holder, make(Opcode::kRcSendOnly, 0xFFC000, 4), nic));
}

// They know the slots, and go there.
TEST_F(EnvelopeTest, FerrysOwnPacketsAreNotPassedOn) {
  EXPECT_FALSE(pass(*holder, make(Opcode::kMigration, kQpn, 80), nic));
  EXPECT_FALSE(pass(*holder, make(Opcode::kMovedSendOnly, kQpn, 4), nic));
  const Bytes packet = make(Opcode::kMigration, kQpn, 80);
  EXPECT_FALSE(opens_here(forge(join(head(nic), packet))));
}

TEST_F(EnvelopeTest, NothingIsPassedOnTwice) {
  const Bytes outer = envelope(make(Opcode::kRcSendOnly, kQpn, 4));
  EXPECT_FALSE(pass(*holder, outer, at(kUs, 0)));
  EXPECT_FALSE(opens_here(forge(join(head(nic), outer))));
}

TEST_F(EnvelopeTest, AFullSocketLosesIt) {
  holder->set_full(true);
  EXPECT_FALSE(pass(*holder, make(Opcode::kRcSendOnly, kQpn, 4), nic));
}

// Who sends from there holds the port, and that is the kernel's word.
TEST_F(EnvelopeTest, IsTakenFromTheHolderOfTheSameAddressAlone) {
  const Bytes outer = envelope(make(Opcode::kRcSendOnly, kQpn, 4));
  EXPECT_TRUE(opens_here(outer));
  EXPECT_FALSE(opens(outer, nic, at(kUs, kSlot)));
  EXPECT_FALSE(opens(outer, at(kNic, 0), at(kUs, kSlot)));
  EXPECT_FALSE(opens(outer, at(kUs, 1), at(kUs, kSlot)));
  EXPECT_FALSE(opens(outer, {kUs, 40000}, at(kUs, kSlot)));
}

TEST_F(EnvelopeTest, IsTakenByTheSlotThatItIsForAlone) {
  const Bytes inner = make(Opcode::kRcSendOnly, kQpn, 4);
  const Bytes outer = envelope(inner);
  EXPECT_FALSE(opens(outer, at(kUs, 0), at(kUs, 0)));
  EXPECT_FALSE(opens(outer, at(kUs, 0), at(kUs, kSlot + 1)));
  EXPECT_FALSE(opens(outer, at(kUs, 0), {kUs, 40000}));
  // Outside one slot, inside another.
  const Bytes other = make(Opcode::kRcSendOnly, port::make_qpn(kSlot + 1, 0x123), 4);
  EXPECT_FALSE(opens_here(forge(join(head(nic), other))));
  // Not to the index that no QP has.
  EXPECT_FALSE(opens_here(forge(join(head(nic), inner), kQpn)));
}

TEST_F(EnvelopeTest, CutOffAtEveryByteItIsNone) {
  const Bytes whole = join(head(nic), make(Opcode::kRcWriteOnly, kQpn, 0));
  EXPECT_TRUE(opens_here(forge(whole)));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(opens_here(forge(std::span(whole).first(size)))) << size;
  }
}

TEST_F(EnvelopeTest, NamesASourceOfItsOwnFamily) {
  const Bytes inner = make(Opcode::kRcSendOnly, kQpn, 4);
  port::Address ipv6;
  ipv6.bytes[0] = std::byte{0xFD};
  EXPECT_FALSE(opens_here(forge(join(head({ipv6, 1}), inner))));
  const auto group = port::Address::from_ipv4(0xEF000001);
  EXPECT_FALSE(opens_here(forge(join(head({group, 1}), inner))));
  EXPECT_TRUE(opens_here(forge(join(head({kNic, 1}), inner))));
}

}  // namespace
}  // namespace ferry::wire
