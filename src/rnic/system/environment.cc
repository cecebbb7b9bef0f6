#include "rnic/system/environment.h"

#include <sys/random.h>
#include <time.h>

#include <cerrno>
#include <cstdlib>

namespace ferry::rnic {
namespace {

class SystemEnvironment final : public Environment {
 public:
  transport::Time now() override { return read(CLOCK_MONOTONIC); }
  transport::Time wall_clock() override { return read(CLOCK_REALTIME); }
  std::uint64_t random() override {
    std::uint64_t value = 0;
    while (getrandom(&value, sizeof value, 0) != sizeof value) {
      if (errno != EINTR)
        std::abort();  // keys and cookies that can be guessed are worse than no RNIC
    }
    return value;
  }

 private:
  static transport::Time read(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
};

}  // namespace

Environment& system_environment() {
  static SystemEnvironment environment;
  return environment;
}

}  // namespace ferry::rnic
