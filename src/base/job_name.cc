#include "base/job_name.h"

#include <algorithm>

namespace ferry {
namespace {

constexpr std::size_t kLongest = 128;

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("._-+:@").find(c) != std::string_view::npos;
}

// An id is unique for its batch system only. A batch system's job may have several of PMIx.
constexpr struct {
  const char *variable, *before;
} kSources[] = {{kJobVariable, ""},
                {"SLURM_JOB_ID", "slurm-"},
                {"PBS_JOBID", "pbs-"},
                {"LSB_JOBID", "lsf-"},
                {"PMIX_NAMESPACE", "pmix-"}};

}  // namespace

bool is_job_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongest &&
         std::all_of(name.begin(), name.end(), is_of_name);
}

std::string job_in(
    const std::function<std::optional<std::string_view>(std::string_view name)>& variable) {
  for (const auto& source : kSources) {
    const auto value = variable(source.variable);
    if (!value) continue;
    std::string name = source.before + std::string(*value);
    return is_job_name(name) && !value->empty() ? name : std::string();
  }
  return {};
}

}  // namespace ferry
