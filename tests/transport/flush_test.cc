#include "transport/script.h"

namespace ferry::transport::test {
namespace {

TEST(Flush, CompletesEverythingInOrder) {
  Script s;
  s.post_receive(7);
  s.post_receive(8);
  s.inject(packet(Opcode::kRcSendFirst, 500));  // takes receive 7
  for (int i = 1; i <= 3; ++i) s.post(send(i, 1));
  s.expect_requests(100, 102);
  s.qp->to_error(s.now);
  for (int i = 1; i <= 3; ++i) s.expect_completion(i, Status::kFlush);
  s.expect_receive(7, Status::kFlush);
  s.expect_receive(8, Status::kFlush);
  EXPECT_EQ(s.host.flushes, 1u);
}

TEST(Flush, PostingInErrorCompletesAtOnce) {
  Script s;
  s.qp->to_error(s.now);
  EXPECT_EQ(s.qp->post_send({.wr_id = 5}), 0);
  s.expect_completion(5, Status::kFlush);
}

TEST(Flush, ResetCompletesNothingAndForgets) {
  Script s;
  s.post(send(1, 4 * kMtu));
  s.expect_requests(100, 103);
  EXPECT_GT(s.host.accounted(), 0);
  s.qp->reset();
  EXPECT_EQ(s.host.accounted(), 0);
  EXPECT_EQ(s.qp->next_deadline(), kNever);
  EXPECT_FALSE(s.qp->has_work());
  s.inject(ack(103), packet(Opcode::kRcSendOnly, 500, 1));
  s.expect_silence();
  // A new incarnation starts clean.
  s.qp->init();
  s.qp->to_rtr(s.options.rtr, s.now);
  s.qp->to_rts({.next_psn = 7, .timeout = 14, .retry_count = 7, .rnr_retry = 7, .max_rd_atomic = 1},
               s.now);
  s.inject(ack(6));
  s.post(send(9, 1));
  s.expect_requests(7, 7);
  s.inject(ack(7));
  s.expect_completion(9);
}

}  // namespace
}  // namespace ferry::transport::test
