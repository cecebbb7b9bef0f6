// ibv_dump_context() and ibv_restore_object(), over loopback.
#include <cstring>

#include "families.h"
#include "ferry/verbs_ext.h"

namespace ferry::verbs::families {
namespace {

TEST_F(Device, ADumpGoesOnInAnotherContext) {
  // Another context of the process takes the initiator's peer over, with its SRQ and a window.
  ibv_context* server = ibv_open_device(context->device);
  ASSERT_NE(server, nullptr);
  ibv_pd* server_pd = ibv_alloc_pd(server);
  ibv_cq* server_cq = ibv_create_cq(server, 16, nullptr, nullptr, 0);
  ibv_mr* server_mr = ibv_reg_mr(server_pd, theirs.data(), theirs.size(), kAll);
  ibv_mw* server_mw = ibv_alloc_mw(server_pd, IBV_MW_TYPE_2);
  ibv_srq_init_attr srq_attributes{nullptr, {8, 1, 0}};
  ibv_srq* server_srq = ibv_create_srq(server_pd, &srq_attributes);
  ibv_qp_init_attr attributes = qp_attributes(IBV_QPT_RC);
  attributes.send_cq = attributes.recv_cq = server_cq;
  attributes.srq = server_srq;
  ibv_qp* server_qp = ibv_create_qp(server_pd, &attributes);
  ibv_qp* client_qp = create_qp(IBV_QPT_RC);
  ASSERT_TRUE(server_mr && server_mw && server_srq && server_qp && client_qp);
  ASSERT_NO_FATAL_FAILURE(connect(client_qp, server_qp));
  Request bind(IBV_WR_BIND_MW, nullptr, 0);
  bind.wr.bind_mw.mw = server_mw;
  const std::uint32_t rkey = bind.wr.bind_mw.rkey = ibv_inc_rkey(server_mw->rkey);
  bind.wr.bind_mw.bind_info = {server_mr, reinterpret_cast<std::uintptr_t>(theirs.data()), 64,
                               IBV_ACCESS_REMOTE_WRITE};
  ASSERT_EQ(bind.post(server_qp), 0);
  EXPECT_EQ(next(server_cq).status, IBV_WC_SUCCESS);
  ASSERT_EQ(post_receive(server_srq, 71, server_mr, 64), 0);
  ASSERT_EQ(post_receive(server_srq, 72, server_mr, 64), 0);
  Request send(IBV_WR_SEND, mr_ours, 8);
  ASSERT_EQ(send.post(client_qp), 0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(next(server_cq).wr_id, 71u);

  int count = 0;
  const int size = ibv_dump_context(server, &count, nullptr, 0);
  ASSERT_GT(size, 0);
  std::vector<char> dump(static_cast<unsigned>(size));
  ASSERT_EQ(ibv_dump_context(server, &count, dump.data(), dump.size()), size);
  const std::uint32_t qp_number = server_qp->qp_num;

  ibv_context* heir = ibv_open_device(context->device);
  ASSERT_NE(heir, nullptr);
  std::vector<std::pair<ibv_dump_record, void*>> objects;
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < dump.size();) {
    ibv_dump_record record;
    std::memcpy(&record, dump.data() + at, sizeof record);
    void* object = nullptr;
    ASSERT_EQ(ibv_restore_object(heir, &object, record.type, IBV_RESTORE_CREATE, dump.data() + at,
                                 sizeof record + record.length),
              0)
        << "type " << record.type;
    if (record.type == IBV_OBJECT_MR) {
      ASSERT_EQ(ibv_restore_object(heir, &object, record.type, IBV_RESTORE_MR_KEYS,
                                   dump.data() + at, sizeof record + record.length),
                0);
    }
    objects.push_back({record, object});
    places.push_back(at);
    at += sizeof record + record.length;
  }
  const auto find = [&](int type) {
    for (auto& [record, object] : objects) {
      if (record.type == type) return object;
    }
    return static_cast<void*>(nullptr);
  };
  for (int type : {IBV_OBJECT_CQ, IBV_OBJECT_SRQ, IBV_OBJECT_QP, IBV_OBJECT_CONTEXT}) {
    for (std::size_t i = 0; i < objects.size(); ++i) {
      auto& [record, object] = objects[i];
      if (record.type != type) continue;
      ASSERT_EQ(ibv_restore_object(heir, &object, type, IBV_RESTORE_REFILL, dump.data() + places[i],
                                   sizeof record + record.length),
                0);
    }
  }
  auto* new_qp = static_cast<ibv_qp*>(find(IBV_OBJECT_QP));
  auto* new_srq = static_cast<ibv_srq*>(find(IBV_OBJECT_SRQ));
  auto* new_cq = static_cast<ibv_cq*>(find(IBV_OBJECT_CQ));
  auto* new_mw = static_cast<ibv_mw*>(find(IBV_OBJECT_MW));
  ASSERT_TRUE(new_qp && new_srq && new_cq && new_mw);
  EXPECT_EQ(new_qp->qp_num, qp_number);
  EXPECT_EQ(new_qp->srq, new_srq);
  EXPECT_EQ(new_mw->rkey, rkey);
  EXPECT_EQ(new_mw->type, IBV_MW_TYPE_2);
  ASSERT_EQ(send.post(client_qp), 0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(next(new_cq).wr_id, 72u);  // posted to the old one
  ours[0] = 'h';
  Request write(IBV_WR_RDMA_WRITE, mr_ours, 1);
  write.to(reinterpret_cast<std::uintptr_t>(theirs.data()) + 5, rkey);
  ASSERT_EQ(write.post(client_qp), 0);
  EXPECT_EQ(next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(theirs[5], 'h');
  EXPECT_EQ(ibv_destroy_qp(client_qp), 0);
  EXPECT_EQ(ibv_destroy_srq(new_srq), EBUSY);
  EXPECT_EQ(ibv_dealloc_mw(new_mw), 0);
  EXPECT_EQ(ibv_destroy_qp(new_qp), 0);
  EXPECT_EQ(ibv_destroy_srq(new_srq), 0);
  EXPECT_EQ(ibv_dereg_mr(static_cast<ibv_mr*>(find(IBV_OBJECT_MR))), 0);
  EXPECT_EQ(ibv_destroy_cq(new_cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(static_cast<ibv_pd*>(find(IBV_OBJECT_PD))), 0);
  EXPECT_EQ(ibv_close_device(heir), 0);
  EXPECT_EQ(ibv_destroy_qp(server_qp), 0);
  EXPECT_EQ(ibv_destroy_srq(server_srq), 0);
  EXPECT_EQ(ibv_dealloc_mw(server_mw), 0);
  EXPECT_EQ(ibv_dereg_mr(server_mr), 0);
  EXPECT_EQ(ibv_destroy_cq(server_cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(server_pd), 0);
  EXPECT_EQ(ibv_close_device(server), 0);
}

}  // namespace
}  // namespace ferry::verbs::families
