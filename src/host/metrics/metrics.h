#pragma once

#include <chrono>
#include <mutex>
#include <string>

// What this ferryd counts, and what is on its host now, for Prometheus (docs/observe.md has all metrics). The metrics
// name no program and no user.
namespace ferry::host {

class ControlServer;
class History;
class MoveCounters;
class StandInHost;

class Metrics {
 public:
  // `release`: the version of this ferryd.
  Metrics(std::string release, const History& history, const MoveCounters& moves,
          StandInHost& stand_ins, ControlServer& control);

  // The metrics in Prometheus' text format. They are gathered once a second at most, because programs have to be asked.
  std::string text();

 private:
  std::string gather();

  const std::string release_;
  const History& history_;
  const MoveCounters& moves_;
  StandInHost& stand_ins_;
  ControlServer& control_;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point gathered_;
  std::string text_;
};

}  // namespace ferry::host
