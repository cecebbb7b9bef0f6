#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace ferry::host {

// The environment that a process was started with: the first MiB of it. The process may have changed it since, and
// says of itself whatever it likes.
class Environment {
 public:
  // Empty when the process is gone, or is another user's and ferryd is not root.
  explicit Environment(pid_t pid);

  // Nothing: it is not set.
  std::optional<std::string_view> get(std::string_view name) const;

 private:
  std::string text_;  // NAME=VALUE, each with a zero behind it
};

// The job that the process says it belongs to (base/job_name.h); empty: none. Nobody else vouches for it: it may name
// any job.
std::string job_of(pid_t pid);

}  // namespace ferry::host
