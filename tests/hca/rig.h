#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "hca/rnic.h"
#include "played_stock.h"

// A device of the kernel over a played libibverbs.
namespace ferry::hca::testing {

struct NoEvents : device::EventSink {
  void completion(device::Cq& /*cq*/) override { FAIL() << "the kernel has a descriptor for this"; }
  void asynchronous(ibv_event_type /*type*/, device::Object* /*object*/) override {
    FAIL() << "the kernel has a descriptor for this";
  }
};

struct Hca : ::testing::Test {
  NoEvents sink;
  std::unique_ptr<Rnic> rnic;
  std::unique_ptr<device::Context> context;
  device::Pd* pd = nullptr;
  device::Cq* cq = nullptr;

  void SetUp() override {
    reset_stock();
    rnic = std::make_unique<Rnic>(&stock().device, nullptr);
    int error = 0;
    context = rnic->open(sink, &error);
    ASSERT_EQ(error, 0);
    ASSERT_EQ(context->alloc_pd(&pd), 0);
    ASSERT_EQ(context->create_cq({16}, &cq), 0);
  }

  device::Qp* make_qp(ibv_qp_type type, std::uint64_t operations = 0) {
    device::QpInit init;
    init.pd = pd;
    init.send_cq = init.recv_cq = cq;
    init.type = type;
    init.cap = {8, 8, 1, 1, 0};
    init.send_operations = operations;
    device::Qp* qp = nullptr;
    EXPECT_EQ(context->create_qp(&init, &qp), 0);
    return qp;
  }

  device::Ah* make_ah() {
    device::Ah* ah = nullptr;
    EXPECT_EQ(context->create_ah(pd, {}, &ah), 0);
    return ah;
  }
};

// Requests in a list; their AHs are the application's structs, of which the device reads the
// handle.
struct Requests {
  explicit Requests(std::size_t count) : wrs(count) {
    for (std::size_t i = 0; i < count; ++i) {
      wrs[i].wr_id = i + 1;
      wrs[i].opcode = IBV_WR_SEND;
      wrs[i].next = i + 1 < count ? &wrs[i + 1] : nullptr;
    }
  }
  void to(ibv_ah* ah) {
    for (ibv_send_wr& wr : wrs) wr.wr.ud = {ah, 5, 6};
  }
  std::vector<ibv_send_wr> wrs;
  ibv_send_wr* bad = nullptr;
};

inline ibv_ah application_ah(const device::Ah& ah) {
  return {nullptr, nullptr, ah.handle()};
}

}  // namespace ferry::hca::testing
