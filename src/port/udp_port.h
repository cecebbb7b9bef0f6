#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "port/endpoint.h"
#include "port/port.h"

namespace ferry::port {

// Carries RoCEv2 packets over one UDP socket (docs/wire.md "QPN slots" and "ICRC over a UDP
// socket"). Runs of packets of equal length to one endpoint (the last may be shorter) leave as
// super-packets (UDP_SEGMENT) and arrive as such (UDP_GRO). Not thread-safe: the owner's lock
// covers it. Nothing here throws.
class UdpPort : public Port {
 public:
  struct Counters {
    std::uint64_t packets_sent = 0;
    std::uint64_t bytes_sent = 0;
    std::uint64_t super_packets_sent = 0;
    // Refused by the kernel (larger than the MTU, no route, a firewall), or unsent at release().
    std::uint64_t packets_lost = 0;
    std::uint64_t packets_received = 0;
    std::uint64_t bytes_received = 0;
    std::uint64_t super_packets_received = 0;
    std::uint64_t datagrams_skipped = 0;  // empty, or longer than kMaxPacket
  };

  // Binds the UDP port of `slot` (≤ kMaxSlot) on `address`, which must be an address of this
  // network namespace, not ANY. On failure it returns null, with an errno value in *error:
  // EADDRINUSE for a slot that is taken, EADDRNOTAVAIL for an address that is not ours, EINVAL for
  // ANY or a slot out of range.
  static std::unique_ptr<UdpPort> bind(const Address& address, std::uint32_t slot, int* error);

  // Returns a port that receives packets to the multicast group `group`, UDP port 4791, on the
  // interface that has the address `local`. Every process of a host that joins gets a copy of its
  // own. The port is not for sending. Errors as of bind(): EINVAL when `group` is not a multicast
  // address of the family of `local`, ENODEV when no interface has `local`.
  static std::unique_ptr<UdpPort> join(const Address& group, const Address& local, int* error);

  // Makes a port of a socket that bind() made, here or in another process. Takes the descriptor
  // over; on failure (null, an errno value in *error) it stays the caller's. EINVAL: it is not a
  // UDP socket bound to the port of a slot.
  static std::unique_ptr<UdpPort> adopt(int descriptor, int* error);

  ~UdpPort() override;
  UdpPort(const UdpPort&) = delete;
  UdpPort& operator=(const UdpPort&) = delete;

  std::uint32_t slot() const { return slot_; }
  const Counters& counters() const { return counters_; }

  Endpoint local() const override { return local_; }
  std::span<std::byte> reserve(const Endpoint& to, std::size_t length,
                               std::uint16_t* ip_identification) override;
  bool use_multicast_hops(std::uint8_t hops) override;
  void unreserve() override;
  bool flush() override;
  std::size_t receive(std::span<Received> out) override;
  int descriptor() const override { return descriptor_; }
  std::size_t window_bytes() const override { return window_; }
  int release() override;

 private:
  // Packets of `segment` bytes to `to`, one after the other in the outgoing buffer. A shorter
  // packet ends the run.
  struct Run {
    Endpoint to;
    std::uint32_t offset;
    std::uint32_t bytes;
    std::uint32_t segment;
    std::uint32_t count;
    std::uint32_t sent;  // packets that have left, or are lost
  };
  struct Batch;

  UdpPort(int descriptor, const Endpoint& local, std::uint32_t slot, std::uint32_t scope,
          std::unique_ptr<std::byte[]> buffers);
  static std::unique_ptr<UdpPort> make(int descriptor, const Endpoint& local, std::uint32_t slot,
                                       std::uint32_t scope, int* error);

  bool takes(const Run& run, const Endpoint& to, std::size_t length) const;
  void build(Batch* batch) const;
  void sent(std::size_t packets);
  void lost(std::size_t packets);
  // Handles the error that the kernel gave to the first message of a batch, which has `packets`
  // packets. False: the socket is full.
  bool refused(int error, std::size_t packets);
  int send_one();
  bool fill();

  int descriptor_;
  Endpoint local_;
  std::uint32_t slot_;
  std::uint32_t scope_;
  std::size_t window_;
  std::uint8_t multicast_hops_ = 0;  // 0: never set
  // Segments that the kernel takes in a super-packet: 128 since 6.9, 64 before; 1 where it refuses
  // super-packets. refused() finds it.
  std::uint32_t max_segments_ = 128;

  std::unique_ptr<std::byte[]> buffers_;  // outgoing, then incoming

  static constexpr std::size_t kMaxRuns = 64;
  std::array<Run, kMaxRuns> runs_;
  std::size_t first_run_ = 0;  // the first that is not sent completely
  std::size_t run_count_ = 0;
  std::size_t queued_bytes_ = 0;  // in the outgoing buffer

  static constexpr std::size_t kIncoming = 8;  // datagrams or super-packets taken by one call
  static constexpr std::size_t kFewIncoming = 2;
  struct Incoming {
    Endpoint from;
    std::uint32_t bytes;
    std::uint32_t segment;
  };
  std::array<Incoming, kIncoming> incoming_;
  std::size_t asked_for_ = kIncoming;  // datagrams that the last recvmmsg() asked for
  std::size_t arrived_ = 0;
  std::size_t current_ = 0;          // index into incoming_
  std::uint32_t current_at_ = 0;     // bytes of the current one that were handed out
  std::uint16_t current_index_ = 0;  // packets of the current one that were handed out

  Counters counters_;
};

// Binds the first slot that nobody holds on `address`. EADDRINUSE when all are held; other errors
// as of bind().
std::unique_ptr<UdpPort> bind_first_free_slot(const Address& address, int* error);

}  // namespace ferry::port
