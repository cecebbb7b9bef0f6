#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"

namespace ferry::cli::doctor {

struct Group {
  std::string name;
  Findings findings;
};
using Report = std::vector<Group>;

bool has_problem(const Report& report);
// As users read it, a line for each finding; or as JSON (docs/doctor.md).
std::string text_of(const Report& report);
std::string json_of(const Report& report);

}  // namespace ferry::cli::doctor
