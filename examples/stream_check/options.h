// The command line of stream_check.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "message.h"

namespace stream_check {

struct Options {
  std::string host;  // empty: this is the server
  uint16_t port = 18600;
  std::string device;     // empty: the first one
  int gid_index = -1;     // -1: the first RoCEv2 GID, IPv4 preferred
  uint32_t mtu = 0;       // bytes; 0: what both ports can
  uint32_t timeout = 14;  // local ACK timeout: 4.096 us * 2^timeout
  bool events = false;    // sleep on the completion channel instead of polling
  bool json = false;
  bool progress = false;
  std::string series;
  uint64_t memory = 0;  // MiB that are held and checked beside the messages
  double rewrite = 0;   // percent of them, each second
  bool storm = false;
  bool apart = false;  // no TCP connection during the run; the same on both sides

  // The client decides about these, the server follows.
  uint32_t qps = 4;
  uint32_t idle = 0;  // QPs beside these, which carry nothing until the end
  uint32_t max_length = 16384;
  double seconds = 10;    // 0: until a signal; not used when messages is set
  uint64_t messages = 0;  // per QP, op and direction; 0: no limit
  uint32_t rate = 0;      // messages per second, per QP and direction; 0: no limit
  std::array<bool, kOps> ops = {true, true, true, false};
};

inline constexpr uint32_t kMaxQps = 1024;
inline constexpr uint32_t kMaxMaxLength = 1 << 20;
inline constexpr uint32_t kMaxRate = 1'000'000;

// Throws Failure on wrong usage. `help` is set when only the usage text was asked for.
Options parse_options(int argc, char** argv, bool* help);
const char* usage();

}  // namespace stream_check
