#include "transport/streams/credits.h"

#include "transport/script.h"

namespace ferry::transport::test {
namespace {

ScriptOptions with_credits() {
  ScriptOptions options;
  options.limits.shared_receive_queue = false;
  options.credits_unused = false;
  return options;
}

TEST(Credits, Codes) {
  EXPECT_EQ(credit_code(0), 0);
  EXPECT_EQ(credit_code(5), 4);
  EXPECT_EQ(credit_code(6), 5);
  EXPECT_EQ(credit_code(512), 18);
  EXPECT_EQ(credit_code(1u << 30), 30);
  EXPECT_EQ(credits_of(30), 32768u);
  for (std::uint8_t code = 0; code <= 30; ++code) EXPECT_EQ(credit_code(credits_of(code)), code);
}

TEST(Credits, BeyondTheLimitOnlyTheFirstPacketOfOneRequestGoes) {
  Script s(with_credits());
  s.post(send(1, 2 * kMtu));
  s.post(send(2, 1));
  EXPECT_TRUE(s.expect(Opcode::kRcSendFirst, 100).header.ack_request);
  s.expect_silence();
  s.inject(ack(100, 0, 0));  // no credits, but that packet found a receive
  s.expect(Opcode::kRcSendLast, 101);
  s.expect(Opcode::kRcSendOnly, 102);  // the next one beyond the limit
  s.inject(ack(102, 0, 2));
  s.expect_completion(1);
  s.expect_completion(2);
}

TEST(Credits, WithinTheLimitRequestsGoFreely) {
  Script s(with_credits());
  s.inject(ack(99, 3, 0));
  for (int i = 1; i <= 5; ++i) s.post(send(i, 1));
  s.expect_requests(100, 103);  // three, and one beyond the limit
  s.expect_silence();
  s.inject(ack(103, 8, 4));
  for (int i = 1; i <= 4; ++i) s.expect_completion(i);
  s.expect_requests(104, 104);
  s.inject(ack(104, 8, 5));
  s.expect_completion(5);
}

TEST(Credits, WriteAndReadNeedNone) {
  Script s(with_credits());
  s.inject(ack(99, 0, 0));
  s.post(send(1, 1));
  s.post(write(2, 3 * kMtu));
  s.post(read(3, 1));
  s.post(write(4, 1).immediate(1));
  s.expect_requests(100, 104);
  s.expect_silence();  // the second that needs a receive
  s.inject(ack(100, 0, 1));
  s.expect_completion(1);
  s.expect_requests(105, 105);
  s.inject(ack(103, 0, 2), packet(Opcode::kRcReadResponseOnly, 104, 1), ack(105, 0, 4));
  for (int i = 2; i <= 4; ++i) s.expect_completion(i);
}

TEST(Credits, AreAdvertised) {
  Script s(with_credits());
  for (int i = 0; i < 7; ++i) s.post_receive(i);
  s.inject(packet(Opcode::kRcSendOnly, 500, 1).asks_ack());
  EXPECT_EQ(s.expect_ack(500).header.aeth.syndrome & syndrome::kValueMask, 5);  // 6 left: code 5
  s.expect_receive(0);
  // The receive of a message in progress was taken, but its message is not in the MSN yet.
  s.inject(packet(Opcode::kRcSendFirst, 501).asks_ack());
  EXPECT_EQ(s.expect_ack(501).header.aeth.syndrome & syndrome::kValueMask, 5);
}

TEST(Credits, OfASharedReceiveQueueAreNotCounted) {
  Script s;
  s.post_receive(1);
  s.inject(packet(Opcode::kRcSendOnly, 500, 1).asks_ack());
  EXPECT_EQ(s.expect_ack(500).header.aeth.syndrome, syndrome::kAck | syndrome::kNoCredits);
  s.expect_receive(1);
}

TEST(Credits, PostedAfterNoneWereLeftAreAnnounced) {
  Script s(with_credits());
  s.post_receive(1);
  s.expect_silence();
  s.inject(packet(Opcode::kRcSendOnly, 500, 1).asks_ack());
  EXPECT_EQ(s.expect_ack(500).header.aeth.syndrome & syndrome::kValueMask, 0);
  s.expect_receive(1);
  s.post_receive(2);
  EXPECT_EQ(s.expect_ack(500).header.aeth.syndrome & syndrome::kValueMask, 1);
  s.post_receive(3);
  s.expect_silence();
}

TEST(Credits, AnnouncementEndsTheWait) {
  Script s(with_credits());
  s.post(send(1, 1));
  s.post(send(2, 1));
  s.post(send(3, 1));
  s.expect_requests(100, 100);
  s.inject(ack(100, 0, 1));
  s.expect_completion(1);
  s.expect_requests(101, 101);
  s.inject(ack(100, 4, 1));  // the same PSN: only the credits are news
  s.expect_requests(102, 102);
  s.inject(ack(102, 4, 3));
  s.expect_completion(2);
  s.expect_completion(3);
}

TEST(Credits, NeverFallAndLaterAcknowledgementsCount) {
  Script s(with_credits());
  s.inject(ack(99, 2, 0), ack(99, 0, 0));
  for (int i = 1; i <= 2; ++i) s.post(send(i, 1));
  s.expect_requests(100, 101);
  s.inject(ack(101, syndrome::kNoCredits, 2));
  s.expect_completion(1);
  s.expect_completion(2);
  for (int i = 3; i <= 9; ++i) s.post(send(i, 1));
  s.expect_requests(102, 108);
  s.inject(ack(108));
  for (int i = 3; i <= 9; ++i) s.expect_completion(i);
}

TEST(Credits, ImpossibleMsnIsIgnored) {
  Script s(with_credits());
  s.inject(ack(99, 10, 77));
  for (int i = 1; i <= 2; ++i) s.post(send(i, 1));
  s.expect_requests(100, 100);
  s.inject(ack(100, 1, 1));
  s.expect_completion(1);
  s.expect_requests(101, 101);
  s.inject(ack(101, 1, 2));
  s.expect_completion(2);
}

}  // namespace
}  // namespace ferry::transport::test
