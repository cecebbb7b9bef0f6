#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "hca/rxe.h"
#include "rig.h"

// A device of the kernel over a played libibverbs: what reaches it, and what comes back.
namespace ferry::hca::testing {
namespace {

// As many as the process has processors, and few.
TEST_F(Hca, SeveralThreadsAreUsefulOnSeveralProcessors) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(context->useful_threads(), static_cast<unsigned>(std::min(CPU_COUNT(&before), 4)));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(context->useful_threads(), 1u);
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

TEST_F(Hca, ShowsTheDeviceAsItIs) {
  EXPECT_EQ(rnic->name(), "played0");
  EXPECT_EQ(rnic->guid(), 0x1122334455667788u);
  EXPECT_EQ(rnic->index(), 5);
  EXPECT_EQ(context->completion_vectors(), 3);
  EXPECT_EQ(context->command_descriptor(), 41);
  EXPECT_EQ(context->asynchronous_descriptor(), 42);
  ibv_device_attr_ex device{};
  ASSERT_EQ(context->query_device(&device), 0);
  EXPECT_EQ(device.orig_attr.max_qp, 77);
  EXPECT_EQ(device.orig_attr.device_cap_flags,
            static_cast<unsigned>(IBV_DEVICE_XRC | IBV_DEVICE_SRQ_RESIZE));
  ibv_port_attr port{};
  ASSERT_EQ(context->query_port(1, &port), 0);
  EXPECT_EQ(port.lid, 7);
  EXPECT_EQ(context->query_port(2, &port), EINVAL);
  ibv_gid_entry gid{};
  ASSERT_EQ(context->query_gid(1, 1, &gid), 0);
  EXPECT_EQ(gid.gid_index, 1u);
  EXPECT_EQ(context->query_gid(1, 2, &gid), ENODATA);
  std::uint16_t key = 0;
  EXPECT_EQ(context->query_pkey(1, 0, &key), 0);
  EXPECT_EQ(key, 0xffff);
}

TEST_F(Hca, AllGidsComeByOneCall) {
  const auto gids = context->gids();
  ASSERT_EQ(gids.size(), 2u);
  EXPECT_EQ(gids[1].port_num, 1u);
  EXPECT_EQ(gids[1].gid_index, 1u);
  EXPECT_EQ(stock().count("ibv_query_gid_table"), 1u);
  stock().fails = "ibv_query_gid_table";
  stock().error = EIO;
  EXPECT_TRUE(context->gids().empty());
}

TEST_F(Hca, ADeviceThatCannotBeOpenedSaysWhy) {
  stock().fails = "ibv_open_device";
  stock().error = EACCES;
  int error = 0;
  EXPECT_EQ(rnic->open(sink, &error), nullptr);
  EXPECT_EQ(error, EACCES);
}

TEST_F(Hca, ObjectsLiveOnWhenTheKernelKeepsThem) {
  device::Mr* mr = nullptr;
  char memory[16];
  ASSERT_EQ(context->reg_mr({pd, memory, sizeof memory, 0, 0}, &mr), 0);
  EXPECT_EQ(mr->rkey(), mr->lkey() + 1);
  device::Qp* qp = make_qp(IBV_QPT_RC);
  const int live = stock().live;
  stock().fails = "ibv_dealloc_pd";
  stock().error = EBUSY;
  EXPECT_EQ(context->destroy(pd), EBUSY);
  EXPECT_EQ(stock().live, live);
  EXPECT_EQ(context->destroy(qp), 0);
  EXPECT_EQ(context->destroy(mr), 0);
  EXPECT_EQ(context->destroy(cq), 0);
  EXPECT_EQ(context->destroy(pd), 0);
  EXPECT_EQ(stock().live, 0);
  context.reset();
  EXPECT_EQ(stock().count("ibv_close_device"), 1u);
}

TEST_F(Hca, NothingIsLeftOfAnObjectThatTheKernelRefuses) {
  const int live = stock().live;
  stock().error = ENOSPC;
  device::Pd* refused_pd = nullptr;
  stock().fails = "ibv_alloc_pd";
  EXPECT_EQ(context->alloc_pd(&refused_pd), ENOSPC);
  device::Mr* refused_mr = nullptr;
  stock().fails = "ibv_reg_mr_iova2";
  EXPECT_EQ(context->reg_mr({pd}, &refused_mr), ENOSPC);
  device::Cq* refused_cq = nullptr;
  stock().fails = "ibv_create_cq";
  EXPECT_EQ(context->create_cq({16}, &refused_cq), ENOSPC);
  stock().fails = "ibv_create_ah";
  device::Ah* refused_ah = nullptr;
  EXPECT_EQ(context->create_ah(pd, {}, &refused_ah), ENOSPC);
  device::Mw* refused_mw = nullptr;
  stock().fails = "ibv_alloc_mw";
  EXPECT_EQ(context->alloc_mw(pd, IBV_MW_TYPE_2, &refused_mw), ENOSPC);
  EXPECT_EQ(stock().live, live);
  device::Ah* ah = make_ah();
  EXPECT_EQ(ah->handle(), 0u) << "the number of the refused one";
}

TEST_F(Hca, ErrnoStaysTheApplications) {
  Rnic other(&stock().device, nullptr);
  int error = 0;
  errno = ENOTTY;
  const auto opened = other.open(sink, &error);
  EXPECT_EQ(errno, ENOTTY);
  device::Mr* mr = nullptr;
  ASSERT_EQ(context->reg_mr({pd}, &mr), 0);
  EXPECT_EQ(errno, ENOTTY);
  ASSERT_EQ(context->rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, {pd}), 0);
  EXPECT_EQ(errno, ENOTTY);
  ASSERT_EQ(context->destroy(mr), 0);
  EXPECT_EQ(errno, ENOTTY);
  // A function that does not say why it fails: what errno was before is no reason.
  stock().fails = "ibv_alloc_pd";
  stock().error = 0;
  device::Pd* refused = nullptr;
  EXPECT_EQ(context->alloc_pd(&refused), ENOMEM);
}

TEST_F(Hca, GrantedCapacitiesAreTheDevices) {
  device::QpInit init;
  init.pd = pd;
  init.send_cq = init.recv_cq = cq;
  init.cap.max_send_wr = 8;
  device::Qp* qp = nullptr;
  ASSERT_EQ(context->create_qp(&init, &qp), 0);
  EXPECT_EQ(init.cap.max_send_wr, 11u);
  EXPECT_EQ(cq->capacity(), 17);
  EXPECT_EQ(cq->resize(40), 0);
  EXPECT_EQ(cq->capacity(), 40);
  device::SrqInit srq_init{pd, {{}, 8, 1}};
  srq_init.attributes.max_wr = 8;
  device::Srq* srq = nullptr;
  ASSERT_EQ(context->create_srq(&srq_init, &srq), 0);
  EXPECT_EQ(srq_init.attributes.max_wr, 11u);
}

TEST_F(Hca, ALateCompletionVectorIsPassedOn) {
  device::CqInit init{16};
  init.vector = 2;
  device::Cq* other = nullptr;
  ASSERT_EQ(context->create_cq(init, &other), 0);
  EXPECT_EQ(stock().count("vector 2"), 1u);
}

TEST_F(Hca, RequestsOfRcReachTheProviderAsTheyAre) {
  device::Qp* qp = make_qp(IBV_QPT_RC);
  Requests requests(3);
  ASSERT_EQ(qp->post_send(requests.wrs.data(), &requests.bad), 0);
  EXPECT_EQ(stock().lists, std::vector<const ibv_send_wr*>{requests.wrs.data()});
  EXPECT_EQ(stock().posted.size(), 3u);
}

TEST_F(Hca, DatagramsNameTheStockAh) {
  device::Qp* qp = make_qp(IBV_QPT_UD);
  make_ah();
  device::Ah* ah = make_ah();
  ibv_ah of_application = application_ah(*ah);
  Requests requests(40);  // more than are copied at a time
  requests.to(&of_application);
  ASSERT_EQ(qp->post_send(requests.wrs.data(), &requests.bad), 0);
  ASSERT_EQ(stock().posted.size(), 40u);
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(stock().posted[i].wr_id, i + 1);
    EXPECT_NE(stock().posted[i].wr.ud.ah, &of_application);
    EXPECT_EQ(stock().posted[i].wr.ud.ah->context, &stock().verbs.context);
    EXPECT_EQ(stock().posted[i].wr.ud.remote_qpn, 5u);
  }
  EXPECT_EQ(requests.wrs[0].wr.ud.ah, &of_application) << "the application's list stays as it is";
}

TEST_F(Hca, TheRequestThatTheProviderRefusesIsTheApplicationsOwn) {
  device::Qp* qp = make_qp(IBV_QPT_UD);
  device::Ah* ah = make_ah();
  ibv_ah of_application = application_ah(*ah);
  Requests requests(30);
  requests.to(&of_application);
  stock().refused_wr_id = 20;
  EXPECT_EQ(qp->post_send(requests.wrs.data(), &requests.bad), ENOMEM);
  EXPECT_EQ(requests.bad, &requests.wrs[19]);
  EXPECT_EQ(stock().posted.size(), 19u);
}

TEST_F(Hca, ADatagramToADestroyedAhIsRefusedBehindThoseBeforeIt) {
  device::Qp* qp = make_qp(IBV_QPT_UD);
  device::Ah* ah = make_ah();
  device::Ah* destroyed = make_ah();
  ibv_ah good = application_ah(*ah), gone = application_ah(*destroyed);
  ASSERT_EQ(context->destroy(destroyed), 0);
  Requests requests(5);
  requests.to(&good);
  requests.wrs[3].wr.ud.ah = &gone;
  EXPECT_EQ(qp->post_send(requests.wrs.data(), &requests.bad), EINVAL);
  EXPECT_EQ(requests.bad, &requests.wrs[3]);
  EXPECT_EQ(stock().posted.size(), 3u);
  requests.wrs[0].wr.ud.ah = nullptr;
  EXPECT_EQ(qp->post_send(requests.wrs.data(), &requests.bad), EINVAL);
  EXPECT_EQ(requests.bad, &requests.wrs[0]);
  EXPECT_EQ(stock().posted.size(), 3u);
}

TEST_F(Hca, ABindNamesTheStockWindowAndItsRegion) {
  device::Qp* qp = make_qp(IBV_QPT_RC);
  device::Mw* mw = nullptr;
  ASSERT_EQ(context->alloc_mw(pd, IBV_MW_TYPE_2, &mw), 0);
  device::Mr* mr = nullptr;
  char memory[16];
  ASSERT_EQ(context->reg_mr({pd, memory, sizeof memory, 0, 0}, &mr), 0);
  ASSERT_EQ(context->rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, {pd}), 0) << "it has another key now";
  ibv_mw window{};
  window.handle = mw->handle();
  ibv_mr region{};
  region.lkey = mr->lkey();
  Requests requests(2);
  requests.wrs[1].opcode = IBV_WR_BIND_MW;
  requests.wrs[1].bind_mw = {&window, 99, {&region, 0, 16, 0}};
  ASSERT_EQ(qp->post_send(requests.wrs.data(), &requests.bad), 0);
  ASSERT_EQ(stock().posted.size(), 2u);
  const auto& bind = stock().posted[1].bind_mw;
  EXPECT_EQ(bind.mw->rkey, mw->rkey());
  EXPECT_NE(bind.mw, &window);
  EXPECT_EQ(bind.bind_info.mr->addr, memory);
  EXPECT_EQ(bind.rkey, 99u);

  ASSERT_EQ(context->destroy(mr), 0);
  EXPECT_EQ(qp->post_send(&requests.wrs[1], &requests.bad), EINVAL);
  EXPECT_EQ(requests.bad, &requests.wrs[1]);
}

TEST_F(Hca, ABindBeginsWithTheKeyThatTheApplicationHasNoted) {
  device::Qp* qp = make_qp(IBV_QPT_RC);
  device::Mw* mw = nullptr;
  ASSERT_EQ(context->alloc_mw(pd, IBV_MW_TYPE_2, &mw), 0);
  ibv_mw window{};
  window.handle = mw->handle();
  window.rkey = mw->rkey();
  Requests requests(1);
  requests.wrs[0].opcode = IBV_WR_BIND_MW;
  requests.wrs[0].bind_mw = {&window, 99, {nullptr, 0, 0, 0}};
  ASSERT_EQ(qp->post_send(requests.wrs.data(), &requests.bad), 0);
  EXPECT_EQ(stock().posted[0].bind_mw.mw->rkey, window.rkey);
  window.rkey = 99;
  ASSERT_EQ(qp->post_send(requests.wrs.data(), &requests.bad), 0);
  EXPECT_EQ(stock().posted[1].bind_mw.mw->rkey, 99u);
}

TEST_F(Hca, AWindowOfType1IsBoundByItsFunction) {
  device::Qp* qp = make_qp(IBV_QPT_RC);
  device::Mw* mw = nullptr;
  ASSERT_EQ(context->alloc_mw(pd, IBV_MW_TYPE_1, &mw), 0);
  const std::uint32_t before = mw->rkey();
  std::uint32_t rkey = 0;
  ASSERT_EQ(qp->bind_mw(mw, {}, &rkey), 0);
  EXPECT_EQ(rkey, before + 1);
  EXPECT_EQ(mw->rkey(), before + 1);
}

// Another key at each bind would have rdma_rxe refuse a marker that it carries out again after a loss.
TEST_F(Hca, AMarkerLeavesTheWindowItsKeyWhereRequestsAreCarriedOutAgain) {
  utsname system{};
  ASSERT_EQ(::uname(&system), 0);
  stock().vendor = 0xFFFFFF;
  int error = 0;
  const auto rxe = rnic->open(sink, &error);
  ASSERT_EQ(error, 0);
  for (const bool is_rxe : {false, true}) {
    device::Context& opened = is_rxe ? *rxe : *context;
    const bool keeps_key = is_rxe && takes_same_key(system.release);
    device::QpInit init;
    init.pd = pd;
    init.send_cq = init.recv_cq = cq;
    init.type = IBV_QPT_RC;
    init.cap = {8, 8, 1, 1, 0};
    device::Qp* qp = nullptr;
    ASSERT_EQ(opened.create_qp(&init, &qp), 0);
    device::Mw* mw = nullptr;
    ASSERT_EQ(opened.alloc_mw(pd, IBV_MW_TYPE_1, &mw), 0);
    const std::uint32_t before = mw->rkey();
    stock().posted.clear();
    device::MwBind bind;
    bind.wr_id = 7;
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.is_marker = true;
    std::uint32_t rkey = 0;
    ASSERT_EQ(qp->bind_mw(mw, bind, &rkey), 0);
    EXPECT_EQ(rkey, mw->rkey());
    EXPECT_EQ(rkey, keeps_key ? before : before + 1);
    ASSERT_EQ(stock().posted.size(), keeps_key ? 1u : 0u) << "ibv_bind_mw() posts by itself";
    if (!keeps_key) continue;
    const ibv_send_wr& posted = stock().posted[0];
    EXPECT_EQ(posted.opcode, IBV_WR_BIND_MW);
    EXPECT_EQ(posted.wr_id, 7u);
    EXPECT_EQ(posted.send_flags, static_cast<unsigned>(IBV_SEND_SIGNALED));
    EXPECT_EQ(posted.bind_mw.rkey, before);
    EXPECT_EQ(posted.bind_mw.bind_info.length, 0u);
  }
}

TEST(Rxe, TakesTheSameKeyFromLinux6On) {
  for (const char* release : {"6.0.0", "6.1.0-37-amd64", "6.12", "10.0.1"}) {
    EXPECT_TRUE(takes_same_key(release)) << release;
  }
  for (const char* release : {"5.15.0-91-generic", "5.19.0", "4.18", "", "6", "six.1"}) {
    EXPECT_FALSE(takes_same_key(release)) << release;
  }
}

TEST_F(Hca, BuiltRequestsReachTheProviderAsOne) {
  device::Qp* qp = make_qp(IBV_QPT_UD, IBV_QP_EX_WITH_SEND);
  device::Ah* ah = make_ah();
  ibv_ah of_application = application_ah(*ah);
  char text[] = "hello";
  ibv_sge inline_data{reinterpret_cast<std::uintptr_t>(text), 5, 0}, sge{1, 77, 2};
  Requests requests(2);
  requests.to(&of_application);
  requests.wrs[0].sg_list = &inline_data;
  requests.wrs[0].num_sge = 1;
  requests.wrs[0].send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
  requests.wrs[1].sg_list = &sge;
  requests.wrs[1].num_sge = 1;
  stock().calls.clear();
  ASSERT_EQ(qp->post_all(requests.wrs.data()), 0);
  ASSERT_EQ(stock().calls.size(), 12u);
  EXPECT_EQ(stock().calls[0], "wr_start");
  EXPECT_EQ(stock().calls[1], "wr_send 1");
  EXPECT_EQ(stock().calls[2], "wr_set_ud_addr 1");
  EXPECT_EQ(stock().calls[4], "wr_set_inline_data 1");
  EXPECT_EQ(stock().calls[5], "bytes hello");
  EXPECT_EQ(stock().calls[6], "wr_send 2");
  EXPECT_EQ(stock().calls[9], "wr_set_sge 2");
  EXPECT_EQ(stock().calls[10], "length 77");
  EXPECT_EQ(stock().calls[11], "wr_complete");

  stock().fails = "wr_complete";
  stock().error = ENOMEM;
  EXPECT_EQ(qp->post_all(requests.wrs.data()), ENOMEM);

  ASSERT_EQ(context->destroy(ah), 0);
  stock().calls.clear();
  EXPECT_EQ(qp->post_all(requests.wrs.data()), EINVAL);
  EXPECT_EQ(stock().count("wr_abort"), 1u);
  EXPECT_EQ(stock().count("wr_complete"), 0u);
}

TEST_F(Hca, CompletionEventsComeByTheKernelsDescriptor) {
  device::Channel* channel = nullptr;
  ASSERT_EQ(context->create_channel(&channel), 0);
  EXPECT_EQ(channel->descriptor(), 43);
  device::CqInit init{16};
  init.channel = channel;
  device::Cq* with_channel = nullptr;
  ASSERT_EQ(context->create_cq(init, &with_channel), 0);
  EXPECT_EQ(with_channel->arm(true), 0);
  EXPECT_EQ(with_channel->arm(false), 0);
  EXPECT_EQ(stock().count("arm solicited"), 1u);
  EXPECT_EQ(stock().count("arm any"), 1u);
  device::Cq* raised = nullptr;
  EXPECT_EQ(channel->take(&raised), EAGAIN);
  stock().cq_events.push_back(stock().last_cq);
  ASSERT_EQ(channel->take(&raised), 0);
  EXPECT_EQ(raised, with_channel);
  EXPECT_EQ(stock().count("ack_cq 1"), 0u) << "the stock CQ must not end yet";
  raised->acknowledge();
  EXPECT_EQ(stock().count("ack_cq 1"), 1u);
}

TEST_F(Hca, AsynchronousEventsTellTheirObject) {
  device::Qp* qp = make_qp(IBV_QPT_RC);
  device::AsynchronousEvent event;
  EXPECT_EQ(context->take_asynchronous(&event), EAGAIN);

  ibv_async_event port{};
  port.event_type = IBV_EVENT_PORT_ERR;
  port.element.port_num = 2;
  stock().events.push_back(port);
  ASSERT_EQ(context->take_asynchronous(&event), 0);
  EXPECT_EQ(event.type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(event.object, nullptr);
  EXPECT_EQ(event.port, 2);
  context->acknowledge(event);

  ibv_async_event fatal{};
  fatal.event_type = IBV_EVENT_QP_FATAL;
  fatal.element.qp = stock().last_qp;
  stock().events.push_back(fatal);
  ASSERT_EQ(context->take_asynchronous(&event), 0);
  EXPECT_EQ(event.type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(event.object, qp);
  context->acknowledge(event);
  EXPECT_EQ(stock().count("ack_async " + std::to_string(IBV_EVENT_QP_FATAL)), 1u);
}

TEST_F(Hca, CompletionsPassThrough) {
  ibv_wc completion{};
  completion.wr_id = 9;
  completion.qp_num = 4;
  stock().completions = {completion, completion};
  std::array<ibv_wc, 4> out{};
  EXPECT_EQ(cq->poll(4, out.data()), 2);
  EXPECT_EQ(out[1].wr_id, 9u);
  EXPECT_EQ(out[1].qp_num, 4u);
  EXPECT_EQ(cq->poll(4, out.data()), 0);
}

TEST_F(Hca, ACqWithTimesReadsThemFromTheProvider) {
  device::CqInit init{16};
  init.timestamps = init.wallclock = true;
  device::Cq* timed = nullptr;
  ASSERT_EQ(context->create_cq(init, &timed), 0);
  EXPECT_EQ(stock().wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
            static_cast<std::uint64_t>(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK));
  ibv_wc completion{};
  completion.wr_id = 9;
  completion.byte_len = 21;
  completion.src_qp = 3;
  stock().completions.push_back(completion);
  ibv_wc out{};
  device::CompletionTimes times;
  ASSERT_EQ(timed->poll_one(&out, &times), 1);
  EXPECT_EQ(out.wr_id, 9u);
  EXPECT_EQ(out.byte_len, 21u);
  EXPECT_EQ(out.src_qp, 3u);
  EXPECT_EQ(times.clock, 1234u);
  EXPECT_EQ(times.wallclock, 5678u);
  EXPECT_EQ(stock().count("end_poll"), 1u);
  EXPECT_EQ(timed->poll_one(&out, &times), 0);
  EXPECT_EQ(stock().count("end_poll"), 1u) << "no poll was begun";
}

TEST_F(Hca, AnMrThatCannotBeRegisteredAnewKeepsItsKeys) {
  device::Mr* mr = nullptr;
  ASSERT_EQ(context->reg_mr({pd}, &mr), 0);
  const std::uint32_t key = mr->lkey();
  stock().fails = "ibv_rereg_mr";
  stock().error = EOPNOTSUPP;
  EXPECT_EQ(context->rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, {pd}), EOPNOTSUPP);
  EXPECT_EQ(mr->lkey(), key);
}

}  // namespace
}  // namespace ferry::hca::testing
