#include <fcntl.h>

#include <cerrno>
#include <initializer_list>
#include <string>

#include "hca/queue_pair.h"
#include "rig.h"

// XRC on a device of the kernel (annex A14).
namespace ferry::hca::testing {
namespace {

// An XRC domain with an SRQ.
struct HcaXrc : Hca {
  device::Xrcd* xrcd = nullptr;
  device::Srq* srq = nullptr;

  void SetUp() override {
    Hca::SetUp();
    ASSERT_EQ(context->open_xrcd({44, O_CREAT}, &xrcd), 0);
    ASSERT_EQ(create_srq(), 0);
  }
  int create_srq() {
    device::SrqInit init;
    init.pd = pd;
    init.xrcd = xrcd;
    init.cq = cq;
    return context->create_srq(&init, &srq);
  }
  int create_target(device::Qp** out) const {
    device::QpInit init;
    init.xrcd = xrcd;
    init.type = IBV_QPT_XRC_RECV;
    return context->create_qp(&init, out);
  }
};

TEST_F(HcaXrc, TheFileOfADomainReachesTheKernel) {
  EXPECT_TRUE(context->shares_xrcds());
  EXPECT_EQ(stock().count("file 44 flags " + std::to_string(O_CREAT)), 1u);
  device::Xrcd* nameless = nullptr;
  ASSERT_EQ(context->open_xrcd({}, &nameless), 0);
  EXPECT_EQ(stock().count("file -1 flags 0"), 1u);
  stock().fails = "ibv_open_xrcd";
  stock().error = EAGAIN;
  device::Xrcd* refused = nullptr;
  EXPECT_EQ(context->open_xrcd({44, 0}, &refused), EAGAIN) << "the kernel has no such domain";
}

TEST_F(HcaXrc, AnSrqHasTheKernelsNumber) {
  EXPECT_EQ(stock().count("srq type " + std::to_string(IBV_SRQT_XRC)), 1u);
  EXPECT_NE(srq->number(), 0u);
  const int live = stock().live;
  stock().fails = "ibv_get_srq_num";
  stock().error = EIO;
  EXPECT_EQ(create_srq(), EIO);
  EXPECT_EQ(stock().live, live) << "nobody could send to an SRQ without a number";
}

TEST_F(HcaXrc, ARequestNamesTheSrqOfThePeer) {
  device::Qp* qp = make_qp(IBV_QPT_XRC_SEND, IBV_QP_EX_WITH_SEND);
  Requests requests(2);
  requests.wrs[0].qp_type.xrc.remote_srqn = 7;
  ASSERT_EQ(qp->post_send(requests.wrs.data(), &requests.bad), 0);
  ASSERT_EQ(stock().posted.size(), 2u);
  EXPECT_EQ(stock().posted[0].qp_type.xrc.remote_srqn, 7u);
  requests.wrs[0].next = nullptr;
  requests.wrs[0].num_sge = 1;
  ibv_sge element{};
  requests.wrs[0].sg_list = &element;
  ASSERT_EQ(qp->post_all(requests.wrs.data()), 0);
  EXPECT_EQ(stock().count("srqn 7"), 1u);
}

TEST_F(HcaXrc, ATargetIsOpenedAgain) {
  device::Qp* target = nullptr;
  ASSERT_EQ(create_target(&target), 0);
  device::Qp* again = nullptr;
  ASSERT_EQ(context->open_qp(xrcd, target->qpn(), &again), 0);
  EXPECT_EQ(again->qpn(), target->qpn());
  ibv_async_event event{};
  event.event_type = IBV_EVENT_COMM_EST;
  event.element.qp = static_cast<Qp*>(again)->real;
  stock().events.push_back(event);
  device::AsynchronousEvent seen;
  ASSERT_EQ(context->take_asynchronous(&seen), 0);
  EXPECT_EQ(seen.object, again) << "the kernel tells each of those who have opened it";
  stock().fails = "ibv_open_qp";
  stock().error = EINVAL;
  device::Qp* refused = nullptr;
  EXPECT_EQ(context->open_qp(xrcd, 0x999, &refused), EINVAL);
  for (device::Object* object :
       std::initializer_list<device::Object*>{again, target, srq, xrcd, cq, pd})
    EXPECT_EQ(context->destroy(object), 0);
  EXPECT_EQ(stock().live, 0);
}

}  // namespace
}  // namespace ferry::hca::testing
