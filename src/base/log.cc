#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

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

// "%*" in a pattern: "<6>", the level as syslog(3) numbers it.
class Priority : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& line) override {
    const std::string text = fmt::format("<{}>", priority_of(message.level));
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<Priority>();
  }

 private:
  static int priority_of(spdlog::level::level_enum level) {
    switch (level) {
      case spdlog::level::debug: return LOG_DEBUG;
      case spdlog::level::info: return LOG_INFO;
      case spdlog::level::warn: return LOG_WARNING;
      default: return LOG_ERR;
    }
  }
};

// True when stderr is the connection to the journal that systemd has made. It may have been
// redirected since.
bool is_journal(int descriptor) {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat status {};
  return stream != nullptr && ::fstat(descriptor, &status) == 0 &&
         fmt::format("{}:{}", status.st_dev, status.st_ino) == stream;
}

}  // namespace

void write(Level level, fmt::string_view format, fmt::format_args values) {
  spdlog::logger& logger = *spdlog::default_logger_raw();
  if (!logger.should_log(level_of(level))) return;
  std::string line = fmt::vformat(format, values);
  // One line is one entry, whatever is quoted in it.
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < ' ' && c != '\t'; }, ' ');
  logger.log(level_of(level), spdlog::string_view_t(line));
}

void begin() {
  spdlog::set_default_logger(spdlog::stderr_color_mt("ferryd"));
  if (is_journal(STDERR_FILENO)) {
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<Priority>('*').set_pattern("%*%v");
    spdlog::set_formatter(std::move(formatter));
  } else {
    spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %l: %v");
  }
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
