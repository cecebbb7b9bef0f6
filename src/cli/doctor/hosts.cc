#include "cli/doctor/hosts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/failure.h"
#include "cli/ferryd/local_ferryd.h"
#include "host/peers/api.h"
#include "port/address_text.h"
#include "rnic/system/netdev.h"

namespace ferry::cli::doctor {
namespace {

constexpr double kClocksDifferMs = 1000;  // certificates and logs depend on the clocks

Finding check_reached(const v1::Reached& reached) {
  constexpr char kCheck[] = "reachable";
  if (reached.problem().empty()) {
    return {kCheck,
            State::kOk,
            fmt::format("as {} on TCP port {}, round trip {:.2f} ms", reached.name(),
                        reached.port(), reached.round_trip_ms()),
            {},
            {}};
  }
  return of_failure(kCheck, reached.problem(),
                    "see whether the host is up, and its firewall lets the port of ferryd pass");
}

Finding check_version(const v1::Reached& reached, const std::string& version) {
  Finding finding{"version", {}, reached.version(), {}, {}};
  if (reached.version() == version) return finding;
  finding.state = State::kProblem;
  finding.found += fmt::format(" there, {} here: no program moves between them", version);
  finding.way_out = "install the same version on both, and start ferryd anew";
  return finding;
}

Finding check_criu(const v1::Reached& reached) {
  if (reached.criu_problem().empty()) return {"CRIU", State::kOk, "works there", {}, {}};
  return of_failure("CRIU", reached.criu_problem(), "run ferry-get-criu there");
}

Finding check_clock(const v1::Reached& reached) {
  const double ahead = reached.clock_ahead_ms();
  const double doubt = reached.clock_uncertainty_ms();
  Finding finding{"clock", {}, {}, {}, {}};
  finding.found = std::abs(ahead) <= doubt
                      ? fmt::format("no difference that can be seen, within {:.2f} ms", doubt)
                      : fmt::format("{:.2f} ms {} this host's, give or take {:.2f} ms",
                                    std::abs(ahead), ahead > 0 ? "ahead of" : "behind", doubt);
  if (std::abs(ahead) - doubt <= kClocksDifferMs) return finding;
  finding.state = State::kNote;
  finding.found += "; certificates and logs depend on the clocks";
  finding.way_out = "let both follow the same clock: timedatectl set-ntp true";
  return finding;
}

Finding check_image_port(const v1::Reached& reached) {
  constexpr char kCheck[] = "port for images";
  if (reached.image_problem().empty()) {
    return {
        kCheck, State::kOk, fmt::format("TCP port {} is reached", reached.image_port()), {}, {}};
  }
  return of_failure(kCheck, reached.image_problem(),
                    fmt::format("let its firewall pass TCP port {}", reached.image_port()));
}

Finding check_path(const Path& path) {
  Finding finding{"RDMA to " + port::to_string(path.to), {}, {}, {}, {}};
  finding.found = fmt::format("RDMA MTU {} passes", path.passes);
  if (path.passes == path.wanted) return finding;
  finding.state = State::kProblem;
  finding.found = path.passes == 0
                      ? fmt::format("no packets of any RDMA MTU pass, also not of {} bytes",
                                    rnic::kLeastMtu + rnic::kMostHeaders)
                      : fmt::format("RDMA MTU {} passes, {} does not, which both ends have",
                                    path.passes, path.wanted);
  finding.way_out = fmt::format(
      "let switches and interfaces between pass {} bytes, or here: ip link set {} mtu {}",
      path.wanted + rnic::kMostHeaders, path.netdev,
      std::max(path.passes, rnic::kLeastMtu) + rnic::kMostHeaders);
  return finding;
}

}  // namespace

HostFacts host_facts(const std::vector<std::string>& wanted) {
  HostFacts facts;
  facts.wanted = wanted;
  facts.version = host::kVersion;
  try {
    for (const auto& host : wanted) {
      if (printable(host) != host) throw Failure("that is no name of a host; give its address");
    }
    LocalFerryd ferryd;
    v1::ReachRequest request;
    request.mutable_hosts()->Assign(wanted.begin(), wanted.end());
    throw_unless_ok(ferryd->Reach(ferryd.context(), request, &facts.reply));
  } catch (const Failure& failure) {
    facts.problem = failure.what();
  }
  facts.paths.resize(static_cast<std::size_t>(facts.reply.hosts_size()));
  std::vector<std::jthread> threads;
  for (int i = 0; i < facts.reply.hosts_size(); ++i) {
    threads.emplace_back([&paths = facts.paths[static_cast<std::size_t>(i)],
                          &reached = facts.reply.hosts(i)] { paths = paths_to(reached.rdma()); });
  }
  threads.clear();  // waits until each has ended
  return facts;
}

Findings check_hosts(const HostFacts& facts) {
  Findings findings;
  if (!facts.problem.empty()) {
    for (const auto& host : facts.wanted) {
      Finding& finding = findings.emplace_back(of_failure("reachable", facts.problem));
      finding.found = "cannot be asked: " + finding.found;
      finding.host = printable(host);
    }
    if (findings.empty()) findings.push_back(of_failure("other hosts", facts.problem));
    return findings;
  }
  for (int i = 0; i < facts.reply.hosts_size(); ++i) {
    const auto& reached = facts.reply.hosts(i);
    Findings about{check_reached(reached)};
    if (reached.problem().empty()) {
      for (auto& finding : {check_version(reached, facts.version), check_criu(reached),
                            check_clock(reached), check_image_port(reached)}) {
        about.push_back(finding);
      }
      for (const auto& path : facts.paths[static_cast<std::size_t>(i)]) {
        about.push_back(check_path(path));
      }
    }
    for (Finding& finding : about) {
      finding.host = reached.host();
      findings.push_back(std::move(finding));
    }
  }
  if (findings.empty()) {
    findings.push_back(
        {"other hosts", State::kNote, "ferryd knows none", "name some: ferry doctor HOST...", {}});
  }
  return findings;
}

}  // namespace ferry::cli::doctor
