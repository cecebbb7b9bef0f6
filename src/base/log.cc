#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "base/failure.h"

namespace ferry::log {
namespace {

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

void begin() {
  spdlog::set_default_logger(spdlog::stderr_color_mt("ferryd"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %l: %v");
  spdlog::flush_on(spdlog::level::info);
}

void end() {
  spdlog::shutdown();
}

}  // namespace ferry::log

namespace ferry {

void report_failure(const std::function<void()>& call) {
  try {
    call();
  } catch (const Failure& failure) {
    log::error("{}", failure.what());
  }
}

}  // namespace ferry
