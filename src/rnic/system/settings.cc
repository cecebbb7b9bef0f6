#include "rnic/system/settings.h"

#include <cctype>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ferry::rnic {
namespace {

constexpr std::uint64_t kMostPausedMs = 24 * 60 * 60 * 1000;
constexpr std::uint64_t kMostHelloTries = 1000;
constexpr std::uint64_t kMostPriority = 20;

// The variable's value. Null: it is not set, or empty, or this is a set-user-ID program (in a
// container: elsewhere no library is preloaded into one).
const char* variable(const char* name) {
  const char* value = ::secure_getenv(name);
  return value != nullptr && *value != 0 ? value : nullptr;
}

void complain(const char* name, const char* value, const char* wanted) {
  std::fprintf(stderr, "ferry: ignoring %s=%s: wanted is %s\n", name, value, wanted);
}

void read_probability(const char* name, double* out) {
  const char* value = variable(name);
  if (value == nullptr) return;
  char* end = nullptr;
  const double parsed = std::strtod(value, &end);
  if (*end != 0 || !(parsed >= 0 && parsed <= 1)) {
    complain(name, value, "a probability, 0 to 1");
    return;
  }
  *out = parsed;
}

// False: the variable has no valid value, and *out is as it was.
bool read_number(const char* name, std::uint64_t least, std::uint64_t most, std::uint64_t* out) {
  const char* value = variable(name);
  if (value == nullptr) return false;
  char* end = nullptr;
  errno = 0;
  const std::uint64_t parsed = std::strtoull(value, &end, 10);
  if (std::isdigit(static_cast<unsigned char>(*value)) == 0 || *end != 0 || errno != 0 ||
      parsed < least || parsed > most) {
    char wanted[64];
    std::snprintf(wanted, sizeof wanted, "a number, %" PRIu64 " to %" PRIu64, least, most);
    complain(name, value, wanted);
    return false;
  }
  *out = parsed;
  return true;
}

// Reads one of two words: *out gets whether it is the first. False: the variable has no valid
// value, and *out is as it was.
bool read_choice(const char* name, const char* first, const char* second, bool* out) {
  const char* value = variable(name);
  if (value == nullptr) return false;
  const bool is_first = std::strcmp(value, first) == 0;
  if (!is_first && std::strcmp(value, second) != 0) {
    char wanted[64];
    std::snprintf(wanted, sizeof wanted, "%s or %s", first, second);
    complain(name, value, wanted);
    return false;
  }
  *out = is_first;
  return true;
}

}  // namespace

Settings settings_from_environment() {
  Settings settings;
  if (const char* list = variable("FERRY_NETDEV")) {
    for (const char* at = list; *at != 0;) {
      const char* end = std::strchr(at, ',');
      const std::size_t length =
          end != nullptr ? static_cast<std::size_t>(end - at) : std::strlen(at);
      if (length > 0) settings.netdevs.emplace_back(at, length);
      at += length + (end != nullptr ? 1 : 0);
    }
  }
  if (bool is_4 = false; read_choice("FERRY_FAMILY", "4", "6", &is_4)) {
    settings.use_ipv4 = is_4;
    settings.use_ipv6 = !is_4;
  }
  read_choice("FERRY_MIGRATION", "on", "off", &settings.migration.enabled);
  if (std::uint64_t limit = 0; read_number("FERRY_PAUSED_LIMIT_MS", 1, kMostPausedMs, &limit)) {
    settings.migration.paused_limit = std::chrono::milliseconds(limit);
  }
  if (std::uint64_t tries = 0; read_number("FERRY_HELLO_TRIES", 1, kMostHelloTries, &tries)) {
    settings.migration.hello_repeats = static_cast<unsigned>(tries);
  }
  if (std::uint64_t by = 0; read_number("FERRY_PROGRESS_PRIORITY", 0, kMostPriority, &by)) {
    settings.progress_priority = static_cast<unsigned>(by);
  }
  read_probability("FERRY_FAULT_LOSS", &settings.loss.sending);
  read_probability("FERRY_FAULT_RECEIVE_LOSS", &settings.loss.receiving);
  read_number("FERRY_FAULT_SEED", 0, UINT64_MAX, &settings.loss.seed);
  return settings;
}

}  // namespace ferry::rnic
