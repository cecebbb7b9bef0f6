#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "cli/doctor/path.h"
#include "ferry.pb.h"

// What the ferryd of this host finds when it asks the ferryds of other hosts.
namespace ferry::cli::doctor {

struct HostFacts {
  std::vector<std::string> wanted;  // as the user named them; none: all that ferryd knows
  std::string problem;              // a line; empty: `reply` is what ferryd says
  v1::ReachReply reply;
  std::vector<std::vector<Path>> paths;  // of each host of the reply
  std::string version;                   // of this command
};

HostFacts host_facts(const std::vector<std::string>& wanted);
Findings check_hosts(const HostFacts& facts);

}  // namespace ferry::cli::doctor
