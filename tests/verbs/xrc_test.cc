#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <future>

#include "rig.h"
#include "verbs/objects.h"

namespace ferry::verbs {
namespace {

struct Xrc : FullRig {
  ibv_xrcd* open(int file, int flags,
                 std::uint32_t mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS) {
    ibv_xrcd_init_attr attributes{mask, file, flags};
    errno = 0;
    return ibv_open_xrcd(context, &attributes);
  }
  ibv_srq* create_srq(ibv_xrcd* xrcd) {
    ibv_srq_init_attr_ex attributes{};
    attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                           IBV_SRQ_INIT_ATTR_CQ;
    attributes.srq_type = IBV_SRQT_XRC;
    attributes.attr = {16, 1, 0};
    attributes.pd = pd;
    attributes.cq = cq;
    attributes.xrcd = xrcd;
    return ibv_create_srq_ex(context, &attributes);
  }
  ibv_qp* create_target(ibv_xrcd* xrcd) {
    ibv_qp_init_attr_ex attributes{};
    attributes.qp_type = IBV_QPT_XRC_RECV;
    attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attributes.xrcd = xrcd;
    return ibv_create_qp_ex(context, &attributes);
  }
  ibv_qp* open_again(ibv_xrcd* xrcd, std::uint32_t number, ibv_qp_type type = IBV_QPT_XRC_RECV) {
    ibv_qp_open_attr attributes{};
    attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE |
                           IBV_QP_OPEN_ATTR_CONTEXT;
    attributes.qp_num = number;
    attributes.xrcd = xrcd;
    attributes.qp_type = type;
    attributes.qp_context = this;
    errno = 0;
    return ibv_open_qp(context, &attributes);
  }
};

TEST_F(Xrc, ADomainWithoutAFileIsNobodyElses) {
  ibv_xrcd* a = open(-1, O_CREAT);
  ibv_xrcd* b = open(-1, O_CREAT | O_EXCL);
  ASSERT_TRUE(a && b);
  EXPECT_NE(to_xrcd(a)->domain, to_xrcd(b)->domain);
  EXPECT_EQ(ibv_close_xrcd(a), 0);
  EXPECT_EQ(ibv_close_xrcd(b), 0);
  EXPECT_EQ(log.count("open_xrcd"), 2u);
}

// A device of the kernel, whose domains other contexts and processes have as well.
struct SharedXrc : Xrc {
  void SetUp() override {
    set_own_descriptors(true);
    Xrc::SetUp();
    set_own_descriptors(false);
  }
};

TEST_F(SharedXrc, TheDeviceGetsTheFileAndDecides) {
  const int file = ::memfd_create("xrc", 0);
  ibv_xrcd* found = open(file, 0);  // another process has made it
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(log.last("open_xrcd"), "file=1 flags=0");
  ibv_xrcd* again = open(file, O_CREAT);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(log.count("open_xrcd"), 1u) << "this context has it already";
  ibv_context* other = ibv_open_device(context->device);
  ASSERT_NE(other, nullptr);
  ibv_xrcd_init_attr attributes{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, file, O_CREAT};
  ibv_xrcd* in_other = ibv_open_xrcd(other, &attributes);
  ASSERT_NE(in_other, nullptr);
  EXPECT_EQ(log.count("open_xrcd"), 2u);
  EXPECT_EQ(ibv_close_xrcd(in_other), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
  EXPECT_EQ(ibv_close_xrcd(again), 0);
  EXPECT_EQ(ibv_close_xrcd(found), 0);
  ::close(file);
}

TEST_F(SharedXrc, TheDeviceOpensTheTargetsOfOthers) {
  const int file = ::memfd_create("xrc", 0);
  ibv_xrcd* shared = open(file, O_CREAT);
  ibv_qp* qp = open_again(shared, 0x777);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(log.last("open_qp"), std::to_string(0x777));
  EXPECT_EQ(qp->qp_num, 0x777u);
  EXPECT_EQ(qp->qp_context, this);
  log.fail_next("open_qp", EINVAL);
  EXPECT_EQ(open_again(shared, 0x778), nullptr);
  EXPECT_EQ(errno, EINVAL);
  // The device is not asked for a target that the context has; and its events are those of the oldest struct.
  ibv_qp* mine = create_target(shared);
  ibv_qp* again = open_again(shared, mine->qp_num);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(log.count("open_qp"), 2u);
  fake->events->push({IBV_EVENT_QP_LAST_WQE_REACHED, to_qp(mine)->device, 1});
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context, &event), 0);
  EXPECT_EQ(event.element.qp, mine);
  ibv_ack_async_event(&event);
  EXPECT_EQ(ibv_destroy_qp(again), 0) << "no event of it is out";
  EXPECT_EQ(ibv_destroy_qp(mine), 0);
  EXPECT_EQ(ibv_close_xrcd(shared), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_close_xrcd(shared), 0);
  // Nobody else has a domain without a file.
  ibv_xrcd* own = open(-1, O_CREAT);
  EXPECT_EQ(open_again(own, 0x777), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(log.count("open_qp"), 2u);
  EXPECT_EQ(ibv_close_xrcd(own), 0);
  ::close(file);
}

TEST_F(Xrc, AFileNamesADomain) {
  const int file = ::memfd_create("xrc", 0);
  const int same = ::dup(file);
  const int other = ::memfd_create("xrc", 0);
  EXPECT_EQ(open(file, 0), nullptr);  // there is none yet
  EXPECT_EQ(errno, EAGAIN);
  ibv_xrcd* first = open(file, O_CREAT | O_EXCL);
  ASSERT_NE(first, nullptr);
  for (const int flags : {O_CREAT | O_EXCL, O_EXCL}) {
    EXPECT_EQ(open(same, flags), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
  ::close(file);  // the domain keeps its name
  ibv_xrcd* again = open(same, 0);
  ASSERT_NE(again, nullptr);
  EXPECT_NE(again, first);
  EXPECT_EQ(to_xrcd(again)->domain, to_xrcd(first)->domain);
  ibv_xrcd* another = open(other, O_CREAT);
  ASSERT_NE(another, nullptr);
  EXPECT_NE(to_xrcd(another)->domain, to_xrcd(first)->domain);
  EXPECT_EQ(ibv_close_xrcd(first), 0);
  EXPECT_EQ(log.count("destroy"), 0u);
  EXPECT_EQ(ibv_close_xrcd(again), 0);
  EXPECT_EQ(log.last("destroy"), "xrcd");
  EXPECT_EQ(open(same, 0), nullptr);  // gone with the last
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(ibv_close_xrcd(another), 0);
  ::close(same);
  ::close(other);
}

// Each context is an RNIC of its own, and one's targets cannot take from another's SRQs.
TEST_F(Xrc, AFileNamesADomainOfOneContext) {
  const int file = ::memfd_create("xrc", 0);
  ibv_context* other = ibv_open_device(context->device);
  ASSERT_NE(other, nullptr);
  const auto open_in_other = [&](int flags) {
    ibv_xrcd_init_attr attributes{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, file, flags};
    errno = 0;
    return ibv_open_xrcd(other, &attributes);
  };
  ibv_xrcd* first = open(file, O_CREAT);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(open_in_other(O_CREAT), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(open_in_other(0), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(open_in_other(O_CREAT | O_EXCL), nullptr);
  EXPECT_EQ(errno, EINVAL);  // it exists, wherever
  ibv_xrcd_init_attr nameless{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1, O_CREAT};
  ibv_xrcd* own = ibv_open_xrcd(other, &nameless);
  EXPECT_NE(own, nullptr);
  EXPECT_EQ(ibv_close_xrcd(own), 0);
  // The name is free again with the last reference.
  EXPECT_EQ(ibv_close_xrcd(first), 0);
  EXPECT_EQ(open_in_other(0), nullptr);
  EXPECT_EQ(errno, EAGAIN);
  first = open_in_other(O_CREAT);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(open(file, O_CREAT), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_close_xrcd(first), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
  ::close(file);
}

// A thread that waits for a device which is away holds its context.
TEST_F(Xrc, OtherContextsDoNotWaitForOneThatOpensADomain) {
  const int file = ::memfd_create("xrc", 0);
  ibv_context* other = ibv_open_device(context->device);
  ASSERT_NE(other, nullptr);
  std::unique_lock held(context_of(context)->mutex);
  auto waiting = std::async(std::launch::async, [&] { return open(file, O_CREAT); });
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  auto going_on = std::async(std::launch::async, [&] {
    ibv_xrcd_init_attr attributes{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, file, O_CREAT};
    return ibv_open_xrcd(other, &attributes);
  });
  EXPECT_EQ(going_on.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  held.unlock();
  ibv_xrcd* domain = going_on.get();
  ASSERT_NE(domain, nullptr);
  EXPECT_EQ(waiting.get(), nullptr) << "the other context was first";
  EXPECT_EQ(ibv_close_xrcd(domain), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
  ::close(file);
}

// The domain that could not be made has no name, and neither has one that ends with its context.
TEST_F(Xrc, AFileThatNamesNothingAnyMoreIsFree) {
  const int file = ::memfd_create("xrc", 0);
  log.fail_next("open_xrcd", ENOMEM);
  EXPECT_EQ(open(file, O_CREAT), nullptr);
  ibv_context* other = ibv_open_device(context->device);
  ASSERT_NE(other, nullptr);
  ibv_xrcd_init_attr attributes{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, file, O_CREAT};
  ibv_xrcd* left = ibv_open_xrcd(other, &attributes);
  ASSERT_NE(left, nullptr);
  EXPECT_EQ(ibv_close_device(other), 0);
  delete to_xrcd(left);
  ibv_xrcd* domain = open(file, O_CREAT);
  ASSERT_NE(domain, nullptr);
  EXPECT_EQ(ibv_close_xrcd(domain), 0);
  ::close(file);
}

TEST_F(Xrc, BadArgumentsOfADomain) {
  EXPECT_EQ(open(9999, O_CREAT), nullptr);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(open(-1, O_CREAT, IBV_XRCD_INIT_ATTR_FD), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(open(-1, O_CREAT, 7), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(open(-1, O_RDWR), nullptr);
  EXPECT_EQ(errno, EINVAL);
  log.fail_next("open_xrcd", ENOMEM);
  EXPECT_EQ(open(-1, O_CREAT), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(Xrc, SrqsAndTargetsHoldTheirDomain) {
  ibv_xrcd* xrcd = open(-1, O_CREAT);
  ibv_srq* srq = create_srq(xrcd);
  ASSERT_NE(srq, nullptr);
  std::uint32_t number = 0;
  EXPECT_EQ(ibv_get_srq_num(srq, &number), 0);
  EXPECT_NE(number, 0u);
  EXPECT_EQ(ibv_get_srq_num(srq, nullptr), EINVAL);
  EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY);
  // XRC SRQs are named by each request, not by a QP.
  ibv_qp_init_attr attributes = qp_attributes();
  attributes.srq = srq;
  errno = 0;
  EXPECT_EQ(ibv_create_qp(pd, &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  ibv_qp* target = create_target(xrcd);
  ASSERT_NE(target, nullptr);
  EXPECT_EQ(target->pd, nullptr);
  EXPECT_EQ(target->send_cq, nullptr);
  EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(target), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

TEST_F(Xrc, AnInitiatorOnlySends) {
  ibv_qp_init_attr attributes = qp_attributes();
  attributes.qp_type = IBV_QPT_XRC_SEND;
  attributes.recv_cq = nullptr;
  ibv_qp* initiator = ibv_create_qp(pd, &attributes);
  ASSERT_NE(initiator, nullptr);
  EXPECT_EQ(attributes.cap.max_recv_wr, 0u);
  EXPECT_EQ(ibv_destroy_qp(initiator), 0);
  attributes = qp_attributes();
  attributes.qp_type = IBV_QPT_XRC_SEND;
  attributes.send_cq = nullptr;
  errno = 0;
  EXPECT_EQ(ibv_create_qp(pd, &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Xrc, ATargetIsOpenedAgainByItsNumber) {
  ibv_xrcd* xrcd = open(-1, O_CREAT);
  ibv_xrcd* other = open(-1, O_CREAT);
  ibv_qp* target = create_target(xrcd);
  ASSERT_NE(target, nullptr);
  EXPECT_EQ(open_again(other, target->qp_num), nullptr);  // in this domain there is none
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(open_again(xrcd, target->qp_num + 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(open_again(xrcd, qp->qp_num, IBV_QPT_RC), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_qp* second = open_again(xrcd, target->qp_num);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second, target);
  EXPECT_EQ(second->qp_num, target->qp_num);
  EXPECT_EQ(second->qp_type, IBV_QPT_XRC_RECV);
  EXPECT_EQ(second->qp_context, this);
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_INIT;
  EXPECT_EQ(ibv_modify_qp(second, &state, IBV_QP_STATE), 0);
  ibv_qp_init_attr init;
  EXPECT_EQ(ibv_query_qp(target, &state, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(target->state, IBV_QPS_INIT);  // it is one QP

  // Every struct of it gets every event.
  fake->sink().asynchronous(IBV_EVENT_QP_LAST_WQE_REACHED, to_qp(target)->device);
  ibv_async_event a, b;
  ASSERT_EQ(ibv_get_async_event(context, &a), 0);
  ASSERT_EQ(ibv_get_async_event(context, &b), 0);
  EXPECT_EQ(a.element.qp, target);
  EXPECT_EQ(b.element.qp, second);
  ibv_ack_async_event(&a);
  ibv_ack_async_event(&b);

  EXPECT_EQ(ibv_destroy_qp(target), 0);  // the one that made it may go first
  EXPECT_EQ(log.count("destroy"), 0u);
  EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY);
  fake->sink().asynchronous(IBV_EVENT_QP_LAST_WQE_REACHED, to_qp(second)->device);
  ASSERT_EQ(ibv_get_async_event(context, &a), 0);
  EXPECT_EQ(a.element.qp, second);
  ibv_ack_async_event(&a);
  const std::uint32_t number = second->qp_num;
  EXPECT_EQ(ibv_destroy_qp(second), 0);
  EXPECT_EQ(log.last("destroy"), "qp");
  EXPECT_EQ(open_again(xrcd, number), nullptr);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
  EXPECT_EQ(ibv_close_xrcd(other), 0);
}

TEST_F(Xrc, AQpThatTheDeviceKeepsStaysWhole) {
  ibv_xrcd* xrcd = open(-1, O_CREAT);
  ibv_qp* target = create_target(xrcd);
  log.fail_next("destroy", EBUSY);
  EXPECT_EQ(ibv_destroy_qp(target), EBUSY);
  ibv_qp* second = open_again(xrcd, target->qp_num);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(ibv_destroy_qp(second), 0);
  EXPECT_EQ(ibv_destroy_qp(target), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

TEST_F(Xrc, BadArgumentsOfOpenQp) {
  ibv_xrcd* xrcd = open(-1, O_CREAT);
  ibv_qp* target = create_target(xrcd);
  ibv_qp_open_attr attributes{};
  attributes.qp_num = target->qp_num;
  attributes.xrcd = xrcd;
  attributes.qp_type = IBV_QPT_XRC_RECV;
  attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD;
  errno = 0;
  EXPECT_EQ(ibv_open_qp(context, &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attributes.comp_mask = IBV_QP_OPEN_ATTR_RESERVED;
  EXPECT_EQ(ibv_open_qp(context, &attributes), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attributes.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attributes.xrcd = nullptr;
  EXPECT_EQ(ibv_open_qp(context, &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_destroy_qp(target), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

}  // namespace
}  // namespace ferry::verbs
