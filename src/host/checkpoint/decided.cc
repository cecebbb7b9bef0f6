#include "host/checkpoint/decided.h"

#include <chrono>
#include <thread>

#include "base/failure.h"
#include "base/log.h"

namespace ferry::host {

std::optional<bool> decided_in_store(const ThisHost& host, const std::string& what, LeaderIs leader,
                                     const std::function<bool()>& decided) {
  constexpr std::chrono::milliseconds kAgain{100};
  for (std::string told;; std::this_thread::sleep_for(kAgain)) {
    try {
      return decided();
    } catch (const Failure& failure) {
      if (host.stopping || leader == LeaderIs::kHere) return std::nullopt;
      if (told == failure.what()) continue;
      told = failure.what();
      log::warn(
          "{} waits, because the host that it works for is lost, and the store does not tell what "
          "is decided: {}",
          what, told);
    }
  }
}

}  // namespace ferry::host
