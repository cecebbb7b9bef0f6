#pragma once

#include <cstdint>
#include <optional>

#include "cm/message.h"
#include "port/endpoint.h"

namespace ferry::gsi {

// Sends management packets from an address of this host, through a UDP socket of its own with any
// source port, which means nothing in RoCEv2. It receives nothing: answers go to UDP port 4791.
class WireSocket {
 public:
  // EADDRNOTAVAIL: the address is not of this host.
  static std::optional<WireSocket> open(const port::Address& from, int* error);
  WireSocket(WireSocket&& other) noexcept;
  WireSocket& operator=(WireSocket&& other) noexcept;
  ~WireSocket();

  // A packet that the kernel does not take counts as lost.
  void send(const cm::Mad& mad, const port::Address& to);
  // poll() gives POLLERR for it when ICMP errors have come.
  int descriptor() const { return descriptor_; }
  // The next ICMP error, or nothing. ECONNREFUSED: nobody holds UDP port 4791 there; EHOSTUNREACH
  // and ENETUNREACH: there is no such host.
  struct Failure {
    port::Address to;
    int error = 0;
  };
  std::optional<Failure> next_failure();

 private:
  WireSocket(int descriptor, const port::Endpoint& local, std::uint32_t scope)
      : descriptor_(descriptor), local_(local), scope_(scope) {}
  int descriptor_ = -1;
  port::Endpoint local_;
  std::uint32_t scope_ = 0;
  std::uint32_t psn_ = 0;
};

}  // namespace ferry::gsi
