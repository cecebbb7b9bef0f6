#include "device/fake.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace ferry::device::fake {
namespace {

struct Sink final : EventSink {
  void completion(Cq&) override { ++completions; }
  void asynchronous(ibv_event_type type, Object*) override { last = type; }
  int completions = 0;
  int last = -1;
};

struct Fake : ::testing::Test {
  std::shared_ptr<Log> log = std::make_shared<Log>();
  FakeRnic rnic{log, "fake0", "eth9", 0x42};
  Sink sink;
  int error = 0;
  std::unique_ptr<Context> context = rnic.open(sink, &error);
  Pd* pd = nullptr;
  Cq* cq = nullptr;
  Qp* qp = nullptr;

  void SetUp() override {
    ASSERT_EQ(context->alloc_pd(&pd), 0);
    ASSERT_EQ(context->create_cq({16}, &cq), 0);
    QpInit init;
    init.pd = pd;
    init.send_cq = init.recv_cq = cq;
    ASSERT_EQ(context->create_qp(&init, &qp), 0);
  }
};

TEST_F(Fake, RecordsCallsInOrder) {
  const auto calls = log->calls();
  ASSERT_EQ(calls.size(), 4u);
  EXPECT_EQ(calls[0].function, "open");
  EXPECT_EQ(calls[1].function, "alloc_pd");
  EXPECT_EQ(calls[2].function, "create_cq");
  EXPECT_EQ(calls[2].detail, "16 timestamps=0 ignore_overrun=0");
  EXPECT_EQ(calls[3].function, "create_qp");
}

TEST_F(Fake, FailsWhenAsked) {
  log->fail_next("alloc_pd", ENOMEM);
  Pd* other = nullptr;
  EXPECT_EQ(context->alloc_pd(&other), ENOMEM);
  EXPECT_EQ(context->alloc_pd(&other), 0);
  log->fail_next("open", EMFILE);
  EXPECT_EQ(rnic.open(sink, &error), nullptr);
  EXPECT_EQ(error, EMFILE);
}

TEST_F(Fake, KeepsCopiesOfInlineData) {
  char text[] = "hello";
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(text), 5, 0};
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_INLINE;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(qp->post_send(&wr, &bad), 0);
  text[0] = 'x';
  const auto sent = static_cast<FakeQp*>(qp)->sent();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(std::memcmp(sent[0].inline_data.data(), "hello", 5), 0);
}

TEST_F(Fake, NamesTheRequestThatFailed) {
  ibv_send_wr first{}, second{};
  first.next = &second;
  ibv_send_wr* bad = nullptr;
  log->fail_next("post_send", 0);
  log->fail_next("post_send", ENOMEM);
  EXPECT_EQ(qp->post_send(&first, &bad), ENOMEM);
  EXPECT_EQ(bad, &second);
  EXPECT_EQ(static_cast<FakeQp*>(qp)->sent().size(), 1u);
}

TEST_F(Fake, ArmedCqRaisesOneEvent) {
  auto* fake = static_cast<FakeCq*>(cq);
  fake->push({});
  EXPECT_EQ(sink.completions, 0);
  cq->arm(true);
  fake->push({});
  EXPECT_EQ(sink.completions, 0);
  fake->push({}, true);
  EXPECT_EQ(sink.completions, 1);
  fake->push({}, true);
  EXPECT_EQ(sink.completions, 1);
  ibv_wc completions[8];
  EXPECT_EQ(cq->poll(8, completions), 4);
}

TEST_F(Fake, ObjectsInUseAreBusy) {
  EXPECT_EQ(context->destroy(pd), EBUSY);
  EXPECT_EQ(context->destroy(cq), EBUSY);
  EXPECT_EQ(context->destroy(qp), 0);
  EXPECT_EQ(context->destroy(cq), 0);
  EXPECT_EQ(context->destroy(pd), 0);
  EXPECT_EQ(context->destroy(pd), EINVAL);
}

TEST_F(Fake, EveryObjectKeepsWhatItWasMadeOf) {
  Xrcd* xrcd = nullptr;
  ASSERT_EQ(context->open_xrcd({}, &xrcd), 0);
  SrqInit wanted;
  wanted.pd = pd;
  wanted.xrcd = xrcd;
  wanted.cq = cq;
  Srq* srq = nullptr;
  ASSERT_EQ(context->create_srq(&wanted, &srq), 0);
  EXPECT_NE(srq->number(), 0u);
  Mw* window = nullptr;
  ASSERT_EQ(context->alloc_mw(pd, IBV_MW_TYPE_1, &window), 0);
  Ah* ah = nullptr;
  ASSERT_EQ(context->create_ah(pd, {}, &ah), 0);
  EXPECT_NE(ah->handle(), window->handle());
  EXPECT_EQ(context->destroy(qp), 0);
  EXPECT_EQ(context->destroy(xrcd), EBUSY);
  EXPECT_EQ(context->destroy(cq), EBUSY);
  EXPECT_EQ(context->destroy(srq), 0);
  EXPECT_EQ(context->destroy(xrcd), 0);
  EXPECT_EQ(context->destroy(cq), 0);
  EXPECT_EQ(context->destroy(pd), EBUSY);
  EXPECT_EQ(context->destroy(window), 0);
  EXPECT_EQ(context->destroy(pd), EBUSY);
  EXPECT_EQ(context->destroy(ah), 0);
  EXPECT_EQ(context->destroy(pd), 0);
}

TEST_F(Fake, PostsAllOrNothing) {
  ibv_send_wr first{}, second{};
  first.next = &second;
  log->fail_next("post_all", ENOMEM);
  EXPECT_EQ(qp->post_all(&first), ENOMEM);
  EXPECT_TRUE(static_cast<FakeQp*>(qp)->sent().empty());
  EXPECT_EQ(qp->post_all(&first), 0);
  EXPECT_EQ(static_cast<FakeQp*>(qp)->sent().size(), 2u);
}

}  // namespace
}  // namespace ferry::device::fake
