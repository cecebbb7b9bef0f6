#include "host/standin/standard_peers.h"

#include <gtest/gtest.h>

#include "port/slot.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;

constexpr std::uint8_t kUnknown = 0, kFerry = 1, kUnmodified = 2;
const port::Endpoint kStandardHere{port::Address::from_ipv4(0x0A4E0101), port::kRoceUdpPort};

device::QpStatus qp(std::uint8_t peer_class, device::PeerRetries retries = {14, 7, 7, 0},
                    std::uint8_t type = IBV_QPT_RC) {
  device::QpStatus status;
  status.qpn = 0x123;
  status.type = type;
  status.state = IBV_QPS_RTS;
  status.peer_class = peer_class;
  status.peer_retries = retries;
  status.local = kStandardHere;
  status.peer = {port::Address::from_ipv4(0x0A4E0201), port::kRoceUdpPort};
  return status;
}

const Waiting kSecond{milliseconds(1000), milliseconds(300)};

TEST(StandardPeers, AreThoseThatDoNotAnswerHello) {
  auto closed = qp(kUnmodified);
  closed.state = IBV_QPS_ERR;
  const auto peers = peers_of({{"ferry0",
                                "rdma0",
                                {qp(kFerry), qp(kUnknown), qp(kUnmodified), closed,
                                 qp(kUnknown, {}, IBV_QPT_UD), qp(kUnmodified, {}, IBV_QPT_UC)},
                                {}}});
  EXPECT_EQ(peers.undecided.size(), 1u);
  EXPECT_EQ(peers.standard.size(), 2u);
}

TEST(StandardPeers, WhoRepeatsForEverIsPatient) {
  EXPECT_EQ(impatient({qp(kUnmodified, {14, 7, 7, 0}), qp(kUnmodified, {0, 0, 0, 1})}, kSecond),
            "");
  EXPECT_EQ(impatient({}, kSecond), "");
}

TEST(StandardPeers, TheLineNamesThePeerAndTheFigures) {
  EXPECT_EQ(impatient({qp(kUnmodified), qp(kUnmodified, {14, 7, 1, 1})}, kSecond),
            "peer 10.78.2.1 of QP 0x000123 speaks no migration messages and gives up after 655 ms "
            "(rnr_retry 1 x 655 ms, agreed on over rdma_cm), and the move may keep it waiting for "
            "1000 ms; give its QP more, or move with --force");
  // One RNR NAK is too many: it would get none, and gives up in silence.
  EXPECT_EQ(impatient({qp(kUnmodified, {14, 7, 0, 0})}, kSecond),
            "peer 10.78.2.1 of QP 0x000123 speaks no migration messages and gives up after 536 ms "
            "(timeout 67 ms x (retry_cnt 7 + 1), assumed to be those of this program), and the "
            "move may keep it waiting for 1000 ms; give its QP more, or move with --force");
  // RNR NAKs without end, but not the moment in which nobody answers.
  EXPECT_EQ(impatient({qp(kUnmodified, {14, 1, 7, 1})}, kSecond),
            "peer 10.78.2.1 of QP 0x000123 speaks no migration messages and gives up after 134 ms "
            "(timeout 67 ms x (retry_cnt 1 + 1), agreed on over rdma_cm), and the move may leave "
            "it without an answer for 300 ms; give its QP more, or move with --force");
}

TEST(StandardPeers, WhoSendsNoRequestsNeedsNoPatience) {
  const device::PeerRetries none{14, 0, 0, 1};
  EXPECT_EQ(impatient({qp(kUnmodified, none, IBV_QPT_UC), qp(kUnmodified, none, IBV_QPT_XRC_SEND)},
                      kSecond),
            "");
  EXPECT_NE(impatient({qp(kUnmodified, none, IBV_QPT_XRC_RECV)}, kSecond), "");
}

TEST(StandardPeers, MoreMemoryTakesLonger) {
  EXPECT_LT(expected_waiting(0).blackout, milliseconds(1000));
  EXPECT_EQ(expected_waiting(1u << 30).blackout - expected_waiting(0).blackout, milliseconds(8192));
  EXPECT_EQ(expected_waiting(1u << 30).silence, expected_waiting(0).silence);
}

TEST(StandardPeers, KeepsThePlacesThatTheyKnow) {
  rnic::Slot here, other;
  here.local = kStandardHere;
  other.local = {kStandardHere.address, port::udp_port_of_slot(3)};
  other.slot = 3;
  const auto kept = places_to_keep(
      {{"ferry0", "rdma0", {qp(kFerry)}, rnic::to_parcel({other})},
       {"ferry1", "rdma1", {qp(kFerry), qp(kUnmodified)}, rnic::to_parcel({other, here})}});
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].netdev, "rdma1");
  ASSERT_EQ(kept[0].slots.size(), 1u);
  EXPECT_EQ(kept[0].slots[0].local, kStandardHere);
}

}  // namespace
}  // namespace ferry::host
