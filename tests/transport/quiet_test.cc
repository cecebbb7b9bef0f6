#include "port/port.h"
#include "transport/script.h"
#include "transport/streams/tail_probe.h"

// Messages that no completion waits for: the peer is not asked to acknowledge each of them.
namespace ferry::transport::test {
namespace {

constexpr Time kDelay = TailProbe::kMin;  // scripted peers answer at once

ScriptOptions with_send_queue(std::uint32_t wqes) {
  ScriptOptions options;
  options.limits.max_send_wr = wqes;
  return options;
}

// A request and its answer: from now on there is a round trip to go by.
void measure(Script& s) {
  const std::uint32_t psn = s.status().next_psn;
  s.post(send(99, 1));
  s.expect_requests(psn, psn);
  s.inject(ack(psn));
  s.expect_completion(99);
}

bool asks(Script& s, std::uint32_t psn) {
  return s.expect(Opcode::kRcSendOnly, psn).header.ack_request;
}

// An empty SEND in the place of what was acknowledged last: a duplicate for the peer.
void expect_query(Script& s, std::uint32_t psn) {
  const Out out = s.expect(Opcode::kRcSendOnly, psn);
  EXPECT_TRUE(out.header.ack_request);
  EXPECT_TRUE(out.payload.empty());
}

constexpr std::int64_t kFull = port::window_charge(64) + kMtu;

TEST(Quiet, AcknowledgedWithTheNextThatIsWaitedFor) {
  Script s;
  measure(s);
  for (std::uint32_t i = 1; i <= 3; ++i) {
    s.post(send(i, 1).unsignaled());
    EXPECT_FALSE(asks(s, 100 + i));
  }
  EXPECT_EQ(s.status().unacked_psns, 3u);
  s.post(send(4, 1));
  EXPECT_TRUE(asks(s, 104));
  s.inject(ack(104));
  s.expect_completion(4);
  EXPECT_EQ(s.status().unacked_psns, 0u);
  s.advance(seconds(10));
  s.expect_silence();
}

TEST(Quiet, NotBeforeARoundTripWasMeasured) {
  Script s;
  s.post(send(1, 1).unsignaled());
  EXPECT_TRUE(asks(s, 100));
  s.inject(ack(100));
}

TEST(Quiet, LongMessagesToo) {
  Script s;
  measure(s);
  s.post(write(1, 3 * kMtu).unsignaled());
  for (std::uint32_t psn = 101; psn <= 103; ++psn) {
    const Opcode opcode = psn == 101   ? Opcode::kRcWriteFirst
                          : psn == 103 ? Opcode::kRcWriteLast
                                       : Opcode::kRcWriteMiddle;
    EXPECT_FALSE(s.expect(opcode, psn).header.ack_request);
  }
  s.post(write(2, 1));
  EXPECT_TRUE(s.expect(Opcode::kRcWriteOnly, 104).header.ack_request);
  s.inject(ack(104));
  s.expect_completion(2);
}

// Nothing is to be done at a certain time: no thread need be woken for it.
TEST(Quiet, WhereNothingFollowsTheProbeAsks) {
  Script s;
  measure(s);
  s.post(send(1, 1).unsignaled());
  EXPECT_FALSE(asks(s, 101));
  EXPECT_EQ(s.qp->deadlines().strict, kNever);
  EXPECT_EQ(s.qp->deadlines().lenient, s.now + kDelay);
  s.advance(kDelay - Time(1));
  s.expect_silence();
  s.advance(Time(1));
  expect_query(s, 100);
  s.inject(ack(101));
  s.advance(seconds(10));
  s.expect_silence();
  EXPECT_EQ(s.status().counters.timeouts, 0u);
  EXPECT_EQ(s.status().counters.retransmitted_packets, 0u);
}

// What has arrived is not sent again, so that its memory may be gone.
TEST(Quiet, MemoryMayBeGoneWhenTheProbeAsks) {
  Script s;
  measure(s);
  s.post(write(1, 10).unsignaled());
  s.expect(Opcode::kRcWriteOnly, 101);
  s.host.refuse_local = true;
  s.advance(kDelay);
  expect_query(s, 100);
  s.inject(ack(101));
  EXPECT_EQ(int(s.status().state), int(QpState::kRts));
}

TEST(Quiet, NoLaterThanTheAckTimeout) {
  Script s;
  s.post(send(99, 1));
  s.expect_requests(100, 100);
  s.advance(milliseconds(60));
  s.inject(ack(100));
  s.expect_completion(99);
  s.post(send(1, 1).unsignaled());
  EXPECT_FALSE(asks(s, 101));
  EXPECT_LE(s.qp->deadlines().lenient, s.now + milliseconds(68));
  s.inject(ack(101));
}

TEST(Quiet, TheFirstThatFollowsLateAsks) {
  Script s;
  measure(s);
  s.post(send(1, 1).unsignaled());
  EXPECT_FALSE(asks(s, 101));
  s.advance(kDelay / 4 * 3);
  s.post(send(2, 1).unsignaled());
  EXPECT_TRUE(asks(s, 102));
  s.inject(ack(102));
  s.advance(seconds(10));
  s.expect_silence();
}

// The answer to the probe says what is missing.
TEST(Quiet, ALostOneIsSentAgain) {
  Script s;
  measure(s);
  s.post(send(1, 1).unsignaled());
  s.post(send(2, 1).unsignaled());
  EXPECT_FALSE(asks(s, 101));
  EXPECT_FALSE(asks(s, 102));
  s.advance(kDelay);
  expect_query(s, 100);
  s.inject(ack(101));
  s.expect_silence();
  s.advance(kDelay);
  EXPECT_TRUE(asks(s, 102));
  s.inject(ack(102));
  s.advance(seconds(10));
  s.expect_silence();
  EXPECT_EQ(s.status().counters.timeouts, 0u);
}

TEST(Quiet, ALostAnswerIsAskedForByTheOldest) {
  Script s;
  measure(s);
  s.post(send(1, 1).unsignaled());
  EXPECT_FALSE(asks(s, 101));
  s.advance(kDelay);
  expect_query(s, 100);
  s.advance(kDelay);
  EXPECT_TRUE(asks(s, 101));
  s.inject(ack(101));
  s.advance(seconds(10));
  s.expect_silence();
}

TEST(Quiet, RepeatedAfterANakTheyAsk) {
  Script s;
  measure(s);
  for (std::uint32_t i = 1; i <= 2; ++i) {
    s.post(send(i, 1).unsignaled());
    EXPECT_FALSE(asks(s, 100 + i));
  }
  s.inject(nak(101, syndrome::kNakPsnSequence));
  EXPECT_TRUE(asks(s, 101));
  EXPECT_TRUE(asks(s, 102));
  s.inject(ack(102));
}

TEST(Quiet, ADeadPeerIsFound) {
  Script s;
  measure(s);
  s.post(send(1, 1).unsignaled());
  EXPECT_FALSE(asks(s, 101));
  s.advance(seconds(10));
  s.forget_output();  // probes and retries
  s.expect_completion(1, Status::kRetryExceeded);
}

TEST(Quiet, NoMoreThanAnInterval) {
  Script s(with_send_queue(1024));
  measure(s);
  for (std::uint32_t i = 0; i < 200; ++i) {
    s.post(send(i, 1).unsignaled());
    EXPECT_EQ(asks(s, 101 + i), i % 64 == 63) << i;
    if (i % 64 == 63) s.inject(ack(101 + i));
  }
  s.inject(ack(300));
}

TEST(Quiet, NoMoreThanAQuarterOfTheSendQueue) {
  Script s(with_send_queue(64));
  measure(s);
  for (std::uint32_t i = 1; i <= 16; ++i) {
    s.post(send(i, 1).unsignaled());
    EXPECT_FALSE(asks(s, 100 + i));
  }
  s.post(send(17, 1).unsignaled());
  EXPECT_TRUE(asks(s, 117));
  s.inject(ack(117));
}

TEST(Quiet, NotWhereCreditsAreFew) {
  ScriptOptions options = with_send_queue(1024);
  options.credits_unused = false;
  Script s(options);
  constexpr std::uint8_t kThirtyTwo = 10;  // the code of so many credits
  s.post(send(1, 1));
  EXPECT_TRUE(asks(s, 100));
  s.inject(ack(100, kThirtyTwo, 1));
  s.expect_completion(1);
  // SSN 2 has 31 behind it to the limit of 33, SSN 17 has 16, SSN 18 has 15.
  for (std::uint32_t ssn = 2; ssn <= 17; ++ssn) {
    s.post(send(ssn, 1).unsignaled());
    EXPECT_FALSE(asks(s, 99 + ssn)) << ssn;
  }
  s.post(send(18, 1).unsignaled());
  EXPECT_TRUE(asks(s, 117));
  s.inject(ack(117, kThirtyTwo, 18));
}

// Clause 10.3.1.4: drained when all is acknowledged.
TEST(Quiet, AskedAboutWhenTheQueueDrains) {
  Script s;
  measure(s);
  s.post(send(1, 1).unsignaled());
  EXPECT_FALSE(asks(s, 101));
  s.qp->set_sqd(true);
  s.run();
  expect_query(s, 100);
  s.inject(ack(101));
  s.expect_event(Host::Event::kSqDrained);
}

TEST(Quiet, AskedAboutByAnInvalidationThatWaits) {
  Script s;
  s.host.invalidatable = {7};
  measure(s);
  s.post(send(1, 1).unsignaled());
  EXPECT_FALSE(asks(s, 101));
  s.post(local_invalidate(2, 7));
  expect_query(s, 100);
  s.inject(ack(101));
  s.expect_completion(2);
}

TEST(Quiet, AskedAboutByABindThatWaits) {
  Script s;
  measure(s);
  s.post(send(1, 1).unsignaled());
  EXPECT_FALSE(asks(s, 101));
  s.post(bind(2, 7));
  expect_query(s, 100);
  s.inject(ack(101));
  s.expect_completion(2);
}

TEST(Quiet, AskedAboutByAReadThatDoesNotFitBesideIt) {
  Script s;
  measure(s);
  s.host.window_bytes = 16 * kFull;
  s.post(send(1, 1).unsignaled());
  EXPECT_FALSE(asks(s, 101));
  s.post(read(2, 16 * kMtu));
  expect_query(s, 100);
  s.expect_silence();
  s.inject(ack(101));
  s.expect(Opcode::kRcReadRequest, 102);
  s.inject(nak(102, syndrome::kNakRemoteAccess));
  s.expect_completion(2, Status::kRemoteAccess);
}

TEST(Quiet, AskedAboutWhenOthersFillTheWindow) {
  Script s;
  measure(s);
  s.post(send(1, 1).unsignaled());
  EXPECT_FALSE(asks(s, 101));
  s.host.window_bytes = kFull / 2;
  s.post(send(2, kMtu));
  expect_query(s, 100);
  s.expect_silence();
  s.inject(ack(101));
  EXPECT_TRUE(asks(s, 102));
  s.inject(ack(102));
  s.expect_completion(2);
}

// A peer that did not use credits begins to, in the middle of a message that nobody was asked about.
TEST(Quiet, AskedAboutWhenCreditsBeginInTheMiddle) {
  Script s;
  measure(s);
  unsigned packets = 0;
  s.host.port_is_full = [&] { return ++packets > 3; };
  s.post(send(1, 10 * kMtu));
  s.host.port_is_full = [] { return false; };
  s.expect_requests(101, 103);
  s.inject(ack(100, 0, 1));
  expect_query(s, 100);
  s.inject(ack(103, syndrome::kNoCredits, 1));
  s.expect_requests(104, 110);
  s.inject(ack(110));
  s.expect_completion(1);
}

// A probe of a flight is limited; one that something waits for is not counted.
TEST(Quiet, ProbesEnd) {
  Script s;
  s.host.invalidatable = {7};
  measure(s);
  s.post(send(1, 1).unsignaled());
  EXPECT_FALSE(asks(s, 101));
  s.advance(10 * kDelay);
  expect_query(s, 100);
  EXPECT_TRUE(asks(s, 101));
  EXPECT_TRUE(asks(s, 101));
  s.expect_silence();
  s.post(send(2, 1).unsignaled());
  s.expect_requests(102, 102);
  s.post(local_invalidate(3, 7));
  s.expect_requests(101, 101);
  s.advance(40 * kDelay);  // before the ACK timeout
  s.expect_silence();
  s.inject(ack(102));
  s.expect_completion(3);
}

// A peer that sends without asking would take one that has ended for lost.
TEST(Quiet, AcknowledgedByWhoEnds) {
  Script s;
  EXPECT_FALSE(s.qp->acknowledge_rest());
  s.post_receive(1);
  s.inject(packet(Opcode::kRcSendOnly, 500, 1));
  s.expect_receive(1);
  s.expect_silence();
  EXPECT_TRUE(s.qp->acknowledge_rest());
  s.run();
  s.expect_ack(500);
  EXPECT_FALSE(s.qp->acknowledge_rest());
}

TEST(Quiet, NoAnswerIsAwaited) {
  Script s;
  measure(s);
  s.post(send(1, 1).unsignaled());
  EXPECT_FALSE(asks(s, 101));
  EXPECT_FALSE(s.qp->awaits_answer());
  s.post(send(2, 1));
  EXPECT_TRUE(asks(s, 102));
  EXPECT_TRUE(s.qp->awaits_answer());
  s.inject(ack(102));
  s.expect_completion(2);
  EXPECT_FALSE(s.qp->awaits_answer());
}

// It may have arrived long ago: nobody waits for it. What is posted then fails at once.
TEST(Quiet, SurvivesALongPause) {
  Script s(with_migration());
  s.become_ferry();
  measure(s);
  s.post(send(1, 1).unsignaled());
  EXPECT_FALSE(asks(s, 101));
  MigrationMessage stop;
  stop.type = MigrationType::kPause;
  stop.epoch = 1;
  s.inject(message(stop));
  s.advance(seconds(100000));
  s.forget_output();
  EXPECT_EQ(int(s.status().state), int(QpState::kRts));
  s.post(send(2, 1).unsignaled());
  s.advance(Time(1));
  s.expect_completion(1, Status::kRetryExceeded);
  s.expect_completion(2, Status::kFlush);
  s.forget_output();
}

}  // namespace
}  // namespace ferry::transport::test
