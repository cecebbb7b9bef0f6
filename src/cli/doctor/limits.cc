#include "cli/doctor/limits.h"

#include <fmt/core.h>
#include <netinet/udp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <fstream>

#include "base/failure.h"
#include "base/unique_fd.h"
#include "port/slot.h"
#include "port/udp_socket.h"

namespace ferry::cli::doctor {
namespace {

constexpr std::uint64_t kFewFiles = 1024;  // a program with many contexts and sockets needs more

int option_of(int socket, int level, int option) {
  int value = 0;
  socklen_t size = sizeof value;
  return ::getsockopt(socket, level, option, &value, &size) == 0 ? value : 0;
}

Finding check_files(const LimitFacts& facts) {
  Finding finding{"open files (RLIMIT_NOFILE)", {}, {}, {}, {}};
  finding.found = fmt::format("{} of {} allowed", facts.files, facts.most_files);
  if (facts.files >= kFewFiles) return finding;
  finding.state = State::kNote;
  finding.found += ", and each device that a program opens takes a few";
  finding.way_out = fmt::format("ulimit -n {}", std::min(facts.most_files, 4 * kFewFiles));
  return finding;
}

Finding check_buffer(const char* what, const char* setting, int given, int wanted) {
  Finding finding{what, {}, {}, {}, {}};
  finding.found = fmt::format("{} of {} KiB", given >> 10, wanted >> 10);
  if (given >= wanted) return finding;
  finding.state = State::kNote;
  finding.found += ": a loaded connection is slower, and may lose packets";
  finding.way_out = fmt::format("sysctl -w {}={}", setting, wanted);
  return finding;
}

Finding check_segmentation(const LimitFacts& facts) {
  Finding finding{"UDP GSO and GRO", {}, "the kernel has both", {}, {}};
  if (facts.has_gso && facts.has_gro) return finding;
  finding.state = State::kNote;
  finding.found = fmt::format("the kernel has {}, so that packets go one by one, which is slower",
                              facts.has_gso   ? "no GRO"
                              : facts.has_gro ? "no GSO"
                                              : "neither");
  finding.way_out = "use Linux 5.0 or later";
  return finding;
}

Finding check_ports(const LimitFacts& facts) {
  constexpr unsigned kFirst = port::udp_port_of_slot(1);
  Finding finding{"ephemeral ports", {}, {}, {}, {}};
  finding.found = fmt::format("up to {}; Ferry's begin at {}", facts.last_ephemeral, kFirst);
  if (facts.last_ephemeral < kFirst) return finding;
  finding.state = State::kNote;
  finding.found += ", so that other sockets take some of them";
  finding.way_out = fmt::format("sysctl -w net.ipv4.ip_local_port_range=\"32768 {}\"", 60999);
  return finding;
}

}  // namespace

LimitFacts limit_facts() {
  LimitFacts facts;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    facts.files = files.rlim_cur;
    facts.most_files = files.rlim_max;
  }
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  int error = errno;
  if (!socket || !port::configure_udp_socket(socket.get(), true, &error)) {
    facts.socket_problem =
        fmt::format("a UDP socket cannot be made as RDMA needs it: {}", error_text(error));
  } else {
    facts.receive_bytes = option_of(socket.get(), SOL_SOCKET, SO_RCVBUF) / 2;
    facts.send_bytes = option_of(socket.get(), SOL_SOCKET, SO_SNDBUF) / 2;
    const int segment = 1024;
    facts.has_gso = ::setsockopt(socket.get(), SOL_UDP, UDP_SEGMENT, &segment, sizeof segment) == 0;
    facts.has_gro = option_of(socket.get(), SOL_UDP, UDP_GRO) != 0;
  }
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  unsigned first = 0;
  if (!(range >> first >> facts.last_ephemeral)) facts.last_ephemeral = 0;
  return facts;
}

Findings check_limits(const LimitFacts& facts) {
  Findings findings{check_files(facts),
                    {"locked memory (RLIMIT_MEMLOCK)",
                     State::kOk,
                     "is not needed: Ferry locks no memory",
                     {},
                     {}}};
  if (!facts.socket_problem.empty()) {
    findings.push_back(of_failure("UDP socket", facts.socket_problem,
                                  "see what keeps this user from it: a filter of system calls?"));
    return findings;
  }
  findings.push_back(check_buffer("receive buffer", "net.core.rmem_max", facts.receive_bytes,
                                  port::kReceiveBuffer));
  findings.push_back(
      check_buffer("send buffer", "net.core.wmem_max", facts.send_bytes, port::kSendBuffer));
  findings.push_back(check_segmentation(facts));
  if (facts.last_ephemeral != 0) findings.push_back(check_ports(facts));
  return findings;
}

}  // namespace ferry::cli::doctor
