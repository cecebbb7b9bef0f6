#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "port/endpoint.h"
#include "port/port.h"
#include "port/random.h"

// A simulated network: deterministic for a seed and a sequence of calls, in virtual time that the
// caller advances. It has no threads, clock or sockets.
//
//   SimNetwork network(seed);
//   auto a = network.attach(endpoint_a), b = network.attach(endpoint_b);
//   ... a->reserve(), a->flush() ...
//   network.advance_to(network.next_event_time());   // packets due by then can be received
//   ... b->receive() ...
namespace ferry::port {

using SimTime = std::chrono::nanoseconds;  // since the start of the simulation
inline constexpr SimTime kSimNever = SimTime::max();

// What happens to packets. Probabilities (0 .. 1) are per packet and independent. Packets of one
// sender to one receiver stay in order, except the reordered ones: these take up to reorder_delay
// longer, and later ones may overtake them.
struct SimConditions {
  double loss = 0;
  double duplication = 0;
  double reordering = 0;
  SimTime min_delay = std::chrono::microseconds(5);
  SimTime max_delay = std::chrono::microseconds(5);
  SimTime reorder_delay = std::chrono::microseconds(100);
};

enum class SimVerdict : std::uint8_t {
  // When a packet leaves:
  kSent,
  kReordered,   // sent, with a delay of its own
  kDuplicated,  // a second copy was sent; follows the verdict on the first
  kLost,
  kFiltered,  // by set_filter()
  // When it arrives:
  kDelivered,
  kUnreachable,  // no port is attached there
  kOverflow,     // the receiver's buffer is full
};
const char* name_of(SimVerdict verdict);

namespace internal {
struct SimSocket;
}

class SimPort;

// A port without its owner, like a descriptor on its way to another process: it is still bound, and
// packets wait in it. Destroying it unbinds.
class SimHandle {
 public:
  SimHandle() = default;
  SimHandle(SimHandle&&) = default;
  SimHandle& operator=(SimHandle&&) = default;
  explicit operator bool() const { return socket_ != nullptr; }

 private:
  friend class SimNetwork;
  friend class SimPort;
  std::shared_ptr<internal::SimSocket> socket_;
};

// Must outlive its ports and handles.
class SimNetwork {
 public:
  using Trace = std::function<void(SimTime, const Endpoint& from, const Endpoint& to,
                                   std::span<const std::byte> bytes, SimVerdict)>;
  using Filter = std::function<bool(const Endpoint& from, const Endpoint& to,
                                    std::span<const std::byte> bytes)>;

  explicit SimNetwork(std::uint64_t seed);
  ~SimNetwork();

  // Holds for packets sent from now on; those under way keep their fate.
  void set_conditions(const SimConditions& conditions) { conditions_ = conditions; }
  const SimConditions& conditions() const { return conditions_; }
  // Drops the packets for which it returns false; an empty function drops none.
  void set_filter(Filter filter) { filter_ = std::move(filter); }
  void set_trace(Trace trace) { trace_ = std::move(trace); }
  // The most bytes (window_charge() of each packet) that wait for a receiver. Holds for ports
  // attached from now on.
  void set_receive_buffer(std::size_t bytes) { receive_buffer_ = bytes; }

  // Null when the endpoint is taken.
  std::unique_ptr<SimPort> attach(const Endpoint& endpoint);
  // Null for an empty handle.
  std::unique_ptr<SimPort> adopt(SimHandle handle);

  SimTime now() const { return now_; }
  // When the next packet arrives; kSimNever when none is under way.
  SimTime next_event_time() const;
  // Moves time on (never back), and gives every packet that is due by then to its receiver.
  void advance_to(SimTime time);

 private:
  friend class SimPort;
  friend struct internal::SimSocket;
  struct Flight {
    Endpoint from, to;
    std::vector<std::byte> bytes;
    std::uint16_t ip_identification;
  };

  void send(const Endpoint& from, const Endpoint& to, std::vector<std::byte> bytes,
            std::uint16_t ip_identification);
  void launch(Flight flight, bool reordered);
  void trace(const Flight& flight, SimVerdict verdict) const;

  SplitMix64 random_;
  SimConditions conditions_;
  Filter filter_;
  Trace trace_;
  std::size_t receive_buffer_ = 1 << 20;
  SimTime now_{0};
  std::uint64_t flights_ = 0;  // breaks ties of arrival: the packet sent first arrives first
  std::map<std::pair<SimTime, std::uint64_t>, Flight> under_way_;
  std::map<std::pair<Endpoint, Endpoint>, SimTime> last_arrival_;
  std::map<Endpoint, internal::SimSocket*> sockets_;
};

class SimPort : public Port {
 public:
  ~SimPort() override;

  // Does what release() does, for a socket that has no descriptor. Packets that are still queued
  // because the socket is full are lost.
  SimHandle detach();
  // Makes the socket full until this is undone: flush() sends nothing, and reserve() takes packets
  // only behind queued ones.
  void set_full(bool full) { full_ = full; }

  Endpoint local() const override { return local_; }
  std::span<std::byte> reserve(const Endpoint& to, std::size_t length,
                               std::uint16_t* ip_identification) override;
  void unreserve() override;
  bool flush() override;
  std::size_t receive(std::span<Received> out) override;
  int descriptor() const override { return -1; }
  std::size_t window_bytes() const override { return window_; }
  int release() override { return -1; }

 private:
  friend class SimNetwork;
  struct Queued {
    Endpoint to;
    std::vector<std::byte> bytes;
    std::uint16_t ip_identification;
  };
  SimPort(SimNetwork* network, std::shared_ptr<internal::SimSocket> socket);

  static constexpr std::size_t kMaxQueued = 256;
  SimNetwork* network_;
  std::shared_ptr<internal::SimSocket> socket_;
  Endpoint local_;
  std::size_t window_;
  bool full_ = false;
  std::vector<Queued> queued_;
  std::vector<std::vector<std::byte>> handed_out_;  // valid until the next receive()
};

}  // namespace ferry::port
