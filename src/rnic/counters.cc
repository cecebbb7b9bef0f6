#include "rnic/context.h"

// The counters have the names that the kernel's RoCE drivers use, wherever one of them counts the
// same.
namespace ferry::rnic {

void Context::counters(std::vector<device::Counter>* out) {
  if (engine_.abandoned()) return;
  transport::Counters sum;
  DropCounters drops;
  std::uint64_t injected_losses = 0;
  {
    Engine::Lock lock(engine_);
    sum = engine_.qps().counters();
    drops = engine_.reception().drops();
    injected_losses = ports_->injected_losses();
  }
  using Group = device::Counter::Group;
  const auto port = [out](const char* name, std::uint64_t value) {
    out->push_back({Group::kPort, name, value});
  };
  const auto hardware = [out](const char* name, std::uint64_t value) {
    out->push_back({Group::kHardware, name, value});
  };
  port("port_xmit_data", sum.sent_bytes / 4);  // words of 4 bytes of payload
  port("port_xmit_packets", sum.sent_packets);
  port("port_rcv_data", sum.received_bytes / 4);
  port("port_rcv_packets", sum.received_packets);
  port("port_rcv_errors", drops.bad_icrc + drops.malformed);
  hardware("sent_pkts", sum.sent_packets);
  hardware("rcvd_pkts", sum.received_packets);
  hardware("duplicate_request", sum.duplicate_packets);
  hardware("out_of_seq_request", sum.out_of_sequence);
  hardware("implied_nak_seq_err", sum.lost_responses);
  hardware("send_rnr_err", sum.rnr_naks_sent);
  hardware("rcvd_rnr_err", sum.rnr_naks_received);
  hardware("local_ack_timeout_err", sum.timeouts);
  hardware("retransmitted_pkts", sum.retransmitted_packets);
  hardware("rx_icrc_encapsulated", drops.bad_icrc);
  hardware("dropped_qkey", sum.dropped_qkey);                        // datagrams
  hardware("dropped_messages", sum.dropped_messages);                // UC and UD
  hardware("injected_losses", injected_losses);                      // FERRY_FAULT_LOSS
  hardware("rejected_pkts", sum.dropped_forged + drops.unknown_qp);  // not of the peer, or no QP
}

}  // namespace ferry::rnic
