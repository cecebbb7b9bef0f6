#include "transport/streams/tail_probe.h"

#include "port/port.h"
#include "transport/script.h"
#include "transport/timers.h"

namespace ferry::transport::test {
namespace {

constexpr Time kDelay = TailProbe::kMin;  // scripted peers answer at once

// A request and its answer: from now on there is a round trip to go by.
void measure(Script& s, Time round_trip = Time(0)) {
  const std::uint32_t psn = s.status().next_psn;
  s.post(send(99, 1));
  s.expect_requests(psn, psn);
  s.advance(round_trip);
  s.inject(ack(psn));
  s.expect_completion(99);
}

TEST(TailProbe, WaitsForTheRoundTripAndFourTimesItsDeviation) {
  TailProbe probe;
  EXPECT_EQ(probe.delay, kNever);
  probe.measured(microseconds(40));
  EXPECT_EQ(probe.delay, TailProbe::kMin);
  probe = {};
  probe.measured(milliseconds(8));  // 8 and a deviation of 4
  EXPECT_EQ(probe.delay, milliseconds(24));
  probe.measured(milliseconds(8));  // 3
  EXPECT_EQ(probe.delay, milliseconds(20));
  probe.measured(milliseconds(16));  // 3 + (8 - 3) / 4, and 9 on the average
  EXPECT_EQ(probe.delay, milliseconds(26));
}

// A thread that had to be in time for it would be woken a millisecond after nearly every request.
TEST(TailProbe, IsALenientDeadlineBesideTheStrictOneOfTheTimeout) {
  Script s;
  measure(s);
  s.post(write(1, kMtu));
  s.expect_requests(101, 101);
  const Deadlines at = s.qp->deadlines();
  EXPECT_EQ(at.lenient, s.now + kDelay);
  EXPECT_GT(at.strict, at.lenient);
  EXPECT_NE(at.strict, kNever);
  s.inject(ack(101));
  s.expect_completion(1);
  EXPECT_EQ(s.qp->deadlines().first(), kNever);
}

TEST(TailProbe, ALostLastPacketIsSentAgain) {
  Script s;
  measure(s);
  s.post(write(1, 3 * kMtu));
  s.expect_requests(101, 103);
  s.inject(ack(102));
  s.advance(kDelay - Time(1));
  s.expect_silence();
  s.advance(Time(1));
  EXPECT_TRUE(s.expect(Opcode::kRcWriteLast, 103).header.ack_request);
  s.inject(ack(103));
  s.expect_completion(1);
  EXPECT_EQ(s.status().counters.timeouts, 0u);
  EXPECT_EQ(s.status().counters.retransmitted_packets, 1u);
  s.advance(seconds(10));
  s.expect_silence();
}

// A duplicate for the peer, which says how far it has come.
TEST(TailProbe, ALostAcknowledgementIsAskedForByTheOldestPacket) {
  Script s;
  measure(s);
  s.post(send(1, 3 * kMtu));
  s.expect_requests(101, 103);
  s.advance(kDelay);
  EXPECT_TRUE(s.expect(Opcode::kRcSendFirst, 101).header.ack_request);
  s.inject(ack(103));
  s.expect_completion(1);
}

// The NAK was lost, or the packet was lost once more after it: the peer reports a gap only once. It
// has dropped all that followed, and says so by acknowledging no more than the probe.
TEST(TailProbe, TheRestOfTheFlightFollowsWhenTheAnswerEndsShortOfIt) {
  Script s;
  measure(s);
  s.post(send(1, 41 * kMtu));
  s.expect_requests(101, 141);
  s.advance(kDelay);
  s.expect_requests(101, 101);
  s.inject(ack(101));
  s.expect_silence();  // the peer may be late only
  s.advance(kDelay - Time(1));
  s.expect_silence();
  s.advance(Time(1));
  s.expect_requests(102, 121);  // the window was halved, as by a NAK
  s.expect_silence();
  s.inject(ack(121));
  s.expect_requests(122, 141);
  s.inject(ack(141));
  s.expect_completion(1);
  EXPECT_EQ(s.status().counters.timeouts, 0u);
}

// Where the window was what the sender waited for, new packets show the peer the gap.
TEST(TailProbe, NewPacketsAfterTheProbeGetTheNak) {
  Script s;
  measure(s);
  s.host.window_bytes = 4 * port::window_charge(kMtu + 64);
  s.post(send(1, 8 * kMtu));
  s.expect_requests(101, 104);
  s.advance(kDelay);
  s.expect_requests(101, 101);
  s.inject(ack(101));
  s.expect_requests(105, 105);
  s.inject(nak(102, syndrome::kNakPsnSequence));
  s.expect_requests(102, 105);
  s.inject(ack(105));
  s.expect_requests(106, 108);
  s.inject(ack(108));
  s.expect_completion(1);
}

// It is off its CPU, and everything has arrived.
TEST(TailProbe, APeerThatIsOnlyLateCostsOnePacket) {
  Script s;
  measure(s);
  s.post(send(1, 64 * kMtu));
  s.expect_requests(101, 164);
  s.advance(kDelay);
  s.expect_requests(101, 101);
  s.inject(ack(130));
  s.inject(ack(164), ack(164));
  s.expect_completion(1);
  s.post(send(2, 64 * kMtu));
  s.expect_requests(165, 228);  // the window is what it was
  s.inject(ack(228));
  s.expect_completion(2);
}

TEST(TailProbe, ASlowPeerIsGivenLonger) {
  Script s;
  measure(s, milliseconds(8));
  s.post(send(1, 1));
  s.expect_requests(101, 101);
  s.advance(milliseconds(24) - Time(1));
  s.expect_silence();
  s.advance(Time(1));
  s.expect_requests(101, 101);
  s.inject(ack(101));
  s.expect_completion(1);
}

// An answer after a probe counts as one to what was sent first: a peer that becomes slower is
// probed less.
TEST(TailProbe, LearnsFromAnswersThatComeAfterIt) {
  Script s;
  measure(s);
  s.post(send(1, 1));
  s.expect_requests(101, 101);
  s.advance(2 * kDelay);
  s.expect_requests(101, 101);
  s.inject(ack(101));
  s.expect_completion(1);
  s.post(send(2, 1));
  s.expect_requests(102, 102);
  s.advance(2 * kDelay);
  s.expect_silence();
  s.inject(ack(102));
  s.expect_completion(2);
}

TEST(TailProbe, IsNotSentBeforeThereIsARoundTripToGoBy) {
  Script s;
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.advance(ack_timeout(s.options.rts.timeout) - Time(1));
  s.expect_silence();
  s.inject(ack(100));
  s.expect_completion(1);
}

// 1 ms, 2 ms after that, and then the local ACK timeout, as without probes.
TEST(TailProbe, TwoOfAFlightNeitherCostRetriesNorPutTheTimeoutOff) {
  Script s;  // retry_count 3
  measure(s);
  const Time timeout = ack_timeout(s.options.rts.timeout);
  s.post(send(1, 1));
  s.post(send(2, 1));
  for (const int times : {1, 2, 4, 4}) {
    s.expect_requests(101, 102);
    s.advance(kDelay);
    s.expect_requests(101, 101);
    s.advance(2 * kDelay);
    s.expect_requests(101, 101);
    s.advance(times * timeout - 3 * kDelay - Time(1));
    s.expect_silence();
    EXPECT_EQ(int(s.qp->state()), int(QpState::kRts));
    s.advance(Time(1));
  }
  s.expect_completion(1, Status::kRetryExceeded);
  s.expect_completion(2, Status::kFlush);
  EXPECT_EQ(s.status().counters.timeouts, 4u);
}

TEST(TailProbe, AsksForTheRestOfARead) {
  Script s;
  measure(s);
  s.post(read(1, 3 * kMtu));
  s.expect_requests(101, 101);
  s.inject(packet(Opcode::kRcReadResponseFirst, 101));
  s.advance(kDelay);
  const Out probe = s.expect(Opcode::kRcReadRequest, 102);
  EXPECT_EQ(probe.header.reth.virtual_address, kRemote + kMtu);
  EXPECT_EQ(probe.header.reth.dma_length, 2 * kMtu);
  s.inject(packet(Opcode::kRcReadResponseFirst, 102), packet(Opcode::kRcReadResponseLast, 103));
  s.expect_completion(1);
}

// All requests were lost but the first, which the probe repeats.
TEST(TailProbe, ReadsThatNobodyHeardFollowTheProbe) {
  Script s;
  measure(s);
  for (int i = 1; i <= 3; ++i) s.post(read(i, 10));
  s.expect_requests(101, 103);
  s.advance(kDelay);
  s.expect_requests(101, 101);
  s.inject(packet(Opcode::kRcReadResponseOnly, 101, 10));
  s.expect_completion(1);
  s.advance(2 * kDelay);  // the first answer took long
  s.expect_requests(102, 103);
  s.inject(packet(Opcode::kRcReadResponseOnly, 102, 10),
           packet(Opcode::kRcReadResponseOnly, 103, 10));
  s.expect_completion(2);
  s.expect_completion(3);
}

TEST(TailProbe, RepeatsAnAtomicAsItWas) {
  Script s;
  measure(s);
  s.post(fetch_add(1, 5));
  s.expect(Opcode::kRcFetchAdd, 101);
  s.advance(kDelay);
  EXPECT_EQ(s.expect(Opcode::kRcFetchAdd, 101).header.atomic.swap_or_add, 5u);
  s.inject(atomic_ack(101, 7));
  s.expect_completion(1);
  EXPECT_EQ(s.word(0), 7u);
}

TEST(TailProbe, NoneWhileAnRnrNakIsWaitedFor) {
  Script s;
  measure(s);
  s.post(send(1, 1));
  s.expect_requests(101, 101);
  s.inject(nak(101, syndrome::kRnrNak | 20));  // 10.24 ms
  s.advance(milliseconds(10));
  s.expect_silence();
  s.advance(milliseconds(1));
  s.expect_requests(101, 101);
  s.inject(ack(101));
  s.expect_completion(1);
}

TEST(TailProbe, NoneOfAQpThatIsStoppedOrWhosePeerIs) {
  Script s(with_migration());
  s.become_ferry();
  measure(s);
  s.post(send(1, 1));
  s.expect_requests(101, 101);
  s.inject(message({.type = MigrationType::kPause, .epoch = 1}));
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kPaused));
  s.advance(milliseconds(9));  // before the peer is asked whether it is there again
  s.expect_silence();
  s.qp->stop(s.now);
  s.forget_output();
  s.advance(seconds(1));
  s.expect_silence();
}

TEST(TailProbe, AFullPortIsTriedAgain) {
  Script s;
  measure(s);
  s.post(send(1, 1));
  s.expect_requests(101, 101);
  bool full = true;
  s.host.port_is_full = [&] { return full; };
  s.advance(kDelay);
  s.expect_silence();
  EXPECT_TRUE(s.qp->has_work());
  full = false;
  s.run();
  s.expect_requests(101, 101);
  s.inject(ack(101));
  s.expect_completion(1);
}

}  // namespace
}  // namespace ferry::transport::test
