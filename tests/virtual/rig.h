#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "../rnic/loopback.h"
#include "virtual/rnic.h"

// A virtual device over an RNIC of ours, which is not asked to move: each time that the context
// enters the device, an RNIC is opened anew, on 127.0.0.1 or another address of the loopback interface.
namespace ferry::virt::testing {

namespace r = ferry::rnic::testing;

class LoopbackRnic final : public device::Rnic {
 public:
  const std::string& name() const override { return name_; }
  const std::string& netdev() const override { return name_; }
  std::uint64_t guid() const override { return 1; }
  std::unique_ptr<device::Context> open(device::EventSink& sink, int* error) override {
    *error = fails;
    if (fails != 0) return nullptr;
    ferry::rnic::Netdev lo = r::loopback(false, false);
    lo.addresses.push_back(port::Address::from_ipv4(address));
    rnic::Context::Options options = r::options(lo);
    options.sink = &sink;
    std::unique_ptr<device::Context> context = rnic::Context::open(options, error);
    return wrap != nullptr ? wrap(std::move(context)) : std::move(context);
  }

  int fails = 0;  // errno of open()
  std::uint32_t address = INADDR_LOOPBACK;
  // Puts something between a context that is opened and who opens it.
  std::function<std::unique_ptr<device::Context>(std::unique_ptr<device::Context>)> wrap;

 private:
  const std::string name_ = "lo";
};

// Notes what the context tells for rdma_cm.
struct NewsSink final : device::MoveSink {
  void cm_news(device::CmNews news, std::uint32_t qpn) override { heard.emplace_back(news, qpn); }
  std::vector<std::pair<device::CmNews, std::uint32_t>> heard;
};

// A program with one context, whose QPs are connected with each other.
struct Program {
  r::Sink sink;
  LoopbackRnic* device = nullptr;
  std::unique_ptr<Rnic> rnic;
  std::unique_ptr<device::MovableContext> context;
  device::Pd* pd = nullptr;
  device::Cq* cq = nullptr;
  r::FaultHandler faults;
  NewsSink moves;
  // To be set before open():
  std::chrono::milliseconds watch{0};  // for idle QPs, before a stop
  std::function<std::unique_ptr<device::Context>(std::unique_ptr<device::Context>)> wrap;

  void open(std::uint32_t address = INADDR_LOOPBACK) {
    auto inner = std::make_unique<LoopbackRnic>();
    device = inner.get();
    device->address = address;
    device->wrap = wrap;
    rnic = std::make_unique<Rnic>(std::move(inner), watch);
    int error = 0;
    context = rnic->open_movable(sink, moves, &error);
    ASSERT_NE(context, nullptr);
    ASSERT_EQ(context->alloc_pd(&pd), 0);
    ASSERT_EQ(context->create_cq({1000}, &cq), 0);
  }
  device::Srq* create_srq(std::uint32_t max_wr, std::uint32_t max_sge = 1) {
    device::SrqInit init;
    init.pd = pd;
    init.attributes = {max_wr, max_sge, 0};
    device::Srq* srq = nullptr;
    EXPECT_EQ(context->create_srq(&init, &srq), 0);
    return srq;
  }
  device::Qp* create_qp(ibv_qp_cap cap = {16, 16, 4, 4, 64}, ibv_qp_type type = IBV_QPT_RC,
                        device::Srq* srq = nullptr) {
    device::QpInit init;
    init.pd = pd;
    init.send_cq = init.recv_cq = cq;
    init.cap = cap;
    init.type = type;
    init.srq = srq;
    device::Qp* qp = nullptr;
    EXPECT_EQ(context->create_qp(&init, &qp), 0);
    return qp;
  }
  ibv_gid gid() {
    ibv_gid_entry entry{};
    EXPECT_EQ(context->query_gid(1, 0, &entry), 0);
    return entry.gid;
  }
  static void init(device::Qp* qp) {
    ibv_qp_attr init = r::attributes(IBV_QPS_INIT, 0, {});
    init.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
    ASSERT_EQ(qp->modify(init, r::kInitMask), 0);
  }
  // With a QP of this program or of another.
  void connect(device::Qp* a, device::Qp* b) {
    for (device::Qp* qp : {a, b}) init(qp);
    r::to_rts(a, b->qpn(), gid());
    r::to_rts(b, a->qpn(), gid());
  }
  static constexpr unsigned kRemote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  device::Mr* reg(void* address, std::size_t length, unsigned access = kRemote) {
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
  int quiesce(std::chrono::milliseconds limit = std::chrono::seconds(10)) {
    std::uint32_t unacked = 0;
    context->prepare();
    return context->quiesce(limit, &unacked);
  }
  // The device is left and entered again, as by a move.
  void move() {
    ASSERT_EQ(quiesce(), 0);
    device::Parcel parcel;
    ASSERT_EQ(context->park(&parcel), 0);
    ASSERT_EQ(context->unpark(parcel), 0);
    context->resume(false);
  }
};

}  // namespace ferry::virt::testing
