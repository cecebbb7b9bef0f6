#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "port/endpoint.h"

// A port carries RoCEv2 packets over a UDP socket (udp_port.h) or a simulated link (sim_link.h). It
// moves whole packets, from BTH to ICRC, and knows nothing of what is in them. One port belongs to
// one (process, address) pair: one QPN slot.
namespace ferry::port {

// The largest packet a port takes: BTH, the longest extension headers, 4096 bytes of payload,
// padding, ICRC.
inline constexpr std::size_t kMaxPacket = 4096 + 128;

// Bytes with which a packet counts in a window (Port::window_bytes): a short packet that travels
// alone takes far more of a receive buffer than its length.
constexpr std::size_t window_charge(std::size_t length) {
  return length + 400;
}

// One packet that came in. `bytes` is valid until the next call of receive().
struct Received {
  Endpoint from;
  std::span<std::byte> bytes;
  // The IPv4 identification that this packet most likely had on the wire (its index in a
  // super-packet): the ICRC covers it, but a socket does not show it.
  std::uint16_t ip_identification = 0;
};

class Port {
 public:
  virtual ~Port() = default;

  // Where peers reach this port.
  virtual Endpoint local() const = 0;

  // Returns room for one packet of exactly `length` bytes (1 .. kMaxPacket) to `to`, which the
  // caller fills before its next call of any function. Packets of equal length to the same endpoint
  // are gathered into super-packets; a flush may happen inside. `ip_identification` gets the value
  // that this packet will have on the wire. The span is empty when nothing can be queued now (the
  // socket is full): try again after flush() returned true.
  virtual std::span<std::byte> reserve(const Endpoint& to, std::size_t length,
                                       std::uint16_t* ip_identification) = 0;

  // Packets to multicast groups that are reserved from here on leave with this hop limit (1 .. 255;
  // the kernel's default is 1). False: the socket is full, try again as after reserve().
  virtual bool use_multicast_hops(std::uint8_t /*hops*/) { return true; }

  // Takes back the packet of the last reserve(), because its payload could not be read. That
  // reserve() must be the last call before this one.
  virtual void unreserve() = 0;

  // Sends all reserved packets. False: the socket is full and packets remain queued (call again
  // later). Packets that the kernel refuses for other reasons count as lost.
  virtual bool flush() = 0;

  // Takes up to out.size() packets that have arrived, in order, and returns their number. Never
  // blocks.
  virtual std::size_t receive(std::span<Received> out) = 0;

  // A descriptor that polls readable when packets wait, or -1 (simulation).
  virtual int descriptor() const = 0;

  // Bytes of packets that may be under way to one receiver before its buffer overflows (from the
  // socket's receive buffer; both ends are assumed alike). A packet counts with window_charge(its
  // length).
  virtual std::size_t window_bytes() const = 0;

  // Sends the queued packets as far as the socket takes them (the rest counts as lost) and gives
  // the descriptor to the caller; -1: it has none. Afterwards the port sends and receives nothing.
  // Before release(), call receive() until it gives less than it was asked for: packets that the
  // port has fetched already do not go back to the socket.
  virtual int release() = 0;
};

}  // namespace ferry::port
