#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "port/endpoint.h"

// Tells a network that addresses have a new place, in messages that switches and hosts believe
// without having asked.
namespace ferry::host {

using MacAddress = std::array<std::byte, 6>;

// An Ethernet frame to all: for IPv4 an ARP announcement (RFC 5227, section 2.3), for IPv6 an
// unsolicited neighbour advertisement (RFC 4861, section 7.2.6).
std::vector<std::byte> announcement(const MacAddress& mac, const port::Address& address);

// Announces every address of a network namespace, but for loopback's, kTimes times over some
// seconds: a single frame may be lost, and a bridge may not forward yet. Failures are logged.
class Announcer {
 public:
  static constexpr int kTimes = 5;

  explicit Announcer(std::string netns);  // path
  ~Announcer();                           // announces no more
  Announcer(const Announcer&) = delete;
  Announcer& operator=(const Announcer&) = delete;

 private:
  void run();

  const std::string netns_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace ferry::host
