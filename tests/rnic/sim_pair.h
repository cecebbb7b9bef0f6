#pragma once

#include "rig.h"
#include "sim_host.h"

namespace ferry::rnic::testing {

// Two RNICs, 10.0.0.1 and 10.0.0.2, on a lossless simulated link, and a pair of connected QPs.
// Nothing happens but in run().
struct SimPair {
  port::SimNetwork network{1};
  SimEnvironment environment{network, 2};
  std::shared_ptr<SimPortSource> ports = std::make_shared<SimPortSource>(network);
  Node a, b;
  device::Qp* qp_a = nullptr;
  device::Qp* qp_b = nullptr;
  FaultHandler faults;

  Context::Options options(unsigned host) {
    Context::Options options;
    options.environment = &environment;
    options.ports = ports;
    options.with_thread = false;
    options.netdev.name = "sim0";
    options.netdev.mtu = 9000;
    options.netdev.guid = host;
    options.netdev.addresses = {port::Address::from_ipv4(0x0A000000 + host)};
    return options;
  }

  void open(int cqe = 1000) {
    ASSERT_NO_FATAL_FAILURE(a.open(options(1), cqe));
    ASSERT_NO_FATAL_FAILURE(b.open(options(2), cqe));
  }
  void connect(ibv_qp_cap cap = {64, 64, 4, 4, 64}, bool signal_all = false) {
    qp_a = a.create_qp(cap, signal_all);
    qp_b = b.create_qp(cap, signal_all);
    to_init(qp_a);
    to_init(qp_b);
    to_rts(qp_a, qp_b->qpn(), b.gid());
    to_rts(qp_b, qp_a->qpn(), a.gid());
  }

  // Lets time pass.
  void run(transport::Time duration = std::chrono::milliseconds(2)) {
    const transport::Time end = network.now() + duration;
    for (;;) {
      transport::Time next = std::min(end, network.next_event_time());
      for (Node* node : {&a, &b}) {
        if (!node->context->engine().suspended()) {
          next = std::min(next, node->context->engine().deadlines().first());
        }
      }
      next = std::max(next, network.now());
      network.advance_to(next);
      for (Node* node : {&a, &b}) {
        Engine::Lock lock(node->context->engine());
        node->context->engine().run(next);
      }
      if (next >= end) return;
    }
  }

  // The completions that wait.
  static std::vector<ibv_wc> drain(device::Cq* cq) {
    std::vector<ibv_wc> all;
    ibv_wc wc{};
    while (cq->poll(1, &wc) == 1) all.push_back(wc);
    return all;
  }
};

}  // namespace ferry::rnic::testing
