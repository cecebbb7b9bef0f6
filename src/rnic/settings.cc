#include "rnic/settings.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ferry::rnic {
namespace {

void complain(const char* name, const char* value, const char* wanted) {
  std::fprintf(stderr, "ferry: ignoring %s=%s: %s\n", name, value, wanted);
}

void read_probability(const char* name, double* out) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == 0) return;
  char* end = nullptr;
  const double parsed = std::strtod(value, &end);
  if (*end != 0 || !(parsed >= 0 && parsed <= 1)) {
    complain(name, value, "wanted is a probability, 0 to 1");
    return;
  }
  *out = parsed;
}

bool read_number(const char* name, unsigned long* out) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == 0) return false;
  char* end = nullptr;
  errno = 0;
  const unsigned long parsed = std::strtoul(value, &end, 10);
  if (*end != 0 || errno != 0 || *value == '-') {
    complain(name, value, "wanted is a number");
    return false;
  }
  *out = parsed;
  return true;
}

}  // namespace

Settings settings_from_environment() {
  Settings settings;
  if (const char* list = std::getenv("FERRY_NETDEV")) {
    for (const char* at = list; *at != 0;) {
      const char* end = std::strchr(at, ',');
      const std::size_t length =
          end != nullptr ? static_cast<std::size_t>(end - at) : std::strlen(at);
      if (length > 0) settings.netdevs.emplace_back(at, length);
      at += length + (end != nullptr ? 1 : 0);
    }
  }
  if (const char* family = std::getenv("FERRY_FAMILY"); family != nullptr && *family != 0) {
    if (std::strcmp(family, "4") == 0) {
      settings.use_ipv6 = false;
    } else if (std::strcmp(family, "6") == 0) {
      settings.use_ipv4 = false;
    } else {
      complain("FERRY_FAMILY", family, "wanted is 4 or 6");
    }
  }
  if (const char* migration = std::getenv("FERRY_MIGRATION");
      migration != nullptr && *migration != 0) {
    if (std::strcmp(migration, "off") == 0 || std::strcmp(migration, "0") == 0) {
      settings.migration.enabled = false;
    } else if (std::strcmp(migration, "on") != 0 && std::strcmp(migration, "1") != 0) {
      complain("FERRY_MIGRATION", migration, "wanted is on or off");
    }
  }
  if (unsigned long limit = 0;
      read_number("FERRY_PAUSED_LIMIT_MS", &limit) && limit > 0 && limit < 1ul << 40) {
    settings.migration.paused_limit = std::chrono::milliseconds(limit);
  }
  read_probability("FERRY_FAULT_LOSS", &settings.fault_loss);
  read_number("FERRY_FAULT_SEED", &settings.fault_seed);
  return settings;
}

}  // namespace ferry::rnic
