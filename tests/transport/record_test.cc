#include <random>

#include "transport/script.h"

namespace ferry::transport::test {
namespace {

std::vector<std::byte> save(const Connection& qp) {
  std::vector<std::byte> bytes;
  wire::ByteWriter out(&bytes);
  qp.save(out);
  return bytes;
}

// A QP in the middle of everything: partial messages both ways, unanswered READs and atomics,
// inline data, credits, a READ and an atomic being answered, results kept, local operations carried
// out and not.
std::vector<std::byte> busy(Script& s) {
  s.become_ferry();
  s.post(send(1, 3 * kMtu));
  s.post(read(2, 3 * kMtu));
  std::byte data[64];
  std::fill_n(data, 64, std::byte{7});
  Request in_line = write(3, 64);
  in_line.request.inline_data = data;
  in_line.request.sge_count = 0;
  s.post(in_line);
  s.post(bind(5, 0x77));
  s.post(compare_swap(6, 11, 12));
  s.post(fetch_add(7, 13));
  s.post(send(4, 5).fenced());
  s.post(send(8, 5).invalidating(0x88));
  s.post(local_invalidate(9, 0x99));
  s.post(bind(10, 0xAA));
  s.post(flush(11, 5000, {wire::Feth::kPersistence, wire::Feth::kWholeRegion}));
  s.post(atomic_write(12));
  s.set_word(kRemote + 64, 40);
  s.inject(ack(101), fetch_add_request(500, kRemote + 64, 1));
  s.post_receive(9);
  s.host.port_is_full = [] { return true; };
  s.inject(read_request(501, kRemote, 2 * kMtu), fetch_add_request(503, kRemote + 64, 1),
           packet(Opcode::kRcSendFirst, 504));
  s.qp->stop(s.now);
  s.host.port_is_full = [] { return false; };
  s.forget_output();
  return save(*s.qp);
}

TEST(Record, GoesOnExactly) {
  Script s(with_migration());
  busy(s);
  s.move_to(endpoint(9), 0x4011);
  // The rest of the SEND, the READ, the WRITE, two atomics.
  EXPECT_EQ(s.status().unacked_psns, 7u);
  EXPECT_EQ(s.status().expected_psn, 505u);
  s.qp->resume(0x4011, false, s.now);
  s.run();
  EXPECT_EQ(s.expect_message(MigrationType::kResume).first_unacked_psn, 102u);
  s.inject(message({.type = MigrationType::kResumeAck,
                    .epoch = 1,
                    .wire_qpn = kPeerQpn,
                    .first_unacked_psn = 500,
                    .expected_psn = 102}));
  s.expect(Opcode::kRcSendLast, 102);
  s.expect(Opcode::kRcReadRequest, 103);
  EXPECT_EQ(s.expect(Opcode::kRcWriteOnly, 106).payload.back(), std::byte{7});
  const Out swap = s.expect(Opcode::kRcCompareSwap, 107);
  EXPECT_EQ(swap.header.atomic.compare, 11u);
  EXPECT_EQ(swap.header.atomic.swap_or_add, 12u);
  EXPECT_EQ(s.expect(Opcode::kRcFetchAdd, 108).header.atomic.swap_or_add, 13u);
  s.expect_silence();  // fenced
  s.inject(packet(Opcode::kRcReadResponseFirst, 103), packet(Opcode::kRcReadResponseMiddle, 104),
           packet(Opcode::kRcReadResponseLast, 105), ack(106), atomic_ack(107, 1),
           atomic_ack(108, 2));
  for (const std::uint64_t id : {1, 2, 3, 5, 6, 7}) s.expect_completion(id);
  EXPECT_EQ(s.host.binds.size(), 1u);

  s.expect(Opcode::kRcSendOnly, 109);
  EXPECT_EQ(s.expect(Opcode::kRcSendOnlyInvalidate, 110).header.invalidate_rkey, 0x88u);
  s.expect_silence();  // LOCAL_INV waits
  s.host.invalidatable = {0x99};
  s.inject(ack(110));
  for (const std::uint64_t id : {4, 8, 9, 10}) s.expect_completion(id);
  EXPECT_EQ(s.host.binds.back().rkey, 0xAAu);
  const Out flush = s.expect(Opcode::kRcFlush, 111);
  EXPECT_EQ(flush.header.reth.dma_length, 5000u);
  EXPECT_EQ(flush.header.feth.selectivity, wire::Feth::kWholeRegion);
  s.expect(Opcode::kRcAtomicWrite, 112);
  s.inject(packet(Opcode::kRcReadResponseOnly, 111, 0),
           packet(Opcode::kRcReadResponseOnly, 112, 0));
  s.expect_completion(11);
  s.expect_completion(12);

  // The peer asks again for what it was not answered.
  s.inject(fetch_add_request(500, kRemote + 64, 1), read_request(501, kRemote, 2 * kMtu),
           fetch_add_request(503, kRemote + 64, 1), packet(Opcode::kRcSendLast, 505, 4).asks_ack());
  s.expect_original(500, 40);
  s.expect(Opcode::kRcReadResponseFirst, 501);
  s.expect(Opcode::kRcReadResponseLast, 502);
  s.expect_original(503, 41);
  s.expect_ack(505);
  EXPECT_EQ(s.word(kRemote + 64), 42u);
  EXPECT_EQ(s.expect_receive(9).bytes, kMtu + 4);
}

TEST(Record, OfEveryStateLoads) {
  for (int state = 0; state < 6; ++state) {
    ScriptOptions options = with_migration();
    options.to_rts = state >= 3;
    Script s(options);
    s.run();
    s.forget_output();
    if (state == 0) s.qp->reset();
    if (state == 1) s.qp->reset(), s.qp->init();
    if (state == 4) s.qp->set_sqd(true);
    if (state == 5) s.qp->to_error(s.now);
    const QpState before = s.qp->state();
    const auto bytes = save(*s.qp);
    s.move_to(kUs, kOurQpn);
    EXPECT_EQ(int(s.qp->state()), int(before));
    EXPECT_EQ(save(*s.qp), bytes);
    s.advance(seconds(1));
    s.forget_output();
  }
}

TEST(Record, OfARunningConnectionKeepsItsTimers) {
  Script s(with_migration());
  s.become_ferry();
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.inject(message({.type = MigrationType::kPause, .epoch = 1}));
  s.move_to(kUs, kOurQpn);
  EXPECT_EQ(int(s.status().migration), int(MigrationState::kPaused));
  s.advance(milliseconds(1));
  s.expect_message(MigrationType::kHello);
  s.advance(seconds(61));
  s.forget_output();
  s.expect_completion(1, Status::kRetryExceeded);
}

// Whatever the bytes, load() neither crashes nor allocates much, and what it accepts can run.
TEST(Record, GarbageIsRefusedOrHarmless) {
  Script s(with_migration());
  const auto good = busy(s);
  std::mt19937 random(1);
  unsigned refused = 0;
  for (int i = 0; i < 20000; ++i) {
    auto bytes = good;
    const unsigned changes = 1 + random() % 4;
    for (unsigned k = 0; k < changes; ++k) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    FakeHost host(1 << 16);
    host.send = [](Datagram) {};
    // A record with a wrong length of an SGE may ask for memory that is not there; the host refuses
    // it.
    const QueueLimits limits = s.options.limits;
    Connection qp(host, limits, s.options.settings, kOurQpn, kOurQpn);
    wire::ByteReader in(bytes);
    if (!qp.load(in)) {
      ++refused;
      continue;
    }
    Time now = seconds(1);
    qp.resume(kOurQpn, true, now);
    for (int round = 0; round < 20; ++round) {
      qp.transmit(now, 64);
      now = std::min(std::max(qp.next_deadline(), now), now + seconds(10));
      qp.handle_timeout(now);
    }
    for (const Opcode opcode :
         {Opcode::kRcSendLast, Opcode::kRcSendMiddle, Opcode::kRcWriteLast, Opcode::kRcAck,
          Opcode::kRcReadResponseFirst, Opcode::kRcFetchAdd, Opcode::kRcAtomicAck}) {
      const bool no_payload = opcode == Opcode::kRcAck || opcode == Opcode::kRcFetchAdd ||
                              opcode == Opcode::kRcAtomicAck;
      const In one = packet(opcode, random() % 12 + (wire::is_request(opcode) ? 500 : 100),
                            no_payload ? 0 : kMtu);
      qp.handle_packet({one.header, one.payload}, kPeer, now);
    }
    qp.to_error(now);
  }
  EXPECT_GT(refused, 5000u);
}

// The same for packets: every header field at random, before and after the handshake.
TEST(Record, RandomPacketsNeverCrash) {
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    Script s(i % 2 ? with_migration() : ScriptOptions{});
    if (i % 2) s.become_ferry();
    s.check_accounting = false;
    for (int k = 0; k < 4; ++k) {
      s.post_receive(k, random() % 5000);
      s.post(k % 2 ? read(k, random() % 9000) : send(k, random() % 9000));
      s.post(k % 2 ? fetch_add(k, 1) : bind(k, 1));
    }
    for (int k = 0; k < 100; ++k) {
      const auto opcode = static_cast<Opcode>(random() % 8 == 0 ? 0xC0 : random() % 0x1E);
      if (!wire::is_known(opcode)) continue;
      const bool response = !wire::is_request(opcode);
      const bool no_payload = opcode == Opcode::kRcAck || opcode == Opcode::kRcReadRequest ||
                              opcode == Opcode::kRcAtomicAck || opcode == Opcode::kRcFlush ||
                              wire::has_atomic(opcode);
      const std::uint32_t psn =
          (random() % 20 == 0 ? random() : random() % 12 + (response ? 98 : 498)) & 0xFFFFFF;
      std::uint32_t length = no_payload ? 0 : random() % 3 ? kMtu : random() % 1100;
      if (opcode == Opcode::kRcAtomicWrite && random() % 4) length = 8;
      In in = packet(opcode, psn, length);
      in.header.atomic = {kRemote + random() % 16, random() % 4 ? kRkey : 0u, random(), random()};
      in.header.feth = {static_cast<std::uint8_t>(random() % 16),
                        static_cast<std::uint8_t>(random() % 4)};
      in.header.reth = {random() % 2 ? kRemote : ~0ull - random() % 100, random() % 4 ? kRkey : 0u,
                        static_cast<std::uint32_t>(random() % 3 ? random() % 4000 : random())};
      in.header.aeth = {static_cast<std::uint8_t>(random()),
                        static_cast<std::uint32_t>(random() & 0xFFFFFF)};
      if (opcode == Opcode::kRcAck && in.header.aeth.syndrome == syndrome::kNakStopped) continue;
      in.header.ack_request = random() % 2;
      s.inject(in);
      if (random() % 10 == 0) s.advance(milliseconds(random() % 100));
    }
    s.forget_output();
    s.host.sent.clear();
    s.host.received.clear();
  }
}

}  // namespace
}  // namespace ferry::transport::test
