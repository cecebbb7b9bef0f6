#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

// The job that a program belongs to, by the environment that it was started with.
namespace ferry {

// What `ferry run --job` sets.
inline constexpr char kJobVariable[] = "FERRY_JOB";

// 1 to 128 letters, digits and characters of "._-+:@".
bool is_job_name(std::string_view name);

// `variable`: gives the value of an environment variable; nothing: it is not set. The first of FERRY_JOB, the ids of
// batch systems (docs/checkpoint.md) and PMIx's namespace that is set names the job: empty when that one is no name, or
// none is set.
std::string job_in(
    const std::function<std::optional<std::string_view>(std::string_view name)>& variable);

}  // namespace ferry
