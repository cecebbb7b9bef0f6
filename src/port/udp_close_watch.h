#pragma once

#include <cstdint>

namespace ferry::port {

// Tells when UDP sockets of the network namespace are closed, by whichever process (sock_diag(7),
// the multicast groups SKNLGRP_INET_UDP_DESTROY and SKNLGRP_INET6_UDP_DESTROY; no privilege is
// needed).
class UdpCloseWatch {
 public:
  UdpCloseWatch() = default;
  ~UdpCloseWatch() { close(); }
  UdpCloseWatch(const UdpCloseWatch&) = delete;
  UdpCloseWatch& operator=(const UdpCloseWatch&) = delete;

  // From now on. Without a descriptor (none was left, or the kernel has no inet_diag) closings go
  // unnoticed.
  void open();
  void close();
  // Readable when there is something to take; -1: not open.
  int descriptor() const { return socket_; }
  // Takes what was told. True: a socket with this UDP port may have been closed.
  bool closed(std::uint16_t udp_port);

 private:
  int socket_ = -1;
};

}  // namespace ferry::port
