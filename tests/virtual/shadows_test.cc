#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "device/fake.h"
#include "device/gids.h"
#include "port/address_text.h"
#include "virtual/rnic.h"
#include "virtual/shadows/gids.h"

// A virtual device over the recording fake: what reaches the device behind, and what comes back.
namespace ferry::virt {
namespace {

using device::fake::FakeContext;
using device::fake::FakeCq;
using device::fake::FakeQp;
using device::fake::FakeRnic;
using device::fake::Log;

struct Shadows : ::testing::Test, device::EventSink, device::MoveSink {
  std::shared_ptr<Log> log = std::make_shared<Log>();
  FakeRnic* fake_rnic = nullptr;
  FakeContext* fake = nullptr;
  std::unique_ptr<Rnic> rnic;
  std::unique_ptr<device::MovableContext> context;
  device::Pd* pd = nullptr;
  device::Cq* cq = nullptr;
  device::Qp* qp = nullptr;
  std::vector<device::Cq*> completed;
  std::vector<std::pair<ibv_event_type, device::Object*>> happened;

  void completion(device::Cq& raised) override { completed.push_back(&raised); }
  void asynchronous(ibv_event_type type, device::Object* object) override {
    happened.emplace_back(type, object);
  }

  void open(bool own_descriptors) {
    auto inner = std::make_unique<FakeRnic>(log, "fake0", "eth9", 0x0123456789abcdef);
    fake_rnic = inner.get();
    fake_rnic->own_descriptors = own_descriptors;
    rnic = std::make_unique<Rnic>(std::move(inner));
    int error = 0;
    context = rnic->open_movable(*this, *this, &error);
    ASSERT_NE(context, nullptr);
    fake = fake_rnic->last_opened();
    ASSERT_EQ(context->alloc_pd(&pd), 0);
    ASSERT_EQ(context->create_cq({16}, &cq), 0);
    device::QpInit init;
    init.pd = pd;
    init.send_cq = init.recv_cq = cq;
    ASSERT_EQ(context->create_qp(&init, &qp), 0);
  }
  void SetUp() override { open(false); }

  FakeQp& fake_qp() const { return *static_cast<FakeQp*>(behind(qp)); }
  FakeCq& fake_cq() const { return *static_cast<FakeCq*>(behind(cq)); }
};

bool is_readable(int descriptor) {
  pollfd wanted{descriptor, POLLIN, 0};
  return ::poll(&wanted, 1, 0) == 1;
}

TEST_F(Shadows, StandBeforeObjectsOfTheDevice) {
  EXPECT_EQ(fake_qp().init.pd, behind(pd));
  EXPECT_EQ(fake_qp().init.send_cq, behind(cq));
  EXPECT_EQ(fake_qp().init.recv_cq, behind(cq));
  EXPECT_EQ(fake_qp().init.srq, nullptr);
  EXPECT_EQ(qp->qpn(), fake_qp().qpn());
  device::Mr* mr = nullptr;
  char memory[8];
  ASSERT_EQ(context->reg_mr({pd, memory, sizeof memory, 5, IBV_ACCESS_LOCAL_WRITE}, &mr), 0);
  const auto& of_device = static_cast<device::fake::FakeMr*>(behind(mr))->init;
  EXPECT_EQ(of_device.pd, behind(pd));
  EXPECT_EQ(of_device.iova, 5u);
  EXPECT_EQ(mr->lkey(), behind(mr)->lkey());
  EXPECT_EQ(mr->rkey(), behind(mr)->rkey());
  device::SrqInit init{pd, {{}, 8, 1}};
  device::Srq* srq = nullptr;
  ASSERT_EQ(context->create_srq(&init, &srq), 0);
  EXPECT_EQ(static_cast<device::fake::FakeSrq*>(behind(srq))->init.pd, behind(pd));
  EXPECT_EQ(rnic->name(), "fake0");
  EXPECT_EQ(rnic->netdev(), "eth9");
  EXPECT_EQ(rnic->guid(), 0x0123456789abcdefu);
}

TEST_F(Shadows, RequestsPassAsTheyAre) {
  ibv_sge sge{1, 2, 3};
  ibv_send_wr wr{};
  wr.wr_id = 7;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(qp->post_send(&wr, &bad), 0);
  ASSERT_EQ(fake_qp().sent().size(), 1u);
  EXPECT_EQ(fake_qp().sent()[0].wr.wr_id, 7u);
  log->fail_next("post_send", ENOMEM);
  EXPECT_EQ(qp->post_send(&wr, &bad), ENOMEM);
  EXPECT_EQ(bad, &wr);
  ibv_recv_wr recv{};
  recv.wr_id = 8;
  ibv_recv_wr* bad_recv = nullptr;
  ASSERT_EQ(qp->post_recv(&recv, &bad_recv), 0);
  EXPECT_EQ(fake_qp().received()[0].wr_id, 8u);
  ibv_wc completion{};
  completion.wr_id = 7;
  fake_cq().push(completion);
  ibv_wc out{};
  EXPECT_EQ(cq->poll(1, &out), 1);
  EXPECT_EQ(out.wr_id, 7u);
}

TEST_F(Shadows, EventsNameTheShadow) {
  ASSERT_EQ(cq->arm(false), 0);
  fake_cq().push({});
  EXPECT_EQ(completed, std::vector<device::Cq*>{cq});
  fake->sink().asynchronous(IBV_EVENT_QP_FATAL, behind(qp));
  fake->sink().asynchronous(IBV_EVENT_PORT_ERR, nullptr);
  FakeQp unknown(log, {}, 99);
  fake->sink().asynchronous(IBV_EVENT_QP_FATAL, &unknown);
  ASSERT_EQ(happened.size(), 2u) << "the application does not know the third one's QP";
  EXPECT_EQ(happened[0].second, qp);
  EXPECT_EQ(happened[1].second, nullptr);
}

struct ShadowsWithDescriptors : Shadows {
  void SetUp() override { open(true); }
};

TEST_F(ShadowsWithDescriptors, EventsNameTheShadow) {
  ASSERT_EQ(::fcntl(context->asynchronous_descriptor(), F_SETFL, O_NONBLOCK), 0);
  device::Channel* channel = nullptr;
  ASSERT_EQ(context->create_channel(&channel), 0);
  device::CqInit init{16};
  init.channel = channel;
  device::Cq* raising = nullptr;
  ASSERT_EQ(context->create_cq(init, &raising), 0);
  ASSERT_EQ(raising->arm(false), 0);
  EXPECT_FALSE(is_readable(channel->descriptor()));
  static_cast<FakeCq*>(behind(raising))->push({});
  EXPECT_TRUE(is_readable(channel->descriptor()));
  device::Cq* raised = nullptr;
  ASSERT_EQ(channel->take(&raised), 0);
  EXPECT_EQ(raised, raising);
  EXPECT_EQ(log->count("acknowledge_cq"), 1u) << "the device may destroy its CQ";
  raised->acknowledge();
  EXPECT_EQ(log->count("acknowledge_cq"), 1u);
  EXPECT_FALSE(is_readable(channel->descriptor()));
  EXPECT_EQ(context->destroy(raising), 0);

  FakeQp unknown(log, {}, 99);
  fake->events->push({IBV_EVENT_QP_ACCESS_ERR, &unknown});
  fake->events->push({IBV_EVENT_QP_FATAL, behind(qp)});
  device::AsynchronousEvent event;
  ASSERT_EQ(context->take_asynchronous(&event), 0);
  EXPECT_EQ(event.object, qp);
  EXPECT_EQ(log->count("acknowledge"), 2u) << "the device may destroy both QPs";
  EXPECT_EQ(context->take_asynchronous(&event), EAGAIN);
  context->acknowledge(event);
  EXPECT_EQ(context->destroy(qp), 0);
}

TEST_F(Shadows, LiveAsLongAsTheirObjects) {
  EXPECT_EQ(context->destroy(cq), EBUSY) << "a QP uses it";
  ibv_wc out{};
  EXPECT_EQ(cq->poll(1, &out), 0);
  EXPECT_EQ(context->destroy(qp), 0);
  EXPECT_EQ(context->destroy(cq), 0);
  EXPECT_EQ(context->destroy(pd), 0);
  log->fail_next("create_cq", ENOMEM);
  device::Cq* none = nullptr;
  EXPECT_EQ(context->create_cq({16}, &none), ENOMEM);
  EXPECT_EQ(none, nullptr);
}

TEST_F(Shadows, AWindowIsBoundToTheRegionBehind) {
  device::Mw* mw = nullptr;
  device::Mr* mr = nullptr;
  ASSERT_EQ(context->alloc_mw(pd, IBV_MW_TYPE_1, &mw), 0);
  ASSERT_EQ(context->reg_mr({pd}, &mr), 0);
  device::MwBind bind;
  bind.mr = mr;
  std::uint32_t rkey = 0;
  ASSERT_EQ(qp->bind_mw(mw, bind, &rkey), 0);
  EXPECT_EQ(rkey, mw->rkey());
}

// The fake counts its handles and keys, and begins anew on each device.
TEST_F(Shadows, AWindowWhoseNumberIsTakenIsMadeAgain) {
  device::Mw *first = nullptr, *second = nullptr, *third = nullptr;
  ASSERT_EQ(context->alloc_mw(pd, IBV_MW_TYPE_2, &first), 0);
  ASSERT_EQ(context->alloc_mw(pd, IBV_MW_TYPE_2, &second), 0);
  ASSERT_EQ(context->destroy(first), 0);
  std::uint32_t unacked = 0;
  device::Parcel parcel;
  ASSERT_EQ(context->quiesce(std::chrono::seconds(1), &unacked), 0);
  ASSERT_EQ(context->park(&parcel), 0);
  ASSERT_EQ(context->unpark(parcel), 0);
  context->resume(false);
  EXPECT_NE(behind(second)->handle(), second->handle());
  EXPECT_NE(behind(second)->rkey(), second->rkey());
  ASSERT_EQ(context->alloc_mw(pd, IBV_MW_TYPE_2, &third), 0);
  EXPECT_EQ(third->handle(), behind(third)->handle());
  EXPECT_EQ(third->handle(), second->handle() + 1) << "the first number is that of another window";
  EXPECT_EQ(third->rkey(), behind(third)->rkey());
}

// QPs of different hosts may have the same number, and somebody else may have the GID of the former host.
TEST_F(Shadows, GidsOfDifferentPlacesMakeNoConnectionWithinTheProgram) {
  fake->device_attributes.phys_port_cnt_ex = 1;
  Gids gids;
  ibv_ah_attr path{};
  path.port_num = 1;
  path.is_global = 1;
  const auto entry = [&] {
    ibv_gid_entry made{};
    EXPECT_EQ(fake->query_gid(1, 0, &made), 0);
    return made;
  };
  const ibv_gid_entry former = entry();
  EXPECT_FALSE(gids.is_own(path));
  gids.learn(*fake);
  path.grh.dgid = former.gid;
  EXPECT_TRUE(gids.is_own(path));
  fake->gids[0][15] = 99;
  gids.match(*fake);
  EXPECT_TRUE(gids.is_own(path)) << "made before the move";
  gids.name(entry(), 1);
  path.grh.sgid_index = 1;
  EXPECT_FALSE(gids.is_own(path));
  path.grh.dgid = entry().gid;
  EXPECT_TRUE(gids.is_own(path));
  path.grh.dgid = former.gid;
  gids.match(*fake);
  EXPECT_FALSE(gids.is_own(path)) << "also after another move";
}

TEST_F(Shadows, AGidThatNoIndexIsLeftForKeepsThatOfTheDevice) {
  fake->device_attributes.phys_port_cnt_ex = 1;
  fake->port_attributes.gid_tbl_len = 256;
  fake->gids.resize(256, fake->gids[0]);
  for (std::size_t i = 0; i < 256; ++i) fake->gids[i][15] = static_cast<std::uint8_t>(i);
  context->prepare();
  ASSERT_EQ(context->gids().size(), 256u);
  fake->gids[7][14] = 9;
  EXPECT_EQ(device::name_gid({context.get()}, 1, 7), 7);
  EXPECT_EQ(context->gids().size(), 256u);
}

TEST_F(Shadows, StatusTellsWhoIsConnectedWithWhom) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.dest_qp_num = 0x77;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid.raw[10] = attributes.ah_attr.grh.dgid.raw[11] = 0xff;
  attributes.ah_attr.grh.dgid.raw[12] = 10;
  attributes.ah_attr.grh.dgid.raw[15] = 9;
  std::vector<device::QpStatus> all;
  context->status(&all);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].qpn, qp->qpn());
  EXPECT_EQ(all[0].peer_qpn, 0u);
  ASSERT_EQ(qp->modify(attributes, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN), 0);
  all.clear();
  context->status(&all);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].state, IBV_QPS_RTR);
  EXPECT_EQ(all[0].peer_qpn, 0x77u);
  EXPECT_EQ(to_string(all[0].peer.address), "10.0.0.9");
  EXPECT_EQ(to_string(all[0].local.address), "192.0.2.1");
  log->fail_next("modify", EINVAL);
  attributes.dest_qp_num = 0x99;
  EXPECT_EQ(qp->modify(attributes, IBV_QP_DEST_QPN), EINVAL);
  all.clear();
  context->status(&all);
  EXPECT_EQ(all[0].peer_qpn, 0x77u);
}

}  // namespace
}  // namespace ferry::virt
