#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>

namespace ferry::host {

// Lets each user do something so many times at once, and then once in a while.
class Allowance {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Allowance(unsigned at_once, std::chrono::milliseconds each) : at_once_(at_once), each_(each) {}

  // False: not now. When true, *left_out is how often the user was refused since the last true.
  bool take(uid_t user, Time now, unsigned* left_out) {
    // A user who may have all at once again is forgotten.
    std::erase_if(used_, [&](const auto& entry) {
      return entry.second.left_out == 0 && entry.second.until <= now;
    });
    auto& [until, refused] = used_[user];
    if (until < now) until = now;
    if (until - now > each_ * (at_once_ - 1)) {
      ++refused;
      return false;
    }
    until += each_;
    *left_out = refused;
    refused = 0;
    return true;
  }

 private:
  struct Used {
    Time until{};  // when all of the allowance is there again
    unsigned left_out = 0;
  };
  const unsigned at_once_;
  const std::chrono::milliseconds each_;
  std::map<uid_t, Used> used_;
};

}  // namespace ferry::host
