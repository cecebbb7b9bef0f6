#include "port/port.h"
#include "transport/script.h"

namespace ferry::transport::test {
namespace {

constexpr std::int64_t kPacket = port::window_charge(kMtu + 64);

TEST(Window, BoundsWhatIsInFlightAndAsksForAnAckAtItsEdge) {
  Script s;
  s.host.window_bytes = 3 * kPacket;
  s.post(send(1, 5 * kMtu));
  s.expect(Opcode::kRcSendFirst, 100);
  EXPECT_FALSE(s.expect(Opcode::kRcSendMiddle, 101).header.ack_request);
  EXPECT_TRUE(s.expect(Opcode::kRcSendMiddle, 102).header.ack_request);
  EXPECT_EQ(s.host.accounted(), 3 * kPacket);
  EXPECT_FALSE(s.qp->has_work());
  EXPECT_TRUE(s.qp->waits_for_window());
  s.inject(ack(102));
  s.expect_requests(103, 104);
  EXPECT_EQ(s.host.accounted(), 2 * kPacket);
  s.inject(ack(104));
  s.expect_completion(1);
}

TEST(Window, OnePacketMayAlwaysBeUnderWay) {
  Script s;
  s.host.window_bytes = -5000;  // others have filled it
  s.post(send(1, 2 * kMtu));
  EXPECT_TRUE(s.expect(Opcode::kRcSendFirst, 100).header.ack_request);
  s.expect_silence();
  s.inject(ack(100));
  s.expect_requests(101, 101);
  s.inject(ack(101));
  s.expect_completion(1);
}

TEST(Window, ReadCountsItsResponses) {
  Script s;
  s.post(read(1, 3 * kMtu));
  s.expect_requests(100, 100);
  EXPECT_EQ(s.host.accounted(), 3 * kPacket);
  s.inject(packet(Opcode::kRcReadResponseFirst, 100));
  EXPECT_EQ(s.host.accounted(), 2 * kPacket);
  s.advance(milliseconds(1));  // the probe asks for the rest, and for nothing more
  s.expect(Opcode::kRcReadRequest, 101);
  EXPECT_EQ(s.host.accounted(), 2 * kPacket);
  s.inject(packet(Opcode::kRcReadResponseFirst, 101), packet(Opcode::kRcReadResponseLast, 102));
  s.expect_completion(1);
}

TEST(Window, IsHalvedByANakAndTwoPacketsAfterATimeout) {
  Script s;
  s.post(send(1, 64 * kMtu));
  s.expect_requests(100, 163);
  s.inject(nak(100, syndrome::kNakPsnSequence));
  s.expect_requests(100, 131);
  s.expect_silence();
  s.advance(milliseconds(2 * 68));  // the NAK was the first try
  s.expect_requests(100, 101);
  s.expect_silence();
  s.inject(ack(101));  // and it doubles again
  s.expect_requests(102, 105);
  s.inject(ack(105));
  s.expect_requests(106, 113);
  s.check_accounting = false;
}

TEST(Window, ANakLeavesEightPackets) {
  Script s;
  s.post(send(1, 12 * kMtu));
  s.expect_requests(100, 111);
  s.inject(nak(100, syndrome::kNakPsnSequence));
  s.expect_requests(100, 107);
  s.expect_silence();
  s.inject(ack(107));
  s.expect_requests(108, 111);
  s.inject(ack(111));
  s.expect_completion(1);
}

// One that a timeout has made smaller is not enlarged.
TEST(Window, ANakLeavesASmallerOneAlone) {
  Script s;
  s.post(send(1, 64 * kMtu));
  s.expect_requests(100, 163);
  s.advance(milliseconds(68));
  s.expect_requests(100, 101);
  s.inject(nak(100, syndrome::kNakPsnSequence));
  s.expect_requests(100, 101);
  s.expect_silence();
  s.check_accounting = false;
}

// Halved again from those two packets, the threshold would make the flow grow by one packet per
// round trip for ever after.
TEST(Window, DoublesAfterTimeoutsInARow) {
  Script s;
  s.post(send(1, 64 * kMtu));
  s.expect_requests(100, 163);
  for (const int times : {1, 2, 4}) {
    s.advance(milliseconds(times * 68));
    s.expect_requests(100, 101);
    s.expect_silence();
  }
  s.inject(ack(101));
  s.expect_requests(102, 105);
  s.inject(ack(105));
  s.expect_requests(106, 113);
  s.inject(ack(113));
  s.expect_requests(114, 129);
  s.check_accounting = false;
}

TEST(Window, AFullPortLosesNothing) {
  Script s;
  int room = 2;
  s.host.port_is_full = [&] { return room-- <= 0; };
  s.post(send(1, 4 * kMtu));
  s.expect_requests(100, 101);
  EXPECT_TRUE(s.qp->has_work());
  room = 100;
  s.run();
  s.expect_requests(102, 103);
  s.inject(ack(103));
  s.expect_completion(1);
}

TEST(Window, BudgetIsKept) {
  Script s;
  s.inject(read_request(500, kRemote, 4 * kMtu));
  s.forget_output();
  Request request = send(1, 10 * kMtu);
  SendRequest copy = request.request;
  copy.sges = request.sges.data();
  ASSERT_EQ(s.qp->post_send(copy), 0);
  EXPECT_EQ(s.qp->transmit(s.now, 3), 3u);
  s.expect_requests(100, 102);
  EXPECT_TRUE(s.qp->has_work());
  EXPECT_EQ(s.qp->transmit(s.now, 100), 7u);
  s.expect_requests(103, 109);
  s.inject(ack(109));
  s.expect_completion(1);
}

}  // namespace
}  // namespace ferry::transport::test
