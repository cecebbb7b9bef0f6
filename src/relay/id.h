#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "relay/answers.h"
#include "relay/devices.h"
#include "relay/kernel.h"
#include "virtual/events/steady_descriptor.h"

namespace ferry::relay {

// An event as the program gets it, with the relay's numbers.
struct Event {
  rdma_ucm_event_resp response{};
  std::uint32_t id = 0;      // whose events_reported it raises
  std::uint32_t group = 0;   // of a multicast join, or 0
  std::uint32_t new_id = 0;  // of a connection request, or 0
};

// One /dev/infiniband/rdma_cm that the program has open: it has the steady descriptor, and the kernel's file stands
// behind that.
struct Channel {
  virt::SteadyDescriptor steady;
  std::unique_ptr<KernelFile> file;  // null while the program is away from the kernel
  dev_t number = 0;
  // The kernel's events do not make the descriptor readable, because the program may not see some of them: the agent
  // takes them from the kernel.
  bool is_muted = false;
  std::deque<Event> kept;                              // the program gets these first
  std::map<std::uint32_t, std::uint32_t> ids, groups;  // of the kernel → of the program
};

// An rdma_cm_id of the program, and what is needed to make it again.
struct Id {
  enum class State : std::uint8_t {
    kIdle,
    kBound,
    kListening,
    kResolving,      // the kernel looks for an address or a route
    kResolved,       // an address, or a route as well
    kRequested,      // a request of a peer, which the program has not answered
    kConnecting,     // until both ends are connected
    kAnswered,       // the peer has accepted, and the program has to say so
    kConnected,      // from here on, the kernel need not know the ID any more
    kDisconnecting,  // the program has disconnected; the event is still to come
    kEnded           // disconnected, rejected or failed
  };
  struct Option {
    std::uint32_t level = 0, name = 0;
    std::vector<std::byte> value;
  };

  // The program has no connection with a peer that could be told of anything.
  bool is_datagram() const {
    return port_space == RDMA_PS_UDP || port_space == RDMA_PS_IPOIB || qp_type == IBV_QPT_UD;
  }

  std::uint32_t handle = 0;
  std::uint32_t kernels = 0;  // the kernel's number of it, if is_here
  bool is_here = false;       // the kernel has it
  bool is_ending = false;     // the kernel is at DESTROY_ID
  std::uint64_t uid = 0;
  std::shared_ptr<Channel> channel;
  std::uint16_t port_space = 0;
  std::uint8_t qp_type = 0;
  State state = State::kIdle;
  rdma_ucm_bind bound{};  // kBound, kListening: the address that the program has given
  int backlog = 0;
  std::vector<Option> options;
  std::uint32_t qpn = 0;   // as the program knows it; 0: none
  __be64 device = 0;       // GUID, as the program knows it
  std::uint32_t peer = 0;  // the peer's QPN, as the program knows it; 0: not known
  std::uint32_t events_reported = 0;
  std::uint32_t groups = 0;  // multicast groups that it has joined

  bool peer_moves = false;      // what the kernel says of the connection may be due to a move
  std::vector<Event> withheld;  // DISCONNECTED and TIMEWAIT_EXIT, which came meanwhile
  bool awaits_last = false;     // DISCONNECTED has come, TIMEWAIT_EXIT has not
  // Of the connection, if the peer moves, or the kernel does not know it any more: the QP may end before the program
  // disconnects.
  std::optional<Ends> ends;
  std::shared_ptr<const Answers> kept;  // what the kernel would answer
};

struct Group {
  std::uint32_t handle = 0, kernels = 0, id = 0, events_reported = 0;
};

}  // namespace ferry::relay
