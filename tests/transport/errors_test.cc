#include "transport/script.h"

namespace ferry::transport::test {
namespace {

TEST(Errors, FatalNaksBecomeStatuses) {
  const struct {
    std::uint8_t code;
    Status status;
  } cases[] = {{syndrome::kNakInvalidRequest, Status::kRemoteInvalidRequest},
               {syndrome::kNakRemoteAccess, Status::kRemoteAccess},
               {syndrome::kNakRemoteOperational, Status::kRemoteOperation}};
  for (const auto& one : cases) {
    Script s;
    s.post(send(1, 1));
    s.post(write(2, 2 * kMtu).unsignaled());
    s.post(send(3, 1));
    s.post_receive(9);
    s.expect_requests(100, 103);
    s.inject(nak(102, one.code));
    s.expect_completion(1);
    s.expect_completion(2, one.status);  // also when unsignaled
    s.expect_completion(3, Status::kFlush);
    s.expect_receive(9, Status::kFlush);
    EXPECT_EQ(int(s.qp->state()), int(QpState::kError));
    s.inject(ack(103), packet(Opcode::kRcSendOnly, 500, 1).asks_ack());
    s.advance(seconds(100));
    s.expect_silence();
  }
}

TEST(Errors, LocalProtectionCompletesInItsTurn) {
  Script s;
  s.post(send(1, 1));
  Request bad = send(2, 10);
  bad.sges = {{0, 10, 0xBAD}};
  s.post(bad);
  s.post(send(3, 1));
  s.expect_requests(100, 100);
  s.expect_silence();
  EXPECT_TRUE(s.host.sent.empty());
  s.inject(ack(100));
  s.expect_completion(1);
  s.expect_completion(2, Status::kLocalProtection);
  s.expect_completion(3, Status::kFlush);
}

TEST(Errors, LocalProtectionInTheMiddleOfAMessage) {
  Script s;
  s.host.faulty.insert(kMtu + 5);
  s.post(send(1, 3 * kMtu));
  s.expect(Opcode::kRcSendFirst, 100);
  s.expect_completion(1, Status::kLocalProtection);
}

TEST(Errors, ReadIntoBadMemory) {
  Script s;
  s.post(read(1, 10));
  s.expect_requests(100, 100);
  s.host.refuse_local = true;
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 10));
  s.expect_completion(1, Status::kLocalProtection);
}

TEST(Errors, ReadResponseOfAWrongLength) {
  Script s;
  s.post(read(1, 10));
  s.expect_requests(100, 100);
  s.inject(packet(Opcode::kRcReadResponseOnly, 100, 11));
  s.expect_completion(1, Status::kBadResponse);
}

TEST(Errors, MessageLongerThanTheReceive) {
  Script s;
  s.post_receive(5, kMtu + 1);
  s.post_receive(6);
  s.inject(packet(Opcode::kRcSendFirst, 500), packet(Opcode::kRcSendLast, 501, 2).asks_ack());
  s.expect_nak(501, syndrome::kNakInvalidRequest);
  s.expect_receive(5, Status::kLocalLength);
  s.expect_receive(6, Status::kFlush);
  EXPECT_TRUE(s.host.events.empty());
  s.expect_silence();
}

TEST(Errors, ReceiveIntoBadMemory) {
  Script s;
  s.post_receive(5);
  s.host.faulty.insert(kReceive + 2);
  s.inject(packet(Opcode::kRcSendOnly, 500, 4));
  s.expect_nak(500, syndrome::kNakRemoteOperational);
  s.expect_receive(5, Status::kLocalProtection);
}

TEST(Errors, RemoteAccess) {
  const In cases[] = {
      write_packet(Opcode::kRcWriteOnly, 500, 4, kRemote, 4).key(1),
      write_packet(Opcode::kRcWriteOnly, 500, 4, (1 << 20) - 3, 4),
      write_packet(Opcode::kRcWriteFirst, 500, kMtu, (1 << 20) - kMtu, 2 * kMtu),
      read_request(500, kRemote, 4).key(1),
      read_request(500, 1ull << 63, 4),
  };
  for (const In& one : cases) {
    Script s;
    s.inject(one);
    s.expect_nak(500, syndrome::kNakRemoteAccess);
    s.expect_event(Host::Event::kQpAccessError);
    EXPECT_EQ(int(s.qp->state()), int(QpState::kError));
    EXPECT_EQ(s.host.flushes, 1u);
  }
}

TEST(Errors, MemoryThatVanishesUnderAWriteOrRead) {
  Script s;
  s.host.faulty.insert(kRemote + 1);
  s.inject(write_packet(Opcode::kRcWriteOnly, 500, 4, kRemote, 4));
  s.expect_nak(500, syndrome::kNakRemoteAccess);
  s.expect_event(Host::Event::kQpAccessError);
  Script r;
  r.host.faulty.insert(kRemote + kMtu);
  r.inject(read_request(500, kRemote, 3 * kMtu));
  r.expect(Opcode::kRcReadResponseFirst, 500);
  r.expect_nak(501, syndrome::kNakRemoteAccess);
  r.expect_event(Host::Event::kQpAccessError);
}

TEST(Errors, NakOfAReadInItsMiddle) {
  Script s;
  s.post(read(1, 3 * kMtu));
  s.expect_requests(100, 100);
  s.inject(packet(Opcode::kRcReadResponseFirst, 100), nak(101, syndrome::kNakRemoteAccess));
  s.expect_completion(1, Status::kRemoteAccess);
}

TEST(Errors, ResponsesBeforeTheFatalNakAreSent) {
  Script s;
  s.inject(read_request(500, kRemote, 2 * kMtu), packet(Opcode::kRcSendMiddle, 502));
  s.expect(Opcode::kRcReadResponseFirst, 500);
  s.expect(Opcode::kRcReadResponseLast, 501);
  s.expect_nak(502, syndrome::kNakInvalidRequest);
  s.expect_event(Host::Event::kQpRequestError);
}

TEST(Errors, OpcodesOutOfSequence) {
  struct Case {
    const char* what;
    std::vector<In> before;
    In packet;
  };
  const In send_first = packet(Opcode::kRcSendFirst, 500);
  const In write_first = write_packet(Opcode::kRcWriteFirst, 500, kMtu, kRemote, 4 * kMtu);
  const Case cases[] = {
      {"SEND MIDDLE alone", {}, packet(Opcode::kRcSendMiddle, 500)},
      {"SEND LAST alone", {}, packet(Opcode::kRcSendLast, 500)},
      {"WRITE LAST alone", {}, packet(Opcode::kRcWriteLast, 500)},
      {"SEND ONLY in a SEND", {send_first}, packet(Opcode::kRcSendOnly, 501)},
      {"SEND FIRST in a SEND", {send_first}, packet(Opcode::kRcSendFirst, 501)},
      {"WRITE MIDDLE in a SEND", {send_first}, packet(Opcode::kRcWriteMiddle, 501)},
      {"READ in a SEND", {send_first}, read_request(501, kRemote, 1)},
      {"SEND LAST in a WRITE", {write_first}, packet(Opcode::kRcSendLast, 501)},
      {"READ in a WRITE", {write_first}, read_request(501, kRemote, 1)},
      {"MIDDLE not full", {send_first}, packet(Opcode::kRcSendMiddle, 501, 1000)},
      {"LAST empty", {send_first}, packet(Opcode::kRcSendLast, 501, 0)},
      {"over the MTU", {}, packet(Opcode::kRcSendOnly, 500, kMtu + 4)},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    Script s;
    s.post_receive(1);
    for (const In& in : one.before) s.inject(in);
    s.inject(one.packet);
    s.expect_nak(one.packet.header.psn, syndrome::kNakInvalidRequest);
    s.host.received.clear();
    EXPECT_EQ(int(s.qp->state()), int(QpState::kError));
  }
}

TEST(Errors, UnknownNakCodesAreIgnored) {
  Script s;
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.inject(nak(100, 0x64), nak(100, 0x7F), nak(100, 0x40), nak(100, 0xFF));
  EXPECT_EQ(int(s.qp->state()), int(QpState::kRts));
  s.inject(ack(100));
  s.expect_completion(1);
}

}  // namespace
}  // namespace ferry::transport::test
