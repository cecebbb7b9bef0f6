#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

// A program of plain libibverbs that has the entry points and the RNIC in itself, over the loopback
// interface: runs under sanitizers too.
namespace ferry::verbs::families {

constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr std::uint32_t kQkey = 0x11111111;
constexpr std::size_t kGrh = 40;  // bytes before a datagram

struct Device : ::testing::Test {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;  // of sends and receives
  ibv_gid gid{};
  alignas(4096) std::array<char, 8192> ours{}, theirs{};
  ibv_mr* mr_ours = nullptr;
  ibv_mr* mr_theirs = nullptr;

  void SetUp() override;
  void TearDown() override;

  ibv_qp_init_attr qp_attributes(ibv_qp_type type) const;
  ibv_qp* create_qp(ibv_qp_type type) const;
  // To RTS, towards a QP of the same device. RC, UC, XRC; UD looks at nothing of it.
  void connect(ibv_qp* qp, std::uint32_t peer);
  void connect(ibv_qp* a, ibv_qp* b);
  // The next completion; fails the test when there is none.
  ibv_wc next(ibv_cq* from = nullptr);
  void expect_none(std::chrono::milliseconds time);
  ibv_async_event event();
};

// One request, with one element unless it is empty.
struct Request {
  ibv_sge sge{};
  ibv_send_wr wr{};
  Request(ibv_wr_opcode opcode, const ibv_mr* mr, std::uint32_t length) {
    if (mr) sge = {reinterpret_cast<std::uintptr_t>(mr->addr), length, mr->lkey};
    wr.wr_id = 1;
    wr.sg_list = &sge;
    wr.num_sge = mr ? 1 : 0;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
  }
  Request(const Request&) = delete;
  Request& to(std::uint64_t address, std::uint32_t rkey) {
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = rkey;
    return *this;
  }
  Request& to(const ibv_mr* mr) { return to(reinterpret_cast<std::uintptr_t>(mr->addr), mr->rkey); }
  int post(ibv_qp* qp) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
  }
};

int post_receive(ibv_qp* qp, std::uint64_t id, const ibv_mr* mr, std::uint32_t length);
int post_receive(ibv_srq* srq, std::uint64_t id, const ibv_mr* mr, std::uint32_t length);

// Two QPs of one type, connected with each other.
template <ibv_qp_type kType>
struct ConnectedPair : Device {
  ibv_qp* a = nullptr;
  ibv_qp* b = nullptr;
  void SetUp() override {
    Device::SetUp();
    a = create_qp(kType);
    b = create_qp(kType);
    ASSERT_TRUE(a && b);
    ASSERT_NO_FATAL_FAILURE(connect(a, b));
  }
  void TearDown() override {
    EXPECT_EQ(ibv_destroy_qp(a), 0);
    EXPECT_EQ(ibv_destroy_qp(b), 0);
    Device::TearDown();
  }
};

}  // namespace ferry::verbs::families
