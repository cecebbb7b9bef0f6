#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "rnic/context.h"
#include "rnic/memory/copy.h"

// What the tests of the RNIC share: a sink that records events, memory with its registration, and
// QPs brought up by hand.
namespace ferry::rnic::testing {

// Events, from any thread.
class Sink final : public device::EventSink {
 public:
  void completion(device::Cq&) override { completions_.fetch_add(1); }
  void asynchronous(ibv_event_type type, device::Object* object) override {
    std::lock_guard lock(mutex_);
    events_.emplace_back(type, object);
  }
  int completions() const { return completions_.load(); }
  bool saw(ibv_event_type type, const device::Object* object) const {
    return count(type, object) > 0;
  }
  std::size_t count(ibv_event_type type, const device::Object* object) const {
    std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const auto& event : events_) count += event.first == type && event.second == object;
    return count;
  }

 private:
  std::atomic<int> completions_{0};
  mutable std::mutex mutex_;
  std::vector<std::pair<ibv_event_type, device::Object*>> events_;
};

// Installs the fault handler that verbs/ installs in programs, for the life of the object.
class FaultHandler {
 public:
  FaultHandler() {
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    action.sa_sigaction = [](int number, siginfo_t* info, void* context) {
      if (recover_from_fault(context, info->si_addr)) return;
      signal(number, SIG_DFL);
    };
    sigaction(SIGSEGV, &action, &segv_);
    sigaction(SIGBUS, &action, &bus_);
    set_fault_handler_installed(true);
  }
  ~FaultHandler() {
    set_fault_handler_installed(false);
    sigaction(SIGSEGV, &segv_, nullptr);
    sigaction(SIGBUS, &bus_, nullptr);
  }

 private:
  struct sigaction segv_ {
  }, bus_{};
};

// One RNIC with a PD and a CQ, on a slot of 127.0.0.1 or ::1 (or of a simulated network).
struct Node {
  Sink sink;
  std::unique_ptr<Context> context;
  device::Pd* pd = nullptr;
  device::Cq* cq = nullptr;

  void open(const Context::Options& wanted, int cqe = 1000) {
    Context::Options options = wanted;
    options.sink = &sink;
    int error = 0;
    context = Context::open(options, &error);
    ASSERT_EQ(error, 0);
    ASSERT_NE(context, nullptr);
    ASSERT_EQ(context->alloc_pd(&pd), 0);
    ASSERT_EQ(context->create_cq({cqe}, &cq), 0);
  }

  device::Srq* create_srq(std::uint32_t max_wr = 16, std::uint32_t max_sge = 2) const {
    device::SrqInit init;
    init.pd = pd;
    init.attributes = {max_wr, max_sge, 0};
    device::Srq* srq = nullptr;
    EXPECT_EQ(context->create_srq(&init, &srq), 0);
    return srq;
  }

  device::Qp* create_qp(ibv_qp_cap cap = {64, 64, 4, 4, 64}, bool signal_all = false,
                        device::Srq* srq = nullptr) const {
    device::QpInit init;
    init.pd = pd;
    init.send_cq = init.recv_cq = cq;
    init.srq = srq;
    init.cap = cap;
    init.sq_sig_all = signal_all;
    device::Qp* qp = nullptr;
    EXPECT_EQ(context->create_qp(&init, &qp), 0);
    return qp;
  }

  device::Mr* reg(void* address, std::size_t length,
                  unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                    IBV_ACCESS_REMOTE_READ) const {
    device::MrInit init;
    init.pd = pd;
    init.address = address;
    init.length = length;
    init.iova = reinterpret_cast<std::uintptr_t>(address);
    init.access = access;
    device::Mr* mr = nullptr;
    EXPECT_EQ(context->reg_mr(init, &mr), 0);
    return mr;
  }

  ibv_gid gid(unsigned index = 0) const {
    ibv_gid_entry entry{};
    EXPECT_EQ(context->query_gid(1, index, &entry), 0);
    return entry.gid;
  }
};

constexpr int kInitMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRtsMask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

// Attributes of every transition of a connection to `dest_qpn` at `dgid`.
inline ibv_qp_attr attributes(ibv_qp_state state, std::uint32_t dest_qpn, const ibv_gid& dgid) {
  ibv_qp_attr a{};
  a.qp_state = state;
  a.port_num = 1;
  a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  a.path_mtu = IBV_MTU_1024;
  a.dest_qp_num = dest_qpn;
  a.rq_psn = 0xFFFFF0;
  a.sq_psn = 0xFFFFF0;
  a.max_dest_rd_atomic = 4;
  a.max_rd_atomic = 4;
  a.min_rnr_timer = 12;
  a.timeout = 18;  // 1 s: machines are busy
  a.retry_cnt = 7;
  a.rnr_retry = 7;
  a.ah_attr.is_global = 1;
  a.ah_attr.grh.dgid = dgid;
  a.ah_attr.grh.hop_limit = 64;
  a.ah_attr.port_num = 1;
  return a;
}

inline void to_init(device::Qp* qp) {
  ASSERT_EQ(qp->modify(attributes(IBV_QPS_INIT, 0, {}), kInitMask), 0);
}
inline void to_rts(device::Qp* qp, std::uint32_t dest_qpn, const ibv_gid& dgid,
                   unsigned gid_index = 0) {
  ibv_qp_attr a = attributes(IBV_QPS_RTR, dest_qpn, dgid);
  a.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
  ASSERT_EQ(qp->modify(a, kRtrMask), 0);
  ASSERT_EQ(qp->modify(attributes(IBV_QPS_RTS, dest_qpn, dgid), kRtsMask), 0);
}

// One request with one element.
struct Send {
  ibv_sge sge{};
  ibv_send_wr wr{};
  Send(ibv_wr_opcode opcode, std::uint64_t id, const void* address, std::uint32_t length,
       const device::Mr* mr, unsigned flags = IBV_SEND_SIGNALED) {
    sge = {reinterpret_cast<std::uintptr_t>(address), length, mr != nullptr ? mr->lkey() : 0};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = length > 0 ? 1 : 0;
    wr.opcode = opcode;
    wr.send_flags = flags;
  }
  Send(const Send& other) : sge(other.sge), wr(other.wr) {
    if (other.wr.sg_list == &other.sge) wr.sg_list = &sge;
  }
  Send& operator=(const Send&) = delete;
  Send& remote(const void* address, std::uint32_t rkey) {
    wr.wr.rdma = {reinterpret_cast<std::uintptr_t>(address), rkey};
    return *this;
  }
  Send& atomic(const void* address, std::uint32_t rkey, std::uint64_t compare_add,
               std::uint64_t swap = 0) {
    wr.wr.atomic = {reinterpret_cast<std::uintptr_t>(address), compare_add, swap, rkey};
    return *this;
  }
  Send& immediate(std::uint32_t value) {
    wr.imm_data = value;
    return *this;
  }
  int post(device::Qp* qp) {
    ibv_send_wr* bad = nullptr;
    return qp->post_send(&wr, &bad);
  }
};

template <typename Queue>  // a QP or an SRQ
int post_receive(Queue* qp, std::uint64_t id, void* address, std::uint32_t length,
                 const device::Mr* mr) {
  ibv_sge sge{reinterpret_cast<std::uintptr_t>(address), length, mr != nullptr ? mr->lkey() : 0};
  ibv_recv_wr wr{};
  wr.wr_id = id;
  wr.sg_list = &sge;
  wr.num_sge = length > 0 ? 1 : 0;
  ibv_recv_wr* bad = nullptr;
  return qp->post_recv(&wr, &bad);
}

// Polls until there is a completion.
inline ibv_wc wait_completion(device::Cq* cq,
                              std::chrono::milliseconds limit = std::chrono::seconds(10)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  ibv_wc wc{};
  while (std::chrono::steady_clock::now() < end) {
    const int count = cq->poll(1, &wc);
    if (count == 1) return wc;
    if (count < 0) break;
  }
  ADD_FAILURE() << "no completion";
  wc.status = IBV_WC_GENERAL_ERR;
  return wc;
}

template <typename Condition>
bool eventually(Condition condition, std::chrono::milliseconds limit = std::chrono::seconds(10)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline std::vector<std::byte> pattern(std::size_t length, unsigned seed) {
  std::vector<std::byte> bytes(length);
  std::uint32_t state = seed * 2654435761u + 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

}  // namespace ferry::rnic::testing
