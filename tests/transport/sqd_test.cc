#include "transport/script.h"

namespace ferry::transport::test {
namespace {

TEST(Sqd, FinishesWhatWasBegunAndBeginsNothing) {
  ScriptOptions options;
  Script s(options);
  s.host.window_bytes = 3000;  // two packets at a time
  s.post(send(1, 4 * kMtu));
  s.post(send(2, 1));
  s.expect_requests(100, 101);
  s.qp->set_sqd(true);
  s.inject(ack(101));
  s.expect_requests(102, 103);
  EXPECT_TRUE(s.host.events.empty());
  s.inject(ack(103));
  s.expect_completion(1);
  s.expect_event(Host::Event::kSqDrained);
  s.expect_silence();
  s.qp->set_sqd(false);
  s.run();
  s.expect_requests(104, 104);
  s.inject(ack(104));
  s.expect_completion(2);
  EXPECT_TRUE(s.host.events.empty());
}

TEST(Sqd, OfAnIdleQueueIsDrainedAtOnce) {
  Script s;
  s.qp->set_sqd(true);
  s.expect_event(Host::Event::kSqDrained);
  // The responder goes on.
  s.post_receive(1);
  s.inject(packet(Opcode::kRcSendOnly, 500, 1).asks_ack());
  s.expect_ack(500);
  s.expect_receive(1);
}

TEST(Sqd, GoBackInSqdRepeatsWhatWasSent) {
  Script s;
  s.post(send(1, 1));
  s.expect_requests(100, 100);
  s.qp->set_sqd(true);
  s.post(send(2, 1));
  s.advance(milliseconds(68));
  s.expect_requests(100, 100);
  s.inject(ack(100));
  s.expect_completion(1);
  s.expect_event(Host::Event::kSqDrained);
  s.qp->to_error(s.now);
  s.expect_completion(2, Status::kFlush);
}

}  // namespace
}  // namespace ferry::transport::test
