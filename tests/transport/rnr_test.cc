#include "transport/script.h"
#include "transport/timers.h"

namespace ferry::transport::test {
namespace {

TEST(Rnr, TimerTable) {
  EXPECT_EQ(rnr_delay(0), microseconds(655360));
  EXPECT_EQ(rnr_delay(1), microseconds(10));
  EXPECT_EQ(rnr_delay(12), microseconds(640));
  EXPECT_EQ(rnr_delay(31), microseconds(491520));
  for (std::uint8_t code = 2; code < 32; ++code) EXPECT_GT(rnr_delay(code), rnr_delay(code - 1));
}

TEST(Rnr, NakWithoutAReceiveAndServiceAfterIt) {
  Script s;
  s.inject(packet(Opcode::kRcSendFirst, 500), packet(Opcode::kRcSendLast, 501).asks_ack());
  s.expect_nak(500, syndrome::kRnrNak | 12);
  s.inject(packet(Opcode::kRcSendFirst, 500));  // it comes again: still not ready
  s.expect_nak(500, syndrome::kRnrNak | 12);
  s.post_receive(3);
  s.qp->set_min_rnr_timer(20);
  s.inject(packet(Opcode::kRcSendFirst, 500), packet(Opcode::kRcSendLast, 501).asks_ack());
  s.expect_ack(501);
  s.expect_receive(3);
  s.inject(packet(Opcode::kRcSendOnly, 502, 1));
  s.expect_nak(502, syndrome::kRnrNak | 20);
}

TEST(Rnr, RequesterWaitsTheTimerAndRepeats) {
  Script s;
  s.post(send(1, 1));
  s.post(send(2, 1));
  s.expect_requests(100, 101);
  s.inject(nak(100, syndrome::kRnrNak | 14));  // 1.28 ms
  s.advance(microseconds(1279));
  s.expect_silence();
  s.post(send(3, 1));
  s.expect_silence();
  s.advance(microseconds(1));
  s.expect_requests(100, 102);
  s.inject(ack(102));
  for (int i = 1; i <= 3; ++i) s.expect_completion(i);
}

TEST(Rnr, AcknowledgesWhatIsBeforeIt) {
  Script s;
  s.post(send(1, 1));
  s.post(send(2, 1));
  s.expect_requests(100, 101);
  s.inject(nak(101, syndrome::kRnrNak | 1));
  s.expect_completion(1);
  s.advance(microseconds(10));
  s.expect_requests(101, 101);
  s.inject(ack(101));
  s.expect_completion(2);
}

TEST(Rnr, RetryCountEnds) {
  Script s;  // rnr_retry 3
  s.post(send(1, 1));
  s.post(send(2, 1));
  for (int i = 0; i < 3; ++i) {
    s.expect_requests(100, 101);
    s.inject(nak(100, syndrome::kRnrNak | 1));
    s.advance(microseconds(10));
  }
  s.expect_requests(100, 101);
  s.inject(nak(100, syndrome::kRnrNak | 1));
  s.expect_completion(1, Status::kRnrRetryExceeded);
  s.expect_completion(2, Status::kFlush);
}

TEST(Rnr, SevenIsForEver) {
  ScriptOptions options;
  options.rts.rnr_retry = 7;
  Script s(options);
  s.post(send(1, 1));
  for (int i = 0; i < 50; ++i) {
    s.expect_requests(100, 100);
    s.inject(nak(100, syndrome::kRnrNak | 1));
    s.advance(microseconds(10));
  }
  s.expect_requests(100, 100);
  s.inject(ack(100));
  s.expect_completion(1);
}

TEST(Rnr, ProgressRestoresTheCount) {
  ScriptOptions options;
  options.rts.rnr_retry = 1;
  Script s(options);
  for (std::uint32_t i = 0; i < 4; ++i) {
    s.post(send(i, 1));
    s.expect_requests(100 + i, 100 + i);
    s.inject(nak(100 + i, syndrome::kRnrNak | 1));
    s.advance(microseconds(10));
    s.expect_requests(100 + i, 100 + i);
    s.inject(ack(100 + i));
    s.expect_completion(i);
  }
}

// A receiver that is slow on a lossy path must not use up the retries meant for a dead one.
TEST(Rnr, IsASignOfLife) {
  ScriptOptions options;
  options.rts.retry_count = 1;
  options.rts.rnr_retry = 7;
  Script s(options);
  s.post(send(1, 1));
  for (int i = 0; i < 4; ++i) {
    s.expect_requests(100, 100);
    s.advance(milliseconds(68));  // a timeout
    s.expect_requests(100, 100);
    s.inject(nak(100, syndrome::kRnrNak | 1));
    s.advance(microseconds(10));
  }
  s.expect_requests(100, 100);
  s.inject(ack(100));
  s.expect_completion(1);
}

TEST(Rnr, DuplicateNakCostsNothing) {
  Script s;
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.inject(nak(100, syndrome::kRnrNak | 1), nak(100, syndrome::kRnrNak | 1),
           nak(100, syndrome::kRnrNak | 1), nak(100, syndrome::kRnrNak | 1),
           nak(100, syndrome::kRnrNak | 1));
  s.advance(microseconds(10));
  s.expect_requests(100, 100);
  s.inject(ack(100));
  s.expect_completion(1);
}

}  // namespace
}  // namespace ferry::transport::test
