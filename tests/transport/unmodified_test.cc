#include "transport/script.h"

// A standard NIC as the peer: nothing but the standard may reach it.
namespace ferry::transport::test {
namespace {

TEST(Unmodified, StopAndResumeAreSilent) {
  Script s;
  s.post(send(1, 2 * kMtu));
  s.expect_requests(100, 101);
  s.qp->stop(s.now);
  s.run();
  s.expect_silence();
  s.qp->resume(kOurQpn, false, s.now);
  s.run();
  s.expect_requests(100, 101);
  s.inject(ack(101));
  s.expect_completion(1);
}

TEST(Unmodified, ReadResponsesAreFinishedBeforeTheStop) {
  Script s;
  int room = 1;
  s.host.port_is_full = [&] { return room-- <= 0; };
  s.inject(read_request(500, kRemote, 2 * kMtu));
  s.expect(Opcode::kRcReadResponseFirst, 500);
  EXPECT_TRUE(s.qp->finishing());
  room = 10;
  s.run();
  s.expect(Opcode::kRcReadResponseLast, 501);
  EXPECT_FALSE(s.qp->finishing());
}

TEST(Unmodified, FerryPeersNeedNoFinishing) {
  Script s(with_migration());
  s.become_ferry();
  s.host.port_is_full = [] { return true; };
  s.inject(read_request(500, kRemote, 2 * kMtu));
  EXPECT_FALSE(s.qp->finishing());
}

TEST(Unmodified, NewPlaceAcknowledgesWhatWasReceived) {
  Script s;
  s.post_receive(1);
  s.inject(packet(Opcode::kRcSendOnly, 500, 1));
  s.expect_receive(1);
  s.qp->stop(s.now);
  s.move_to(kUs, kOurQpn);
  s.qp->resume(kOurQpn, false, s.now);
  s.run();
  s.expect_ack(500);
}

TEST(Unmodified, AnUnknownPeerIsTreatedAsOne) {
  Script s(with_migration());
  s.run();
  s.expect_message(MigrationType::kHello);
  s.qp->stop(s.now);
  s.expect_silence();
  s.inject(packet(Opcode::kRcSendOnly, 500, 1).asks_ack());
  s.expect_nak(500, syndrome::kRnrNak | 0);
  s.inject(packet(Opcode::kRcSendOnly, 501, 1).asks_ack());
  s.expect_silence();
}

}  // namespace
}  // namespace ferry::transport::test
