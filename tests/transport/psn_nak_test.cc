#include "transport/script.h"
#include "transport/timers.h"

namespace ferry::transport::test {
namespace {

TEST(PsnNak, IsGivenOncePerGap) {
  Script s;
  s.post_receive(1);
  s.inject(packet(Opcode::kRcSendMiddle, 501), packet(Opcode::kRcSendLast, 502).asks_ack());
  s.expect_nak(500, syndrome::kNakPsnSequence);
  s.inject(packet(Opcode::kRcSendLast, 502).asks_ack());
  s.expect_silence();
  s.inject(packet(Opcode::kRcSendFirst, 500));
  s.inject(packet(Opcode::kRcSendLast, 502).asks_ack());  // a new gap
  s.expect_nak(501, syndrome::kNakPsnSequence);
  s.inject(packet(Opcode::kRcSendMiddle, 501), packet(Opcode::kRcSendLast, 502).asks_ack());
  s.expect_ack(502);
  s.expect_receive(1);
}

TEST(PsnNak, IsTakenBackWhenTheGapClosesInTime) {
  Script s;
  s.post_receive(1);
  s.post_receive(2);
  s.inject(packet(Opcode::kRcSendOnly, 501, 1).asks_ack(),
           packet(Opcode::kRcSendOnly, 500, 1).asks_ack(),
           packet(Opcode::kRcSendOnly, 501, 1).asks_ack());
  s.expect_ack(501);
  s.expect_receive(1);
  s.expect_receive(2);
}

TEST(PsnNak, MakesTheRequesterGoBackN) {
  Script s;
  s.post(send(1, 1));
  s.post(send(2, 3 * kMtu));
  s.post(write(3, 1));
  s.expect_requests(100, 104);
  s.inject(nak(102, syndrome::kNakPsnSequence));
  s.expect_completion(1);  // it acknowledges what is before it
  s.expect(Opcode::kRcSendMiddle, 102);
  s.expect(Opcode::kRcSendLast, 103);
  s.expect(Opcode::kRcWriteOnly, 104);
  EXPECT_EQ(s.status().counters.retransmitted_packets, 3u);
  s.inject(ack(104));
  s.expect_completion(2);
  s.expect_completion(3);
}

TEST(PsnNak, AtTheSamePsnCostsRetries) {
  ScriptOptions options;
  options.rts.retry_count = 2;
  Script s(options);
  const Time timeout = ack_timeout(options.rts.timeout);
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  // Many losses in one moment cost one retry.
  for (int i = 0; i < 5; ++i) {
    s.inject(nak(100, syndrome::kNakPsnSequence));
    s.expect_requests(100, 100);
  }
  s.advance(timeout - Time(1));
  s.inject(nak(100, syndrome::kNakPsnSequence));
  s.expect_requests(100, 100);
  s.advance(Time(1));
  s.inject(nak(100, syndrome::kNakPsnSequence));  // the second retry
  s.expect_requests(100, 100);
  s.advance(timeout - Time(1));
  s.inject(nak(100, syndrome::kNakPsnSequence));
  s.expect_requests(100, 100);
  s.advance(Time(1));
  s.inject(nak(100, syndrome::kNakPsnSequence));
  s.expect_completion(1, Status::kRetryExceeded);
}

TEST(PsnNak, CostsARetryEachWithoutATimeout) {
  ScriptOptions options;
  options.rts.retry_count = 2;
  options.rts.timeout = 0;
  Script s(options);
  s.post(send(1, 1));
  for (int i = 0; i < 3; ++i) {
    s.expect_requests(100, 100);
    s.inject(nak(100, syndrome::kNakPsnSequence));
  }
  s.expect_completion(1, Status::kRetryExceeded);
}

TEST(PsnNak, BeforeAnUnansweredReadMakesTheReadComeAgain) {
  Script s;
  s.post(read(1, 10));
  s.post(send(2, 1));
  s.post(send(3, 1));
  s.expect_requests(100, 102);
  s.inject(nak(101, syndrome::kNakPsnSequence));  // the READ was executed, its response lost
  s.expect(Opcode::kRcReadRequest, 100);
  s.expect_requests(101, 102);
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 10), ack(102));
  for (int i = 1; i <= 3; ++i) s.expect_completion(i);
}

TEST(PsnNak, WaitsBehindReadResponses) {
  Script s;
  s.inject(read_request(500, kRemote, 10), packet(Opcode::kRcSendOnly, 502, 1));
  s.expect(Opcode::kRcReadResponseOnly, 500);
  s.expect_nak(501, syndrome::kNakPsnSequence);
}

}  // namespace
}  // namespace ferry::transport::test
