#include "migrate/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <mutex>

#include "base/failure.h"
#include "migrate/allowance.h"
#include "migrate/process_tree.h"

namespace ferry::migrate::log {
namespace {

constexpr unsigned kAtOnce = 20;  // lines that a user's processes may cause
constexpr std::chrono::seconds kEach{1};

spdlog::level::level_enum level_of(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarn: return spdlog::level::warn;
    default: return spdlog::level::err;
  }
}

}  // namespace

void write(Level level, fmt::string_view format, fmt::format_args values) {
  spdlog::logger& logger = *spdlog::default_logger_raw();
  if (!logger.should_log(level_of(level))) return;
  logger.log(level_of(level), spdlog::string_view_t(fmt::vformat(format, values)));
}

bool may_cause_line(pid_t pid) {
  static std::mutex mutex;
  static Allowance allowance(kAtOnce, kEach);
  const uid_t user = user_of(pid).value_or(0);
  unsigned left_out = 0;
  {
    std::lock_guard lock(mutex);
    if (!allowance.take(user, std::chrono::steady_clock::now(), &left_out)) return false;
  }
  if (left_out > 0) warn("{} lines about processes of user {} were left out", left_out, user);
  return true;
}

void begin() {
  spdlog::set_default_logger(spdlog::stderr_color_mt("ferryd"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %l: %v");
  spdlog::flush_on(spdlog::level::info);
}

void end() {
  spdlog::shutdown();
}

}  // namespace ferry::migrate::log

namespace ferry::migrate {

void report_failure(const std::function<void()>& call) {
  try {
    call();
  } catch (const Failure& failure) {
    log::error("{}", failure.what());
  }
}

}  // namespace ferry::migrate
