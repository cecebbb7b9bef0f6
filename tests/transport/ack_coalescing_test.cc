#include "port/port.h"
#include "transport/script.h"

namespace ferry::transport::test {
namespace {

TEST(AckCoalescing, OneForABatch) {
  Script s;
  for (int i = 0; i < 4; ++i) s.post_receive(i);
  s.inject(packet(Opcode::kRcSendOnly, 500, 1).asks_ack(),
           packet(Opcode::kRcSendOnly, 501, 1).asks_ack(),
           packet(Opcode::kRcSendOnly, 502, 1).asks_ack());
  EXPECT_EQ(s.expect_ack(502).header.aeth.msn, 3u);
  for (int i = 0; i < 3; ++i) s.expect_receive(i);
}

TEST(AckCoalescing, NoneUnlessAskedFor) {
  Script s;
  s.post_receive(1);
  s.inject(packet(Opcode::kRcSendFirst, 500), packet(Opcode::kRcSendMiddle, 501));
  s.expect_silence();
  s.inject(packet(Opcode::kRcSendLast, 502, 1).asks_ack());
  s.expect_ack(502);
  s.expect_receive(1);
}

TEST(AckCoalescing, OneAcknowledgesManyRequests) {
  Script s;
  for (int i = 1; i <= 5; ++i) s.post(send(i, 2 * kMtu));
  s.expect_requests(100, 109);
  s.inject(ack(106));  // three and a half messages
  for (int i = 1; i <= 3; ++i) s.expect_completion(i);
  EXPECT_EQ(s.status().unacked_psns, 3u);
  s.inject(ack(109));
  s.expect_completion(4);
  s.expect_completion(5);
}

TEST(AckCoalescing, LongMessagesAskOnTheWay) {
  Script s;
  s.post(send(1, 200 * kMtu));
  for (std::uint32_t i = 0; i < 200; ++i) {
    const Out out = s.expect(i == 0     ? Opcode::kRcSendFirst
                             : i == 199 ? Opcode::kRcSendLast
                                        : Opcode::kRcSendMiddle,
                             100 + i);
    EXPECT_EQ(out.header.ack_request, i % 64 == 63 || i == 199) << i;
  }
  s.inject(ack(299));
  s.expect_completion(1);
}

TEST(AckCoalescing, LongMessagesAskForEachQuarterOfTheWindow) {
  Script s;
  s.host.window_bytes = 32 * static_cast<std::int64_t>(port::window_charge(64) + kMtu);
  s.post(send(1, 32 * kMtu));
  unsigned asked = 0, since = 0;
  for (std::uint32_t i = 0; i < 32; ++i) {
    const Out out = s.expect(i == 0    ? Opcode::kRcSendFirst
                             : i == 31 ? Opcode::kRcSendLast
                                       : Opcode::kRcSendMiddle,
                             100 + i);
    since = out.header.ack_request ? 0 : since + 1;
    EXPECT_LE(since, 8u) << i;
    asked += out.header.ack_request;
  }
  EXPECT_LE(asked, 5u);
  s.inject(ack(131));
  s.expect_completion(1);
}

TEST(AckCoalescing, GhostsAreIgnored) {
  Script s;
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.inject(ack(101), ack(5000), nak(200, syndrome::kNakPsnSequence));
  s.expect_silence();
  s.inject(ack(100), ack(100), ack(99));
  s.expect_completion(1);
  s.inject(nak(100, syndrome::kNakRemoteAccess));
  EXPECT_EQ(int(s.qp->state()), int(QpState::kRts));
}

}  // namespace
}  // namespace ferry::transport::test
