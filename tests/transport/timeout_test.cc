#include "transport/script.h"
#include "transport/timers.h"

namespace ferry::transport::test {
namespace {

constexpr Time kTimeout = Time(4096ll << 14);

TEST(Timeout, Codes) {
  EXPECT_EQ(ack_timeout(14), kTimeout);
  EXPECT_EQ(ack_timeout(0), kNever);
  EXPECT_EQ(ack_timeout(1), ack_timeout(8));
  EXPECT_EQ(ack_timeout(31), Time(4096ll << 31));
  EXPECT_EQ(ack_timeout(14, 1), 2 * kTimeout);
  EXPECT_EQ(ack_timeout(14, 2), 4 * kTimeout);
  EXPECT_EQ(ack_timeout(14, 7), 4 * kTimeout);
  EXPECT_EQ(ack_timeout(15, 2), 4 * kTimeout);
  EXPECT_EQ(ack_timeout(18, 2), ack_timeout(18));
  EXPECT_EQ(ack_timeout(0, 2), kNever);
}

TEST(Timeout, RepeatsFromTheFirstUnacknowledged) {
  Script s;
  s.post(send(1, 1));
  s.post(send(2, 2 * kMtu));
  s.expect_requests(100, 102);
  s.inject(ack(100));
  s.expect_completion(1);
  s.advance(kTimeout - Time(1));
  s.expect_requests(101, 101);  // the probes (tail_probe_test.cc)
  s.expect_requests(101, 101);
  s.expect_silence();
  s.advance(Time(1));
  s.expect_requests(101, 102);
  EXPECT_EQ(s.status().counters.timeouts, 1u);
  s.inject(ack(102));
  s.expect_completion(2);
  s.advance(seconds(10));
  s.expect_silence();
}

TEST(Timeout, RetryCountEnds) {
  Script s;  // retry_count 3
  s.post(send(1, 1));
  s.post(send(2, 1));
  for (const int times : {1, 2, 4, 4}) {
    s.expect_requests(100, 101);
    s.advance(times * kTimeout - Time(1));
    s.expect_silence();
    s.advance(Time(1));
  }
  s.expect_completion(1, Status::kRetryExceeded);
  s.expect_completion(2, Status::kFlush);
  EXPECT_EQ(int(s.qp->state()), int(QpState::kError));
  s.expect_silence();
}

TEST(Timeout, ProgressRestoresTheCountAndRestartsTheTimer) {
  ScriptOptions options;
  options.rts.retry_count = 1;
  Script s(options);
  s.post(send(1, 4 * kMtu));
  s.expect_requests(100, 103);
  for (std::uint32_t i = 100; i < 103; ++i) {
    s.advance(kTimeout - Time(1));
    s.inject(ack(i));
  }
  EXPECT_EQ(s.status().counters.timeouts, 0u);
  s.advance(kTimeout);
  s.expect_requests(103, 103);
  s.advance(2 * kTimeout);
  s.expect_completion(1, Status::kRetryExceeded);
}

TEST(Timeout, ReadResponsesAreProgress) {
  Script s;
  s.post(read(1, 3 * kMtu));
  s.expect_requests(100, 100);
  s.advance(kTimeout - Time(1));
  s.inject(packet(Opcode::kRcReadResponseFirst, 100));
  s.advance(kTimeout - Time(1));
  s.expect_silence();
  s.advance(Time(1));
  EXPECT_EQ(s.expect(Opcode::kRcReadRequest, 101).header.reth.dma_length, 2 * kMtu);
  s.inject(packet(Opcode::kRcReadResponseFirst, 101), packet(Opcode::kRcReadResponseLast, 102));
  s.expect_completion(1);
}

TEST(Timeout, ZeroIsNever) {
  ScriptOptions options;
  options.rts.timeout = 0;
  Script s(options);
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  EXPECT_EQ(s.qp->next_deadline(), kNever);
  s.advance(seconds(1000));
  s.expect_silence();
  s.inject(ack(100));
  s.expect_completion(1);
}

}  // namespace
}  // namespace ferry::transport::test
