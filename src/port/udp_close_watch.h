#pragma once

#include <cstdint>

namespace ferry::port {

// Tells when any process closes a UDP socket of the network namespace (sock_diag(7), the multicast
// groups SKNLGRP_INET_UDP_DESTROY and SKNLGRP_INET6_UDP_DESTROY; no privilege is needed).
class UdpCloseWatch {
 public:
  UdpCloseWatch() = default;
  ~UdpCloseWatch() { close(); }
  UdpCloseWatch(const UdpCloseWatch&) = delete;
  UdpCloseWatch& operator=(const UdpCloseWatch&) = delete;

  // Watches from now on. If this gets no descriptor (none is left, or the kernel has no inet_diag),
  // closings go unnoticed.
  void open();
  void close();
  // Polls readable when closed() has something to read; -1: not open.
  int descriptor() const { return socket_; }
  // Reads all waiting notices. True: a socket with this UDP port may have been closed.
  bool closed(std::uint16_t udp_port);

 private:
  int socket_ = -1;
};

}  // namespace ferry::port
