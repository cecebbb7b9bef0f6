#include <fcntl.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "rig.h"
#include "verbs/objects.h"

namespace ferry::verbs {
namespace {

using namespace std::chrono_literals;

bool readable(int descriptor) {
  pollfd p{descriptor, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}

device::fake::FakeCq* fake_of(ibv_cq* cq) {
  return static_cast<device::fake::FakeCq*>(to_cq(cq)->device);
}

ibv_wc success(std::uint64_t id) {
  ibv_wc wc{};
  wc.wr_id = id;
  wc.opcode = IBV_WC_RECV;
  wc.byte_len = 7;
  return wc;
}

TEST_F(FullRig, BadArgumentsOfACq) {
  const auto refused = [&](int cqe, ibv_comp_channel* c, int vector) {
    errno = 0;
    EXPECT_EQ(ibv_create_cq(context, cqe, nullptr, c, vector), nullptr);
    return errno;
  };
  EXPECT_EQ(refused(0, nullptr, 0), EINVAL);
  EXPECT_EQ(refused(-1, nullptr, 0), EINVAL);
  EXPECT_EQ(refused(1, nullptr, context->num_comp_vectors), EINVAL);
  EXPECT_EQ(refused(1, nullptr, -1), EINVAL);
  ibv_context* other = ibv_open_device(context->device);
  ibv_comp_channel* foreign = ibv_create_comp_channel(other);
  EXPECT_EQ(refused(1, foreign, 0), EINVAL);
  EXPECT_EQ(ibv_destroy_comp_channel(foreign), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
  log.fail_next("create_cq", ENOMEM);
  EXPECT_EQ(refused(1, nullptr, 0), ENOMEM);
  EXPECT_EQ(ibv_resize_cq(cq, 0), EINVAL);
  EXPECT_EQ(ibv_resize_cq(cq, 64), 0);
  EXPECT_GE(cq->cqe, 64);
  EXPECT_EQ(ibv_destroy_cq(nullptr), EINVAL);
}

TEST_F(FullRig, WrongOrderOfDestructionIsBusy) {
  EXPECT_EQ(ibv_destroy_cq(cq), EBUSY);                 // the QP uses it
  EXPECT_EQ(ibv_destroy_comp_channel(channel), EBUSY);  // the CQ uses it
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
}

TEST_F(FullRig, AnArmedCqMakesTheChannelReadable) {
  EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0);
  EXPECT_FALSE(readable(channel->fd));
  fake_cq->push(success(1));
  EXPECT_TRUE(readable(channel->fd));
  ibv_cq* from = nullptr;
  void* its_context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel, &from, &its_context), 0);
  EXPECT_EQ(from, cq);
  EXPECT_EQ(its_context, this);
  EXPECT_FALSE(readable(channel->fd));
  ibv_ack_cq_events(cq, 1);
  ibv_wc wc[4];
  EXPECT_EQ(ibv_poll_cq(cq, 4, wc), 1);
  EXPECT_EQ(wc[0].wr_id, 1u);
}

TEST_F(FullRig, ANonBlockingChannelSaysEagain) {
  ASSERT_EQ(::fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
  ibv_cq* from;
  void* its_context;
  EXPECT_EQ(ibv_get_cq_event(channel, &from, &its_context), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(ibv_get_cq_event(nullptr, &from, &its_context), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(FullRig, ABlockedReaderIsWoken) {
  std::atomic<bool> woken = false;
  std::thread reader([&] {
    ibv_cq* from;
    void* its_context;
    EXPECT_EQ(ibv_get_cq_event(channel, &from, &its_context), 0);
    woken = true;
    ibv_ack_cq_events(from, 1);
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(woken);
  ibv_req_notify_cq(cq, 0);
  fake_cq->push(success(1));
  reader.join();
}

TEST_F(FullRig, DestructionWaitsForAcknowledgements) {
  ibv_cq* other = ibv_create_cq(context, 4, nullptr, channel, 0);
  auto* fake_other = fake_of(other);
  ibv_req_notify_cq(other, 0);
  fake_other->push(success(1));
  ibv_cq* from;
  void* its_context;
  ASSERT_EQ(ibv_get_cq_event(channel, &from, &its_context), 0);
  std::atomic<bool> destroyed = false;
  std::thread destroyer([&] {
    EXPECT_EQ(ibv_destroy_cq(other), 0);
    destroyed = true;
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(destroyed);
  ibv_ack_cq_events(other, 1);
  destroyer.join();
}

TEST_F(FullRig, AnEventOfADestroyedCqIsNeverSeen) {
  ibv_cq* other = ibv_create_cq(context, 4, nullptr, channel, 0);
  auto* fake_other = fake_of(other);
  ibv_req_notify_cq(other, 0);
  fake_other->push(success(1));
  EXPECT_EQ(ibv_destroy_cq(other), 0);
  ibv_req_notify_cq(cq, 0);
  fake_cq->push(success(2));
  ibv_cq* from;
  void* its_context;
  ASSERT_EQ(ibv_get_cq_event(channel, &from, &its_context), 0);
  EXPECT_EQ(from, cq);
  ibv_ack_cq_events(cq, 1);
  EXPECT_FALSE(readable(channel->fd));
}

TEST_F(FullRig, AnOverflowedCqPollsNegative) {
  fake_cq->overflow();
  ibv_wc wc;
  EXPECT_LT(ibv_poll_cq(cq, 1, &wc), 0);
}

TEST_F(FullRig, ExtendedCqsReadFieldByField) {
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = 8;
  attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* ex = ibv_create_cq_ex(context, &attributes);
  ASSERT_NE(ex, nullptr);
  ibv_poll_cq_attr poll{};
  EXPECT_EQ(ibv_start_poll(ex, &poll), ENOENT);
  EXPECT_EQ(ibv_start_poll(ex, &poll), ENOENT);  // the lock was given back
  auto* fake_ex = fake_of(ibv_cq_ex_to_cq(ex));
  fake_ex->push(success(5));
  fake_ex->push(success(6));
  ASSERT_EQ(ibv_start_poll(ex, &poll), 0);
  EXPECT_EQ(ex->wr_id, 5u);
  EXPECT_EQ(ex->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_byte_len(ex), 7u);
  EXPECT_EQ(ibv_wc_read_opcode(ex), IBV_WC_RECV);
  ASSERT_EQ(ibv_next_poll(ex), 0);
  EXPECT_EQ(ex->wr_id, 6u);
  EXPECT_EQ(ibv_next_poll(ex), ENOENT);
  ibv_end_poll(ex);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);

  attributes.wc_flags = IBV_WC_EX_WITH_TM_INFO;
  errno = 0;
  EXPECT_EQ(ibv_create_cq_ex(context, &attributes), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

struct ExtendedCq : FullRig {
  ibv_cq_ex* create(ibv_cq_init_attr_ex attributes) {
    attributes.cqe = attributes.cqe ? attributes.cqe : 8;
    errno = 0;
    return ibv_create_cq_ex(context, &attributes);
  }
};

TEST_F(ExtendedCq, TimesOfCompletions) {
  ibv_cq_init_attr_ex attributes{};
  attributes.wc_flags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK | IBV_WC_EX_WITH_CVLAN |
                        IBV_WC_EX_WITH_FLOW_TAG;
  ibv_cq_ex* ex = create(attributes);
  ASSERT_NE(ex, nullptr);
  auto* fake_ex = fake_of(ibv_cq_ex_to_cq(ex));
  EXPECT_TRUE(fake_ex->init.timestamps);
  fake_ex->push(success(1));
  fake_ex->push(success(2));
  ibv_poll_cq_attr poll{};
  ASSERT_EQ(ibv_start_poll(ex, &poll), 0);
  EXPECT_EQ(ibv_wc_read_completion_ts(ex), 1u);
  EXPECT_EQ(ibv_wc_read_completion_wallclock_ns(ex), 1001u);
  ASSERT_EQ(ibv_next_poll(ex), 0);
  EXPECT_EQ(ibv_wc_read_completion_ts(ex), 2u);
  EXPECT_EQ(ibv_wc_read_cvlan(ex), 0);
  EXPECT_EQ(ibv_wc_read_flow_tag(ex), 0u);
  ibv_end_poll(ex);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
}

TEST_F(ExtendedCq, EveryField) {
  ibv_cq_init_attr_ex attributes{};
  attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* ex = create(attributes);
  ASSERT_NE(ex, nullptr);
  auto* fake_ex = fake_of(ibv_cq_ex_to_cq(ex));
  EXPECT_FALSE(fake_ex->init.timestamps);
  ibv_wc wc{};
  wc.status = IBV_WC_LOC_PROT_ERR;
  wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
  wc.vendor_err = 3;
  wc.byte_len = 4;
  wc.invalidated_rkey = 5;
  wc.qp_num = 6;
  wc.src_qp = 7;
  wc.wc_flags = IBV_WC_WITH_INV | IBV_WC_GRH;
  wc.slid = 8;
  wc.sl = 9;
  wc.dlid_path_bits = 10;
  fake_ex->push(wc);
  ibv_poll_cq_attr poll{};
  ASSERT_EQ(ibv_start_poll(ex, &poll), 0);
  EXPECT_EQ(ex->status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_wc_read_opcode(ex), IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(ibv_wc_read_vendor_err(ex), 3u);
  EXPECT_EQ(ibv_wc_read_byte_len(ex), 4u);
  EXPECT_EQ(ibv_wc_read_invalidated_rkey(ex), 5u);
  EXPECT_EQ(ibv_wc_read_imm_data(ex), 5u);
  EXPECT_EQ(ibv_wc_read_qp_num(ex), 6u);
  EXPECT_EQ(ibv_wc_read_src_qp(ex), 7u);
  EXPECT_EQ(ibv_wc_read_wc_flags(ex), unsigned{IBV_WC_WITH_INV | IBV_WC_GRH});
  EXPECT_EQ(ibv_wc_read_slid(ex), 8u);
  EXPECT_EQ(ibv_wc_read_sl(ex), 9);
  EXPECT_EQ(ibv_wc_read_dlid_path_bits(ex), 10);
  ibv_wc_tm_info info{1, 2};
  ibv_wc_read_tm_info(ex, &info);  // not asked for, and not fatal
  EXPECT_EQ(info.tag, 0u);
  EXPECT_EQ(ibv_wc_read_completion_ts(ex), 0u);
  ibv_end_poll(ex);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
}

TEST_F(ExtendedCq, Flags) {
  ibv_cq_init_attr_ex attributes{};
  attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attributes.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  ibv_cq_ex* ex = create(attributes);
  ASSERT_NE(ex, nullptr);
  auto* fake_ex = fake_of(ibv_cq_ex_to_cq(ex));
  EXPECT_TRUE(fake_ex->init.ignore_overrun);
  fake_ex->push(success(1));
  fake_ex->push(success(2));
  ibv_poll_cq_attr poll{};
  ASSERT_EQ(ibv_start_poll(ex, &poll), 0);
  ASSERT_EQ(ibv_start_poll(ex, &poll), 0);  // no lock
  ibv_end_poll(ex);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);

  attributes.flags = 4;
  EXPECT_EQ(create(attributes), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attributes = {};
  attributes.comp_mask = 4;
  EXPECT_EQ(create(attributes), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attributes = {};
  attributes.cqe = 0x80000000;
  EXPECT_EQ(create(attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attributes = {};
  attributes.wc_flags = 1ull << 40;
  EXPECT_EQ(create(attributes), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(ExtendedCq, ABadPollTakesNoLock) {
  ibv_cq_ex* ex = create({});
  ASSERT_NE(ex, nullptr);
  ibv_poll_cq_attr poll{1};
  EXPECT_EQ(ibv_start_poll(ex, &poll), EINVAL);
  EXPECT_EQ(ibv_start_poll(ex, nullptr), ENOENT);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
}

TEST_F(FullRig, AChannelOfSeveralCqs) {
  ibv_cq* others[3];
  for (ibv_cq*& o : others) {
    o = ibv_create_cq(context, 4, &o, channel, 0);
    ASSERT_NE(o, nullptr);
    ASSERT_EQ(ibv_req_notify_cq(o, 0), 0);
  }
  for (int i : {2, 0, 1}) fake_of(others[i])->push(success(1));
  for (int i : {2, 0, 1}) {
    ibv_cq* from = nullptr;
    void* its_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel, &from, &its_context), 0);
    EXPECT_EQ(from, others[i]);
    EXPECT_EQ(its_context, &others[i]);
  }
  // Two more of the first, acknowledged together with the one before.
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(ibv_req_notify_cq(others[0], 0), 0);
    fake_of(others[0])->push(success(2));
    ibv_cq* from = nullptr;
    void* its_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel, &from, &its_context), 0);
  }
  EXPECT_FALSE(readable(channel->fd));
  ibv_ack_cq_events(others[0], 3);
  ibv_ack_cq_events(others[1], 1);
  ibv_ack_cq_events(others[2], 1);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), EBUSY);
  for (ibv_cq* o : others) EXPECT_EQ(ibv_destroy_cq(o), 0);
}

TEST_F(FullRig, ModerationOfEventsIsPassedOn) {
  ibv_modify_cq_attr attributes{IBV_CQ_ATTR_MODERATE, {16, 20}};
  EXPECT_EQ(ibv_modify_cq(cq, &attributes), 0);
  EXPECT_EQ(log.last("moderate"), "count=16 period=20");
  log.fail_next("moderate", ENOMEM);
  EXPECT_EQ(ibv_modify_cq(cq, &attributes), ENOMEM);
  attributes.attr_mask = 0;
  EXPECT_EQ(ibv_modify_cq(cq, &attributes), EINVAL);
  attributes.attr_mask = IBV_CQ_ATTR_MODERATE | IBV_CQ_ATTR_RESERVED;
  EXPECT_EQ(ibv_modify_cq(cq, &attributes), EINVAL);
  EXPECT_EQ(ibv_modify_cq(cq, nullptr), EINVAL);
  EXPECT_EQ(log.count("moderate"), 2u);
}

}  // namespace
}  // namespace ferry::verbs
