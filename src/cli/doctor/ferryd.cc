#include "cli/doctor/ferryd.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>

#include "base/build_id.h"
#include "base/companion.h"
#include "base/failure.h"
#include "base/net.h"
#include "cli/ferryd/local_ferryd.h"
#include "host/peers/api.h"
#include "host/peers/credentials.h"
#include "host/peers/peer.h"
#include "host/units/criu_runner.h"

namespace ferry::cli::doctor {
namespace {

using host::Days;
using v1::StateReply;

constexpr Days kSoon{30};
constexpr std::uint64_t kLittleRoom = 256ull << 20;  // bytes; images of small programs fit

Finding check_version(const StateReply& state, const FerrydFacts& facts) {
  Finding finding{"ferryd", {}, {}, {}, {}};
  finding.found = fmt::format("runs as {}, version {}", state.host(), state.version());
  if (state.version() != facts.version) {
    finding.state = State::kProblem;
    finding.found += fmt::format(", and this command is of {}", facts.version);
    finding.way_out = "install the same version of both, and start ferryd anew";
  } else if (!facts.build.empty() && state.build() != facts.build) {
    finding.state = State::kNote;
    finding.found += ", of another build than the ferryd beside this command";
    finding.way_out = "start ferryd anew, if it should be that one";
  }
  return finding;
}

Finding check_criu(const std::string& problem) {
  constexpr char kCheck[] = "CRIU";
  if (problem.empty()) return {kCheck, State::kOk, "works here", {}, {}};
  return of_failure(kCheck, problem, "run ferry-get-criu");
}

Finding check_certificate(const StateReply& state, const FerrydFacts& facts) {
  Finding finding{"certificate", {}, {}, {}, {}};
  if (!state.has_certificate()) {
    finding.state = State::kProblem;
    finding.found = state.address().empty()
                        ? "ferryd has none, so that no program moves to or from this host"
                        : "ferryd asks for none (--insecure): who reaches its port is root here";
    finding.way_out =
        "ferry ca init here, or ferry host add HOST on the CA's host; start ferryd anew";
    return finding;
  }
  const auto& certificate = state.certificate();
  const std::chrono::sys_seconds end{std::chrono::seconds(certificate.end())};
  const auto left = std::chrono::floor<Days>(end - facts.now);
  finding.found = fmt::format("of {}, for {}, until {:%F}", certificate.name(),
                              certificate.addresses().empty()
                                  ? std::string("any address")
                                  : fmt::format("{}", fmt::join(certificate.addresses(), ", ")),
                              fmt::gmtime(std::chrono::system_clock::to_time_t(end)));
  if (left >= kSoon) return finding;
  finding.state = end <= facts.now ? State::kProblem : State::kNote;
  finding.found +=
      end <= facts.now ? ": it has expired" : fmt::format(": it expires in {} days", left.count());
  finding.way_out =
      fmt::format("ferry host add {}, on the CA's host; start ferryd anew", certificate.name());
  return finding;
}

Finding check_ports(const StateReply& state) {
  Finding finding{"ports", {}, {}, {}, {}};
  if (state.address().empty()) {
    finding.state = State::kNote;
    finding.found = "ferryd listens to this host only";
    finding.way_out = "give it certificates; it listens then";
  } else {
    finding.found = fmt::format("ferryd listens on {}, and on TCP port {} for images",
                                state.address(), state.image_port());
  }
  return finding;
}

Finding check_journal(const StateReply::Folder& folder) {
  Finding finding{"journal", {}, folder.path() + " is on a disk", {}, {}};
  if (!folder.problem().empty()) {
    finding.state = State::kProblem;
    finding.found = fmt::format("{}: {}", folder.path(), folder.problem());
    finding.way_out = "make that folder, and start ferryd anew";
  } else if (folder.in_memory()) {
    finding.state = State::kNote;
    finding.found =
        fmt::format("{} is in memory: what was decided on moves is lost when the machine restarts",
                    folder.path());
    finding.way_out = "give ferryd a --state-dir on a disk";
  }
  return finding;
}

Finding check_images(const StateReply::Folder& folder) {
  Finding finding{"images", {}, {}, {}, {}};
  if (!folder.problem().empty()) {
    finding.state = State::kProblem;
    finding.found = fmt::format("{}: {}", folder.path(), folder.problem());
    finding.way_out = "start ferryd anew, which makes that folder";
    return finding;
  }
  finding.found =
      fmt::format("{} is {}, with {} MiB free", folder.path(),
                  folder.in_memory() ? "in memory" : "on a disk", folder.free_bytes() >> 20);
  if (!folder.in_memory()) {
    finding.state = State::kNote;
    finding.found += ": programs stand still longer";
    finding.way_out = "give ferryd an --image-dir on a tmpfs";
  } else if (folder.free_bytes() < kLittleRoom) {
    finding.state = State::kNote;
    finding.found += ": programs that are larger do not move";
    finding.way_out = "make room there, or give another --image-dir";
  }
  return finding;
}

Finding check_program(const StateReply::Program& program) {
  const std::string name = std::filesystem::path(program.name()).filename();
  if (!program.version().empty()) return {name, State::kOk, program.version(), {}, {}};
  const std::string what = name == "nft" ? "containers of runc's and podman's do not move"
                                         : fmt::format("containers of {}'s do not move", name);
  return {name,
          State::kNote,
          fmt::format("ferryd cannot run {}: {}", program.name(), what),
          fmt::format("if you want that: apt-get install {}", name == "nft" ? "nftables" : name),
          {}};
}

// The findings when no ferryd answers.
Findings check_alone(const FerrydFacts& facts) {
  Finding ferryd = of_failure("ferryd", facts.problem, "start it: ferryd, as root");
  ferryd.found += ", so that no program moves";
  Findings findings{std::move(ferryd)};
  if (facts.criu_problem.empty() && !facts.is_root) {
    findings.push_back({"CRIU",
                        State::kNote,
                        "is there; only root can see whether it works",
                        "sudo ferry doctor",
                        {}});
  } else {
    findings.push_back(check_criu(facts.criu_problem));
  }
  if (!facts.is_root) {
    findings.push_back(
        {"certificate", State::kNote, "only root can look at it", "sudo ferry doctor", {}});
  } else if (!facts.certificate_problem.empty()) {
    findings.push_back(of_failure("certificate", facts.certificate_problem));
  } else if (!facts.has_certificates) {
    findings.push_back({"certificate",
                        State::kProblem,
                        "there is none, so that no program moves to or from this host",
                        "ferry ca init here, or ferry host add HOST on the CA's host",
                        {}});
  } else {
    findings.push_back({"certificate", State::kOk, "is good", {}, {}});
  }
  return findings;
}

// What is wrong with CRIU, as far as this command can see without ferryd; empty: nothing.
std::string criu_problem(bool is_root) {
  try {
    host::CriuRunner criu({host::CriuRunner::find("criu"),
                           need_companion("criu-plugins"),
                           need_companion("ferry-criu-action"),
                           need_companion("ferry-criu-dump.so"),
                           {}});
    return is_root ? criu.unusable() : criu.missing();
  } catch (const Failure& failure) {
    return failure.what();
  }
}

// The build id of the ferryd that belongs to this command: in sbin of the command's prefix when installed, beside the
// command in a build. Empty: the command is installed without a ferryd.
std::string build_of_ferryd() {
  std::error_code error;
  const auto installed = prefix() / "sbin/ferryd";
  return build_id_of(std::filesystem::exists(installed, error) ? installed
                                                               : folder_of_program() / "ferryd");
}

}  // namespace

FerrydFacts ferryd_facts(const std::string& tls) {
  FerrydFacts facts;
  facts.version = host::kVersion;
  facts.build = build_of_ferryd();
  facts.now = std::chrono::system_clock::now();
  facts.is_root = ::geteuid() == 0;
  try {
    LocalFerryd ferryd;
    v1::StateReply reply;
    throw_unless_ok(ferryd->State(ferryd.context(), {}, &reply));
    facts.state = std::move(reply);
    return facts;
  } catch (const Failure& failure) {
    facts.problem = failure.what();
  }
  facts.criu_problem = criu_problem(facts.is_root);
  facts.has_certificates = host::Credentials::exist(tls);
  if (!facts.has_certificates || !facts.is_root) return facts;
  try {
    host::Credentials::load(tls);
  } catch (const Failure& failure) {
    facts.certificate_problem = failure.what();
  }
  return facts;
}

Findings check_ferryd(const FerrydFacts& facts) {
  if (!facts.state) return check_alone(facts);
  const StateReply& state = *facts.state;
  Findings findings{check_version(state, facts),     check_criu(state.criu_problem()),
                    check_certificate(state, facts), check_ports(state),
                    check_journal(state.journal()),  check_images(state.images())};
  for (const auto& program : state.programs()) findings.push_back(check_program(program));
  return findings;
}

}  // namespace ferry::cli::doctor
