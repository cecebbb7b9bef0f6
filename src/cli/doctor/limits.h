#pragma once

#include <cstdint>
#include <string>

#include "cli/doctor/finding.h"

// What limits the RNIC in a program of this user.
namespace ferry::cli::doctor {

struct LimitFacts {
  std::uint64_t files = 0;  // descriptors of a process: the soft limit and the hard one
  std::uint64_t most_files = 0;
  std::string socket_problem;  // a line; empty: a UDP socket as Ferry's could be made
  int receive_bytes = 0;       // that such a socket was given, of port::kReceiveBuffer
  int send_bytes = 0;          // of port::kSendBuffer
  bool has_gso = false, has_gro = false;
  unsigned last_ephemeral = 0;  // the last UDP port that the kernel gives to anybody; 0: unknown
};

LimitFacts limit_facts();
Findings check_limits(const LimitFacts& facts);

}  // namespace ferry::cli::doctor
