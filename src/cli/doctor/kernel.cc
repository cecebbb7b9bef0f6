#include "cli/doctor/kernel.h"

#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/userfaultfd.h"
#include "base/failure.h"

namespace ferry::cli::doctor {
namespace {

Finding check_machine(const KernelFacts& facts) {
  Finding finding{"kernel", {}, fmt::format("Linux {} {}", facts.release, facts.machine), {}, {}};
  if (facts.machine == "x86_64") return finding;
  finding.state = State::kProblem;
  finding.found += ", and Ferry runs on x86_64 only";
  finding.way_out = "use a machine of that kind";
  return finding;
}

Finding check_tracking(const KernelFacts& facts) {
  Finding finding{"memory copied ahead", {}, "writes can be tracked (userfaultfd)", {}, {}};
  if (facts.tracking_error == 0) return finding;
  finding.state = State::kNote;
  finding.found = fmt::format(
      "writes cannot be tracked by this user ({}): memory is sent while programs stand still",
      error_text(-facts.tracking_error));
  const bool is_old = facts.tracking_error == -EINVAL || facts.tracking_error == -ENOSYS;
  finding.way_out = is_old ? "use Linux 6.7 or later"
                           : "see what forbids userfaultfd(2): a filter of system calls?";
  return finding;
}

Finding check_cgroups(const KernelFacts& facts) {
  const auto has = [&](const char* type) {
    return std::ranges::any_of(facts.mounts, [&](const auto& mount) { return mount.type == type; });
  };
  Finding finding{"cgroups", {}, {}, {}, {}};
  const bool first = has("cgroup"), second = has("cgroup2");
  finding.found = first && second ? "versions 1 and 2" : second ? "version 2" : "version 1";
  if (first || second) return finding;
  finding.state = State::kNote;
  finding.found = "none is mounted: containers neither run nor move here";
  finding.way_out = "mount -t cgroup2 none /sys/fs/cgroup";
  return finding;
}

}  // namespace

KernelFacts kernel_facts() {
  KernelFacts facts;
  utsname names{};
  if (::uname(&names) == 0) {
    facts.release = names.release;
    facts.machine = names.machine;
  }
  const int tracking = agent::make_userfaultfd(-1);
  if (tracking < 0) facts.tracking_error = tracking;
  if (tracking >= 0) ::close(tracking);
  facts.mounts = host::all_mounts();
  return facts;
}

Findings check_kernel(const KernelFacts& facts) {
  return {check_machine(facts), check_tracking(facts), check_cgroups(facts)};
}

}  // namespace ferry::cli::doctor
