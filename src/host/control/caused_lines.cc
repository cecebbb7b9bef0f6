#include "host/control/caused_lines.h"

#include <chrono>
#include <mutex>

#include "host/control/allowance.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

constexpr unsigned kAtOnce = 20;  // lines that a user's processes may cause
constexpr std::chrono::seconds kEach{1};

}  // namespace

bool may_cause_line(pid_t pid) {
  static std::mutex mutex;
  static Allowance allowance(kAtOnce, kEach);
  const uid_t user = user_of(pid).value_or(0);
  unsigned left_out = 0;
  {
    std::lock_guard lock(mutex);
    if (!allowance.take(user, std::chrono::steady_clock::now(), &left_out)) return false;
  }
  if (left_out > 0) log::warn("{} lines about processes of user {} were left out", left_out, user);
  return true;
}

}  // namespace ferry::host
