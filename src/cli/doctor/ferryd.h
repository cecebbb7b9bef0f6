#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "cli/doctor/finding.h"
#include "ferry.pb.h"

// What the ferryd of this host says; without one, what this user can see of what a ferryd would need.
namespace ferry::cli::doctor {

struct FerrydFacts {
  std::string problem;                  // a line; empty: `state` is what ferryd says
  std::optional<v1::StateReply> state;  // none: no ferryd has answered
  std::string version;                  // of this command
  std::string build;  // build id of the ferryd beside this command; empty: unknown
  std::chrono::system_clock::time_point now;
  bool is_root = false;
  // Without a ferryd:
  std::string criu_problem;  // a line; empty: none is seen
  bool has_certificates = false;
  std::string certificate_problem;  // a line; empty: none is seen
};

// `tls`: the folder of certificates that is looked at without a ferryd.
FerrydFacts ferryd_facts(const std::string& tls);
Findings check_ferryd(const FerrydFacts& facts);

}  // namespace ferry::cli::doctor
