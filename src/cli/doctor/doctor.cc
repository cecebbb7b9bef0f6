#include "cli/doctor/doctor.h"

#include <cstdio>

#include "cli/doctor/devices.h"
#include "cli/doctor/ferryd.h"
#include "cli/doctor/hosts.h"
#include "cli/doctor/kernel.h"
#include "cli/doctor/limits.h"
#include "cli/doctor/report.h"

namespace ferry::cli::doctor {

int run(const std::vector<std::string>& hosts, const std::string& tls, bool json) {
  Report report{{"devices", check_devices(device_facts())},
                {"limits", check_limits(limit_facts())},
                {"kernel", check_kernel(kernel_facts())}};
  const FerrydFacts ferryd = ferryd_facts(tls);
  report.push_back({"ferryd", check_ferryd(ferryd)});
  // Without a ferryd nobody can ask other hosts: the report says so of the hosts that the user has named.
  if (ferryd.state || !hosts.empty()) report.push_back({"hosts", check_hosts(host_facts(hosts))});
  std::fputs((json ? json_of(report) : text_of(report)).c_str(), stdout);
  return has_problem(report) ? 1 : 0;
}

}  // namespace ferry::cli::doctor
