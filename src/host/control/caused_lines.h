#pragma once

#include <sys/types.h>

#include "base/log.h"

// Lines of the log that processes cause by what they send.
namespace ferry::host {

// Whether one more line that this process has caused may be written. Each user may cause some lines
// at once and then one a second, so that nobody fills the disk. How many lines were left out is
// written before the user's next one.
bool may_cause_line(pid_t pid);

template <typename... Values>
void warn_of(pid_t pid, fmt::format_string<Values...> format, Values&&... values) {
  if (may_cause_line(pid)) {
    log::write(log::Level::kWarn, format, fmt::make_format_args(values...));
  }
}

}  // namespace ferry::host
