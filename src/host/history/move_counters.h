#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "ferry.pb.h"

// What is counted of moves since this ferryd started, for its metrics.
namespace ferry::host {

class MoveCounters {
 public:
  // Upper ends of the classes of blackouts, in seconds; longer blackouts are in no class.
  static constexpr std::array kBlackouts{0.01, 0.025, 0.05, 0.1,  0.25, 0.5,
                                         1.0,  2.5,   5.0,  10.0, 30.0, 60.0};

  struct Counts {
    using Labels = std::pair<std::string, std::string>;
    std::map<std::string, std::uint64_t> begun;  // by direction
    std::map<Labels, std::uint64_t> ended;       // by direction and outcome
    std::map<Labels, std::uint64_t> failed;      // by direction and step
    std::array<std::uint64_t, kBlackouts.size()>
        blackouts{};  // of programs that have left: how many are in each class alone
    std::uint64_t blackout_count = 0;
    double blackout_seconds = 0;
    std::uint64_t sent_bytes = 0, received_bytes = 0;  // of images of moves that have ended
  };

  void begun(const v1::PastMove& move);
  void ended(const v1::PastMove& move);
  Counts counts() const;

 private:
  mutable std::mutex mutex_;
  Counts counts_;
};

}  // namespace ferry::host
