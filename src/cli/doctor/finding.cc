#include "cli/doctor/finding.h"

namespace ferry::cli::doctor {

Finding of_failure(const std::string& check, const std::string& line, const std::string& way_out) {
  const std::size_t end = line.rfind("; ");
  if (end == std::string::npos) return {check, State::kProblem, line, way_out, {}};
  return {check, State::kProblem, line.substr(0, end), line.substr(end + 2), {}};
}

}  // namespace ferry::cli::doctor
