#include "rdmacm/rig.h"

namespace ferry::rdmacm {
namespace {

using Connect = TwoPrograms;

TEST_F(Connect, RequestTellsWhatTheClientSaid) {
  listener = b.listener(4000);
  id = a.routed(4000);
  ASSERT_EQ(a.connect(id, parameters(0x111, 8)), 0);
  const auto e = b.expect(event::kConnectRequest);
  EXPECT_EQ(e.uid, 66u);  // the listener's
  EXPECT_NE(e.id, listener);
  const auto& p = e.param.conn;
  EXPECT_EQ(p.qp_num, 0x111u);
  EXPECT_EQ(p.responder_resources, 2);  // the other side's depth
  EXPECT_EQ(p.initiator_depth, 4);
  EXPECT_EQ(p.retry_count, 5);
  EXPECT_EQ(p.rnr_retry_count, 6);
  EXPECT_EQ(p.private_data_len, 56);
  EXPECT_EQ(p.private_data[7], 0x5A);
  EXPECT_EQ(p.private_data[8], 0);
}

// What each side says is what the other one has to use.
TEST_F(Connect, BothSidesKnowHowLongTheOtherOneRepeats) {
  listener = b.listener(4000);
  id = a.routed(4000);
  auto from_a = parameters(0x111);
  from_a.rnr_retry_count = 2;
  ASSERT_EQ(a.connect(id, from_a), 0);
  child = b.expect(event::kConnectRequest).id;
  auto from_b = parameters(0x222);
  from_b.rnr_retry_count = 7;
  from_b.retry_count = 1;  // the request's holds
  ASSERT_EQ(b.accept(child, from_b), 0);
  const auto of_b = a.devices.what_was_told(0x111), of_a = b.devices.what_was_told(0x222);
  EXPECT_EQ(of_b.rnr_retry, 2);
  EXPECT_EQ(of_b.retry_count, 5);
  EXPECT_EQ(of_a.rnr_retry, 7);
  EXPECT_EQ(of_a.retry_count, 5);
  EXPECT_EQ(of_a.ack_timeout, of_b.ack_timeout);
  EXPECT_EQ(of_a.ack_timeout, 17);  // 2^17 · 4.096 µs
}

TEST_F(Connect, EstablishAndDisconnect) {
  establish();
  ASSERT_EQ(a.disconnect(id), 0);
  EXPECT_EQ(b.expect(event::kDisconnected).uid, 88u);
  ASSERT_EQ(b.disconnect(child), 0);
  EXPECT_EQ(a.expect(event::kDisconnected).uid, 77u);
  EXPECT_EQ(a.disconnect(id), 0);
}

TEST_F(Connect, ReplyHasThePrivateDataOfTheServer) {
  request();
  ASSERT_EQ(b.accept(child, parameters(0x222, 196)), 0);
  const auto e = a.expect(event::kConnectResponse);
  EXPECT_EQ(e.param.conn.qp_num, 0x222u);
  EXPECT_EQ(e.param.conn.private_data_len, 196);
  EXPECT_EQ(e.param.conn.private_data[195], 0x5A);
}

TEST_F(Connect, PrivateDataHasLimits) {
  listener = b.listener(4000);
  id = a.routed(4000);
  EXPECT_EQ(a.connect(id, parameters(1, 57)), EINVAL);
  EXPECT_EQ(a.connect(id, parameters(1, 56)), 0);
  child = b.expect(event::kConnectRequest).id;
  EXPECT_EQ(b.accept(child, parameters(1, 197)), EINVAL);
  EXPECT_EQ(b.reject(child, 149), EINVAL);
  EXPECT_EQ(b.reject(child, 148), 0);
  const auto e = a.expect(event::kRejected, 28);
  EXPECT_EQ(e.param.conn.private_data_len, 148);
}

TEST_F(Connect, NobodyListens) {
  b.listener(4000);
  id = a.routed(4001);
  ASSERT_EQ(a.connect(id, parameters(1)), 0);
  a.expect(event::kRejected, 8);
}

TEST_F(Connect, BacklogIsFull) {
  listener = b.listener(4000, RDMA_PS_TCP, 2);
  std::vector<std::uint32_t> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(a.routed(4000));
    ASSERT_EQ(a.connect(ids.back(), parameters(100u + static_cast<unsigned>(i))), 0);
  }
  a.expect(event::kRejected, 3);
  b.expect(event::kConnectRequest);
  // A request that was taken makes room.
  const auto more = a.routed(4000);
  ASSERT_EQ(a.connect(more, parameters(200)), 0);
  b.expect(event::kConnectRequest);
  b.expect(event::kConnectRequest);
}

TEST_F(Connect, EventsBeforeTheAcceptAreNotHeardOf) {
  request();
  EXPECT_EQ(a.destroy(id), 0);  // gives up
  EXPECT_EQ(b.destroy(listener), 0);
  EXPECT_TRUE(b.quiet());
  EXPECT_EQ(b.destroy(child), 0);
}

TEST_F(Connect, DestroyCountsAndWithdrawsEvents) {
  establish();
  const auto other = a.create();
  ASSERT_EQ(a.resolve(other, 4000), 0);
  EXPECT_FALSE(a.quiet());
  std::uint32_t reported = 9;
  EXPECT_EQ(a.destroy(other, &reported), 0);
  EXPECT_EQ(reported, 0u);
  EXPECT_EQ(a.destroy(id, &reported), 0);
  EXPECT_EQ(reported, 3u);  // address, route, response
  EXPECT_EQ(a.destroy(id), ENOENT);
  b.expect(event::kDisconnected);
}

TEST_F(Connect, RequestsOfADestroyedListenerAreRejected) {
  listener = b.listener(4000);
  id = a.routed(4000);
  ASSERT_EQ(a.connect(id, parameters(1)), 0);
  pollfd p{b.channel, POLLIN, 0};
  ASSERT_EQ(::poll(&p, 1, 20000), 1);
  EXPECT_EQ(b.destroy(listener), 0);
  a.expect(event::kRejected, 28);
}

TEST_F(Connect, MigratedIdBringsItsEvents) {
  request();
  const int second = b.service->open(O_CLOEXEC);
  ASSERT_GE(second, 0);
  rdma_ucm_migrate_resp answer{9};
  const rdma_ucm_migrate_id c{Program::address_of(answer), child,
                              static_cast<std::uint32_t>(b.channel)};
  EXPECT_EQ(b.command(RDMA_USER_CM_CMD_MIGRATE_ID, c, sizeof answer, second), 0);
  EXPECT_EQ(answer.events_reported, 0u);
  EXPECT_EQ(b.accept(child, parameters(1)), ENOENT);  // by the old channel
  rdma_ucm_accept accept{};
  accept.uid = 5;
  accept.conn_param = parameters(0x222);
  accept.id = child;
  EXPECT_EQ(b.command(RDMA_USER_CM_CMD_ACCEPT, accept, 0, second), 0);
  a.expect(event::kConnectResponse);
  ASSERT_EQ(a.accept(id, rdma_ucm_conn_param{}), 0);
  const auto e = b.event(second);
  EXPECT_EQ(e.event, event::kEstablished);
  EXPECT_EQ(e.uid, 5u);
  b.service->close(second);
  ::close(second);
  a.expect(event::kDisconnected);  // a closed channel ends its IDs
}

// A peer that is killed, or cannot be reached: the end does not wait for it for ever.
TEST_F(Connect, ProcessEndsWithoutItsPeers) {
  establish();
  b.service->stop();
  a.service->leave();
  b.service->resume();
}

TEST_F(Connect, AttributesOfTheQp) {
  id = a.create();
  a.attributes(id, IBV_QPS_INIT, EINVAL);  // no device yet
  request(4002);
  auto q = a.attributes(id, IBV_QPS_INIT);
  EXPECT_EQ(q.qp_attr_mask,
            unsigned{IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS});
  EXPECT_EQ(q.port_num, 1);
  a.attributes(id, IBV_QPS_RTR, EINVAL);  // nobody has answered
  q = b.attributes(child, IBV_QPS_INIT);
  EXPECT_EQ(q.qp_access_flags,
            unsigned{IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC});
  q = b.attributes(child, IBV_QPS_RTR);
  EXPECT_EQ(q.qp_attr_mask,
            unsigned{IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER});
  EXPECT_EQ(q.dest_qp_num, 0x111u);
  EXPECT_EQ(q.path_mtu, unsigned{IBV_MTU_2048});
  EXPECT_EQ(q.ah_attr.is_global, 1);
  EXPECT_EQ(q.ah_attr.grh.sgid_index, 3);
  EXPECT_EQ(std::memcmp(q.ah_attr.grh.dgid, kLoopback.bytes.data(), 16), 0);
  EXPECT_EQ(q.max_dest_rd_atomic, 2);
  const auto passive_rts = b.attributes(child, IBV_QPS_RTS);
  EXPECT_EQ(passive_rts.qp_attr_mask,
            unsigned{IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC});
  EXPECT_EQ(passive_rts.retry_cnt, 5);
  EXPECT_EQ(passive_rts.rnr_retry, 6);
  EXPECT_EQ(passive_rts.max_rd_atomic, 4);
  ASSERT_EQ(b.accept(child, parameters(0x222)), 0);
  a.expect(event::kConnectResponse);
  const auto active_rtr = a.attributes(id, IBV_QPS_RTR);
  const auto active_rts = a.attributes(id, IBV_QPS_RTS);
  EXPECT_EQ(active_rtr.dest_qp_num, 0x222u);
  // Each sends with what the other expects.
  EXPECT_EQ(active_rtr.rq_psn, passive_rts.sq_psn);
  EXPECT_EQ(active_rts.sq_psn, q.rq_psn);
}

TEST_F(Connect, WireNamesOfAMovedQp) {
  listener = b.listener(4000);
  id = a.routed(4000);
  a.devices.moved_qpn = 0x111;
  ASSERT_EQ(a.connect(id, parameters(0x111)), 0);
  EXPECT_EQ(b.expect(event::kConnectRequest).param.conn.qp_num, 0x1111u);
}

TEST_F(Connect, Datagrams) {
  listener = b.listener(4000, RDMA_PS_UDP);
  id = a.routed(4000, RDMA_PS_UDP);
  EXPECT_EQ(a.connect(id, parameters(0x111, 181)), EINVAL);
  ASSERT_EQ(a.connect(id, parameters(0x111, 180)), 0);
  auto e = b.expect(event::kConnectRequest);
  EXPECT_EQ(e.param.ud.private_data_len, 180);
  EXPECT_EQ(b.accept(e.id, parameters(0x222, 137)), EINVAL);
  ASSERT_EQ(b.accept(e.id, parameters(0x222, 136)), 0);
  e = a.expect(event::kEstablished);
  EXPECT_EQ(e.param.ud.qp_num, 0x222u);
  EXPECT_EQ(e.param.ud.qkey, kUdpQkey);
  EXPECT_EQ(e.param.ud.private_data_len, 136);
  EXPECT_EQ(e.param.ud.ah_attr.is_global, 1);
  const auto q = a.attributes(id, IBV_QPS_INIT);
  EXPECT_EQ(q.qkey, kUdpQkey);
  EXPECT_EQ(q.qp_attr_mask, unsigned{IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY});

  const auto refused = a.routed(4000, RDMA_PS_UDP);
  ASSERT_EQ(a.connect(refused, parameters(1)), 0);
  ASSERT_EQ(b.reject(b.expect(event::kConnectRequest).id), 0);
  a.expect(event::kUnreachable, 2);
  const auto nobody = a.routed(4001, RDMA_PS_UDP);
  ASSERT_EQ(a.connect(nobody, parameters(1)), 0);
  a.expect(event::kUnreachable, 1);
}

TEST_F(Connect, MulticastGroups) {
  id = a.routed(4000, RDMA_PS_UDP);
  rdma_ucm_create_id_resp answer{};
  rdma_ucm_join_mcast c{};
  c.response = Program::address_of(answer);
  c.uid = 55;
  c.id = id;
  c.addr_size = sizeof(sockaddr_in);
  set_ipv4(&c.addr, kLoopback, 0);
  EXPECT_EQ(a.command(RDMA_USER_CM_CMD_JOIN_MCAST, c, sizeof answer), EINVAL);
  const auto group = port::Address::from_ipv4(0xEF010203);
  set_ipv4(&c.addr, group, 0);
  ASSERT_EQ(a.command(RDMA_USER_CM_CMD_JOIN_MCAST, c, sizeof answer), 0);
  const auto e = a.expect(event::kMulticastJoin);
  EXPECT_EQ(e.uid, 55u);
  EXPECT_EQ(e.param.ud.qp_num, 0xFFFFFFu);
  EXPECT_EQ(e.param.ud.qkey, kUdpQkey);
  EXPECT_EQ(std::memcmp(e.param.ud.ah_attr.grh.dgid, group.bytes.data(), 16), 0);
  EXPECT_EQ(a.command(RDMA_USER_CM_CMD_JOIN_MCAST, c, sizeof answer), EADDRINUSE);
  rdma_ucm_destroy_id_resp left{};
  const rdma_ucm_destroy_id leave{Program::address_of(left), answer.id, 0};
  EXPECT_EQ(a.command(RDMA_USER_CM_CMD_LEAVE_MCAST, leave, sizeof left), 0);
  EXPECT_EQ(left.events_reported, 1u);
  EXPECT_EQ(a.command(RDMA_USER_CM_CMD_LEAVE_MCAST, leave, sizeof left), ENOENT);
}

}  // namespace
}  // namespace ferry::rdmacm
