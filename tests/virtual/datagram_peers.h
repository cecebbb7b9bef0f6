#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <thread>

#include "device/gids.h"
#include "two_programs.h"
#include "wire/grh.h"

// Two programs that send each other datagrams.
namespace ferry::virt::testing {

inline constexpr std::uint32_t kQkey = 0x1111;
inline constexpr std::size_t kGrh = wire::kGrhSize, kSlot = 64;

struct Peer : Side {
  device::Ah* to_other = nullptr;
  std::uint32_t others_qpn = 0;
  std::array<std::byte, 32 * kSlot> slots{};
  device::Mr* slots_mr = nullptr;
  device::Srq* srq = nullptr;  // null: each QP has a receive queue of its own

  void start_ud(std::uint32_t address, bool shares_receives = false) {
    open(address);
    if (shares_receives) srq = create_srq(16, 4);
    qp = make_ud();
    slots_mr = reg(slots.data(), slots.size());
  }
  device::Qp* make_ud() {
    device::Qp* made = create_qp({16, 16, 4, 4, 64}, IBV_QPT_UD, srq);
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qkey = kQkey;
    EXPECT_EQ(made->modify(a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    a.qp_state = IBV_QPS_RTR;
    EXPECT_EQ(made->modify(a, IBV_QP_STATE), 0);
    a.qp_state = IBV_QPS_RTS;
    EXPECT_EQ(made->modify(a, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    return made;
  }
  device::Ah* ah_to(const ibv_gid& gid) {
    ibv_ah_attr path{};
    path.is_global = 1;
    path.port_num = 1;
    path.grh.dgid = gid;
    path.grh.hop_limit = 64;
    device::Ah* ah = nullptr;
    EXPECT_EQ(context->create_ah(pd, path, &ah), 0);
    return ah;
  }
  void know(Peer& other) {
    to_other = ah_to(other.gid());
    others_qpn = other.qp->qpn();
  }
  int receive_datagram(std::size_t slot, std::uint64_t id) {
    std::byte* const memory = &slots[slot * kSlot];
    return srq != nullptr ? r::post_receive(srq, id, memory, kSlot, slots_mr)
                          : r::post_receive(qp, id, memory, kSlot, slots_mr);
  }
  int send_datagram(std::uint64_t id, std::uint64_t value) {
    return send_to(others_qpn, id, value);
  }
  int send_to(std::uint32_t qpn, std::uint64_t id, std::uint64_t value) {
    Send send(IBV_WR_SEND, id, &value, 8, nullptr, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    ibv_ah handle{};  // an application may be done with it, as with the inline data
    handle.handle = to_other->handle();
    send.wr.wr.ud = {&handle, qpn, kQkey};
    return send.post(qp);
  }
  // The next completion, which is of a receive.
  ibv_wc arrival() {
    for (;;) {
      const ibv_wc wc = wait_completion(cq);
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      if (wc.status != IBV_WC_SUCCESS || (wc.opcode & IBV_WC_RECV) != 0) return wc;
    }
  }
  std::uint64_t value_in(std::size_t slot) const {
    std::uint64_t value = 0;
    std::memcpy(&value, &slots[slot * kSlot + kGrh], sizeof value);
    return value;
  }
  wire::GrhAddresses addresses_in(std::size_t slot) const {
    const auto grh = std::span(slots).subspan(slot * kSlot).first<kGrh>();
    const auto addresses = wire::parse_grh(grh);
    EXPECT_TRUE(addresses.has_value());
    return addresses.value_or(wire::GrhAddresses{});
  }
};

// A begins at kFirst, B at kThird.
struct DatagramPeers : ::testing::Test {
  Peer a, b;

  void SetUp() override { start(/*shares_receives=*/false); }
  void start(bool shares_receives) {
    a.start_ud(kFirst, shares_receives);
    b.start_ud(kThird, shares_receives);
    a.know(b);
    b.know(a);
  }
  // `hearer` hears of it before the program goes on.
  static void move(Peer& peer, std::uint32_t address, Peer* hearer = nullptr) {
    peer.context->prepare();
    peer.context->suspend_peers();
    peer.stop();
    peer.park();
    peer.device->address = address;
    peer.unpark();
    if (hearer != nullptr) tell(*hearer, peer);
    peer.context->resume(false);
  }
  static void tell(Peer& hearer, Peer& mover) {
    hearer.context->moved({{}, {mover.context->moved_datagram_qps()}});
  }
  // A datagram from `from` to `to`, which sees it come from where it knows `from`.
  static void expect_datagram(Peer& from, Peer& to, std::size_t slot) {
    const std::uint64_t value = 100 + slot;
    ASSERT_EQ(to.receive_datagram(slot, slot), 0);
    ASSERT_EQ(from.send_datagram(8, value), 0);
    const ibv_wc wc = to.arrival();
    EXPECT_EQ(wc.wr_id, slot);
    EXPECT_EQ(wc.qp_num, to.qp->qpn());
    EXPECT_EQ(wc.src_qp, from.qp->qpn());
    EXPECT_EQ(wc.byte_len, kGrh + 8);
    EXPECT_EQ(to.value_in(slot), value);
    EXPECT_EQ(to.addresses_in(slot).source, device::address_of(from.gid()));
    EXPECT_EQ(to.addresses_in(slot).destination, device::address_of(to.gid()));
  }
  // Each program posts receives, sends and moves at random. FERRY_SEED plays one again.
  void go_at_random() {
    const char* const given = std::getenv("FERRY_SEED");
    const unsigned seed =
        given != nullptr ? static_cast<unsigned>(std::atoi(given)) : std::random_device()();
    SCOPED_TRACE("FERRY_SEED=" + std::to_string(seed));
    std::minstd_rand random(seed);
    struct Queue {
      std::uint64_t posted = 0, consumed = 0;
    } queues[2];
    Peer* const peers[2] = {&a, &b};
    constexpr std::uint32_t kPlaces[] = {kFirst, kSecond, kThird, kFourth};
    for (std::uint64_t step = 0; step < 600 && !HasFailure(); ++step) {
      const std::size_t to = random() % 2;
      Peer &receiver = *peers[to], &sender = *peers[1 - to];
      Queue& queue = queues[to];
      const auto choice = random() % 16;
      if (choice < 7) {
        if (queue.posted - queue.consumed == 16) continue;
        ASSERT_EQ(receiver.receive_datagram(queue.posted % 32, queue.posted % 32), 0);
        ++queue.posted;
      } else if (choice < 14) {
        if (queue.posted == queue.consumed) continue;
        ASSERT_EQ(sender.send_datagram(8, step), 0);
        const std::size_t slot = queue.consumed++ % 32;
        EXPECT_EQ(receiver.arrival().src_qp, sender.qp->qpn());
        EXPECT_EQ(receiver.value_in(slot), step);
        EXPECT_EQ(receiver.addresses_in(slot).source, device::address_of(sender.gid()));
        EXPECT_EQ(receiver.addresses_in(slot).destination, device::address_of(receiver.gid()));
      } else if (choice == 14) {
        move(sender, kPlaces[random() % 4]);
        tell(receiver, sender);
      } else {
        ASSERT_EQ(sender.context->destroy(sender.to_other), 0);
        sender.know(receiver);
      }
    }
  }
  // One thread sends, another one posts receives and polls, and a third one does `beside` again and again, while both
  // programs move.
  void use_while_both_move(const std::function<void()>& beside) {
    std::atomic<bool> ends{false};
    std::atomic<int> arrived{0};
    const std::uint32_t from = a.qp->qpn();
    const port::Address source = device::address_of(a.gid()),
                        destination = device::address_of(b.gid());
    std::thread sender([&] {
      for (std::uint64_t id = 0; !ends; ++id) {
        a.send_datagram(id, id);  // its queue may be full
        ibv_wc wc[16];
        a.cq->poll(16, wc);
        std::this_thread::yield();
      }
    });
    std::thread receiver([&] {
      std::uint64_t posted = 0, consumed = 0;
      while (!ends) {
        if (posted - consumed < 16) {
          EXPECT_EQ(b.receive_datagram(posted % 32, posted % 32), 0);
          ++posted;
        }
        ibv_wc wc{};
        if (b.cq->poll(1, &wc) == 0) continue;
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.src_qp, from);
        EXPECT_EQ(wc.wr_id, consumed % 32);
        EXPECT_EQ(b.addresses_in(wc.wr_id).source, source);
        EXPECT_EQ(b.addresses_in(wc.wr_id).destination, destination);
        ++consumed;
        ++arrived;
      }
    });
    std::thread third([&] {
      while (!ends) {
        beside();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    for (int i = 0; i < 10; ++i) {
      move(a, i % 2 == 0 ? kSecond : kFirst, &b);
      move(b, i % 2 == 0 ? kFourth : kThird, &a);
      const int before = arrived;
      while (arrived < before + 20 && !HasFailure()) std::this_thread::yield();
    }
    ends = true;
    sender.join();
    receiver.join();
    third.join();
  }
};

}  // namespace ferry::virt::testing
