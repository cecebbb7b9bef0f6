// What a program sees of libferry.so with its own RNIC behind it, over the loopback interface.
// Plain libibverbs; run under LD_PRELOAD=libferry.so and FERRY_NETDEV=lo.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kPage = 4096;
constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

volatile sig_atomic_t handled = 0;
void on_fault(int) {
  handled = handled + 1;
}

// Two connected QPs of one context.
struct Live : ::testing::Test {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp[2] = {};

  void SetUp() override {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    ASSERT_TRUE(list && count > 0) << "run under LD_PRELOAD=libferry.so FERRY_NETDEV=lo";
    ASSERT_STREQ(ibv_get_device_name(list[0]), "ferry0");
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    ASSERT_NE(context, nullptr);
    ASSERT_NE(pd = ibv_alloc_pd(context), nullptr);
    ASSERT_NE(channel = ibv_create_comp_channel(context), nullptr);
    ASSERT_NE(cq = ibv_create_cq(context, 64, nullptr, channel, 0), nullptr);
    for (ibv_qp*& q : qp) {
      ibv_qp_init_attr attributes{};
      attributes.send_cq = attributes.recv_cq = cq;
      attributes.cap = {16, 16, 2, 2, 64};
      attributes.qp_type = IBV_QPT_RC;
      ASSERT_NE(q = ibv_create_qp(pd, &attributes), nullptr);
    }
    ibv_gid gid;
    ASSERT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    for (int i = 0; i < 2; ++i) {
      ibv_qp_attr a{};
      a.qp_state = IBV_QPS_INIT;
      a.port_num = 1;
      a.qp_access_flags = kAll;
      ASSERT_EQ(ibv_modify_qp(qp[i], &a,
                              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
                0);
      a.qp_state = IBV_QPS_RTR;
      a.path_mtu = IBV_MTU_1024;
      a.dest_qp_num = qp[1 - i]->qp_num;
      a.max_dest_rd_atomic = 1;
      a.min_rnr_timer = 12;
      a.ah_attr.is_global = 1;
      a.ah_attr.grh.dgid = gid;
      a.ah_attr.port_num = 1;
      ASSERT_EQ(ibv_modify_qp(qp[i], &a,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
                0);
      a.qp_state = IBV_QPS_RTS;
      a.timeout = 18;  // 1 s: machines are busy
      a.retry_cnt = 7;
      a.rnr_retry = 7;
      a.max_rd_atomic = 1;
      ASSERT_EQ(ibv_modify_qp(qp[i], &a,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                0);
    }
    handled = 0;
    struct sigaction action {};
    action.sa_handler = on_fault;
    ASSERT_EQ(::sigaction(SIGSEGV, &action, nullptr), 0);
    ASSERT_EQ(::sigaction(SIGBUS, &action, nullptr), 0);
  }
  void TearDown() override {
    EXPECT_EQ(handled, 0) << "a fault of the library reached the program";
    ::signal(SIGSEGV, SIG_DFL);
    ::signal(SIGBUS, SIG_DFL);
    for (ibv_qp* q : qp) EXPECT_EQ(ibv_destroy_qp(q), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  char* pages(std::size_t count) {
    void* p =
        ::mmap(nullptr, count * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(p, MAP_FAILED);
    return static_cast<char*>(p);
  }
  int post(int from, ibv_wr_opcode opcode, ibv_mr* local, ibv_mr* remote, std::uint32_t length,
           std::uint32_t rkey_change = 0) {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(local->addr), length, local->lkey};
    ibv_send_wr wr{}, *bad;
    wr.wr_id = 77;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (remote) {
      wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(remote->addr);
      wr.wr.rdma.rkey = remote->rkey ^ rkey_change;
    }
    return ibv_post_send(qp[from], &wr, &bad);
  }
  void post_receive(int at, ibv_mr* mr, std::uint32_t length) {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(mr->addr), length, mr->lkey};
    ibv_recv_wr wr{}, *bad;
    wr.wr_id = 88;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ASSERT_EQ(ibv_post_recv(qp[at], &wr, &bad), 0);
  }
  // The completion of `wr_id`; others are dropped.
  ibv_wc completion(std::uint64_t wr_id = 77) {
    ibv_wc wc{};
    const auto end = Clock::now() + std::chrono::seconds(20);
    while (Clock::now() < end) {
      const int n = ibv_poll_cq(cq, 1, &wc);
      EXPECT_GE(n, 0);
      if (n == 1 && wc.wr_id == wr_id) return wc;
    }
    ADD_FAILURE() << "no completion";
    wc.status = IBV_WC_GENERAL_ERR;
    return wc;
  }
};

TEST_F(Live, WritesAndReads) {
  char* a = pages(2);
  char* b = pages(2);
  ibv_mr* mr_a = ibv_reg_mr(pd, a, 2 * kPage, kAll);
  ibv_mr* mr_b = ibv_reg_mr(pd, b, 2 * kPage, kAll);
  std::memset(a, 'x', 2 * kPage);
  ASSERT_EQ(post(0, IBV_WR_RDMA_WRITE, mr_a, mr_b, 2 * kPage), 0);
  EXPECT_EQ(completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(a, b, 2 * kPage), 0);
  std::memset(a, 'y', 2 * kPage);
  ASSERT_EQ(post(1, IBV_WR_RDMA_READ, mr_b, mr_a, 2 * kPage), 0);
  EXPECT_EQ(completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b[2 * kPage - 1], 'y');
}

TEST_F(Live, SendingMemoryThatIsGone) {
  ibv_mr* mr = ibv_reg_mr(pd, pages(1), kPage, kAll);
  ibv_mr* target = ibv_reg_mr(pd, pages(1), kPage, kAll);
  ::munmap(mr->addr, kPage);
  ASSERT_EQ(post(0, IBV_WR_RDMA_WRITE, mr, target, kPage), 0);
  EXPECT_EQ(completion().status, IBV_WC_LOC_PROT_ERR);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(qp[0], &attributes, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_ERR);
}

TEST_F(Live, WritingToMemoryThatIsProtected) {
  ibv_mr* mr = ibv_reg_mr(pd, pages(1), kPage, kAll);
  ibv_mr* target = ibv_reg_mr(pd, pages(1), kPage, kAll);
  ::mprotect(target->addr, kPage, PROT_READ);
  ASSERT_EQ(post(0, IBV_WR_RDMA_WRITE, mr, target, kPage), 0);
  const ibv_wc_status status = completion().status;
  EXPECT_TRUE(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR)
      << ibv_wc_status_str(status);
}

TEST_F(Live, ReadingAFileThatWasTruncated) {
  char path[] = "/tmp/ferry-live-XXXXXX";
  const int file = ::mkstemp(path);
  ::unlink(path);
  ASSERT_EQ(::ftruncate(file, kPage), 0);
  void* memory = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ibv_mr* source = ibv_reg_mr(pd, memory, kPage, kAll);
  ibv_mr* mr = ibv_reg_mr(pd, pages(1), kPage, kAll);
  ASSERT_EQ(::ftruncate(file, 0), 0);  // SIGBUS from here on
  ASSERT_EQ(post(0, IBV_WR_RDMA_READ, mr, source, kPage), 0);
  const ibv_wc_status status = completion().status;
  EXPECT_TRUE(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR)
      << ibv_wc_status_str(status);
  ::close(file);
}

TEST_F(Live, ReceivingIntoMemoryThatIsGone) {
  ibv_mr* mr = ibv_reg_mr(pd, pages(1), kPage, kAll);
  ibv_mr* target = ibv_reg_mr(pd, pages(1), kPage, kAll);
  post_receive(1, target, kPage);
  ::munmap(target->addr, kPage);
  ASSERT_EQ(post(0, IBV_WR_SEND, mr, nullptr, kPage), 0);
  EXPECT_EQ(completion(88).status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Live, AFaultIsCaughtInAThreadThatBlocksAllSignals) {
  ibv_mr* mr = ibv_reg_mr(pd, pages(1), kPage, kAll);
  ibv_mr* target = ibv_reg_mr(pd, pages(1), kPage, kAll);
  ::munmap(mr->addr, kPage);
  std::thread blocked([&] {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    ASSERT_EQ(post(0, IBV_WR_RDMA_WRITE, mr, target, kPage), 0);
    EXPECT_EQ(completion().status, IBV_WC_LOC_PROT_ERR);
  });
  blocked.join();
}

TEST_F(Live, AForgedKeyIsRefused) {
  ibv_mr* mr = ibv_reg_mr(pd, pages(1), kPage, kAll);
  ibv_mr* target = ibv_reg_mr(pd, pages(1), kPage, kAll);
  ASSERT_EQ(post(0, IBV_WR_RDMA_WRITE, mr, target, 64, 0x10000), 0);
  EXPECT_EQ(completion().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Live, EventsWakeASleeper) {
  ibv_mr* mr = ibv_reg_mr(pd, pages(1), kPage, kAll);
  ibv_mr* target = ibv_reg_mr(pd, pages(1), kPage, kAll);
  post_receive(1, target, kPage);
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  std::thread sender([&] {
    ::usleep(50000);
    EXPECT_EQ(post(0, IBV_WR_SEND, mr, nullptr, 64), 0);
  });
  ibv_cq* from = nullptr;
  void* its_context;
  ASSERT_EQ(ibv_get_cq_event(channel, &from, &its_context), 0);
  EXPECT_EQ(from, cq);
  ibv_ack_cq_events(cq, 1);
  sender.join();
  EXPECT_EQ(completion(88).status, IBV_WC_SUCCESS);
}

TEST_F(Live, AForkedChildFailsCleanlyAndTheParentGoesOn) {
  ibv_mr* mr = ibv_reg_mr(pd, pages(1), kPage, kAll);
  ibv_mr* target = ibv_reg_mr(pd, pages(1), kPage, kAll);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    ibv_wc wc;
    if (post(0, IBV_WR_RDMA_WRITE, mr, target, 64) == 0) ::_exit(1);
    if (ibv_poll_cq(cq, 1, &wc) > 0) ::_exit(2);
    if (ibv_alloc_pd(context)) ::_exit(3);
    if (ibv_close_device(context) != 0) ::_exit(4);
    ibv_device** list = ibv_get_device_list(nullptr);
    ibv_context* own = list ? ibv_open_device(list[0]) : nullptr;
    if (!own || !ibv_alloc_pd(own)) ::_exit(5);
    ::exit(0);  // with destructors and all
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::memset(mr->addr, 'z', kPage);
  ASSERT_EQ(post(0, IBV_WR_RDMA_WRITE, mr, target, kPage), 0);
  EXPECT_EQ(completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(static_cast<char*>(target->addr)[kPage - 1], 'z');
}

TEST_F(Live, IllegalTransitionsAreRefused) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  EXPECT_EQ(ibv_modify_qp(qp[0], &attributes, IBV_QP_STATE), EINVAL);  // RTS → INIT
  EXPECT_EQ(qp[0]->state, IBV_QPS_RTS);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  EXPECT_NE(ibv_post_send(qp[0], &wr, &bad), 0);
  EXPECT_EQ(bad, &wr);
}

// As NCCL loads it: by name, each function with its version.
TEST(Loaded, AProgramThatLoadsLibibverbsGetsOurDevices) {
  void* library = ::dlopen("libibverbs.so.1", RTLD_NOW);
  ASSERT_NE(library, nullptr) << ::dlerror();
  const auto get = [&](const char* name) { return ::dlvsym(library, name, "IBVERBS_1.1"); };
  const auto list_devices =
      reinterpret_cast<decltype(&ibv_get_device_list)>(get("ibv_get_device_list"));
  const auto name_of = reinterpret_cast<decltype(&ibv_get_device_name)>(get("ibv_get_device_name"));
  const auto text_of = reinterpret_cast<decltype(&ibv_wc_status_str)>(get("ibv_wc_status_str"));
  ASSERT_TRUE(list_devices && name_of && text_of);
  int count = 0;
  ibv_device** list = list_devices(&count);
  ASSERT_TRUE(list && count > 0);
  EXPECT_STREQ(name_of(list[0]), "ferry0");
  EXPECT_STREQ(text_of(IBV_WC_SUCCESS), "success");  // the stock library's
  ibv_free_device_list(list);
  Dl_info info;
  ASSERT_NE(::dladdr(reinterpret_cast<void*>(list_devices), &info), 0);
  EXPECT_NE(std::strstr(info.dli_fname, "libferry.so"), nullptr) << info.dli_fname;
  ::dlclose(library);
}

}  // namespace
