#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <fstream>
#include <memory>

#include "gsi/local.h"
#include "gsi/packet.h"
#include "port/udp_port.h"
#include "wire/icrc.h"

namespace ferry::gsi {
namespace {

const port::Endpoint kFrom{port::Address::from_ipv4(0x0A000001), 40000};
const port::Endpoint kTo{port::Address::from_ipv4(0x0A000002), 4791};

cm::Mad request(cm::ServiceId service) {
  cm::Req req;
  req.local_id = 0x00050001;
  req.service_id = service;
  return cm::encode({7, req});
}

TEST(Packet, GoesFromQp1ToQp1) {
  const cm::Mad mad = request(1);
  auto packet = make_packet(mad, kFrom, kTo, 0x1000005);
  EXPECT_TRUE(wire::verify(packet, kFrom, kTo, 0));
  const auto parsed = wire::parse(packet);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->header.opcode, wire::Opcode::kUdSendOnly);
  EXPECT_EQ(parsed->header.dest_qpn, 1u);
  EXPECT_EQ(parsed->header.deth.source_qpn, 1u);
  EXPECT_EQ(parsed->header.deth.qkey, 0x80010000u);
  EXPECT_EQ(parsed->header.psn, 5u);  // 24 bits
  EXPECT_EQ(mad_of(*parsed), mad);
}

TEST(Packet, OthersAreNotTaken) {
  auto packet = make_packet(request(1), kFrom, kTo, 0);
  auto parsed = *wire::parse(packet);
  for (int what = 0; what < 4; ++what) {
    auto other = parsed;
    if (what == 0) other.header.deth.qkey = 0x11111111;
    if (what == 1) other.header.dest_qpn = 2;
    if (what == 2) other.header.opcode = wire::Opcode::kUdSendOnlyImm;
    if (what == 3) other.payload = other.payload.first(252);
    EXPECT_FALSE(mad_of(other)) << what;
  }
}

// Names of the test's own: others on this machine may have theirs.
struct Local : testing::Test {
  const cm::ServiceId service = 0xFE00000000000000u | static_cast<unsigned>(::getpid());
  const port::Address here = port::Address::from_ipv4(0x7F000001);
  std::vector<int> open;
  int receiver(const std::string& name) {
    int error = 0;
    open.push_back(open_receiver(name, &error));
    EXPECT_GE(open.back(), 0);
    return open.back();
  }
  ~Local() override {
    for (const int descriptor : open) ::close(descriptor);
  }
};

TEST_F(Local, RequestsGoToWhoListens) {
  EXPECT_FALSE(pass_on(request(service), kFrom.address, here));
  const int any = receiver(listener_name_any(service));
  ASSERT_TRUE(pass_on(request(service), kFrom.address, here));
  const auto datagram = receive(any);
  ASSERT_TRUE(datagram);
  EXPECT_EQ(datagram->from, kFrom.address);
  EXPECT_EQ(datagram->to, here);
  EXPECT_EQ(datagram->mad, request(service));
  EXPECT_FALSE(receive(any));
  // Who listens at the very address comes first.
  const int exact = receiver(listener_name(here, service));
  ASSERT_TRUE(pass_on(request(service), kFrom.address, here));
  EXPECT_FALSE(receive(any));
  EXPECT_TRUE(receive(exact));
  EXPECT_FALSE(pass_on(request(service + (1ull << 40)), kFrom.address, here));
}

TEST_F(Local, AnswersGoToTheirProcess) {
  const auto tag = static_cast<std::uint16_t>(0x8000 | (::getpid() & 0x7FFF));
  const cm::Mad mad = cm::encode({7, cm::Dreq{1, cm::CommId{tag} << 16 | 3, 0, {}}});
  EXPECT_FALSE(pass_on(mad, kFrom.address, here));
  const int process = receiver(process_name(tag));
  ASSERT_TRUE(pass_on(mad, kFrom.address, here));
  EXPECT_TRUE(receive(process));
}

TEST_F(Local, ANameIsOneProcesssAlone) {
  receiver(listener_name_any(service));
  EXPECT_TRUE(exists(listener_name_any(service)));
  EXPECT_FALSE(exists(listener_name(here, service)));
  int error = 0;
  EXPECT_EQ(open_receiver(listener_name_any(service), &error), -1);
  EXPECT_EQ(error, EADDRINUSE);
  ::close(open.back());
  open.pop_back();
  EXPECT_FALSE(exists(listener_name_any(service)));
}

TEST_F(Local, AFullQueueIsALossAndNotAbsence) {
  int holds = 0;
  std::ifstream("/proc/sys/net/unix/max_dgram_qlen") >> holds;
  ASSERT_GT(holds, 0);
  const int any = receiver(listener_name_any(service));
  for (int i = 0; i < holds + 20; ++i) {
    EXPECT_TRUE(pass_on(request(service), kFrom.address, here));
  }
  int received = 0;
  while (receive(any)) ++received;
  EXPECT_GE(received, holds);
  EXPECT_LT(received, holds + 20);
}

// A peer that sends messages for nobody, and what it is answered. Its address is this process's
// own.
struct Nobody : Local {
  const port::Address peer =
      port::Address::from_ipv4(0x7F800000u | (static_cast<unsigned>(::getpid()) & 0x7FFFFF));
  int error = 0;
  std::unique_ptr<port::UdpPort> port = port::UdpPort::bind(peer, 0, &error);
  const cm::Mad dreq = cm::encode({7, cm::Dreq{1, 0, 0, {}}});  // ID 0 is nobody's

  std::string answer() {
    pollfd p{port->descriptor(), POLLIN, 0};
    port::Received received[1];
    if (::poll(&p, 1, 20000) != 1 || port->receive(received) != 1) return "none";
    const auto packet = wire::parse(received[0].bytes);
    const auto mad = packet ? mad_of(*packet) : std::nullopt;
    const auto message = mad ? cm::parse(*mad) : std::nullopt;
    if (!message) return "malformed";
    if (std::holds_alternative<cm::Drep>(message->body)) return "DREP";
    if (std::holds_alternative<cm::Rej>(message->body)) return "REJ";
    return "another";
  }
};

TEST_F(Nobody, IsAnsweredForByTheHolder) {
  ASSERT_TRUE(port) << error;
  take(dreq, peer, here);
  EXPECT_EQ(answer(), "DREP");
  take(request(service), peer, here);
  EXPECT_EQ(answer(), "REJ");
}

TEST_F(Nobody, MayBeAConnectionOnAMove) {
  ASSERT_TRUE(port) << error;
  take_for_moved(dreq, peer, here);
  take_for_moved(request(service), peer, here);
  EXPECT_EQ(answer(), "REJ");  // of the two
}

}  // namespace
}  // namespace ferry::gsi
