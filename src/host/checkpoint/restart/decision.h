#pragma once

#include <cstdint>
#include <string>

#include "store/verdict.h"

namespace ferry::host {

struct ThisHost;

// How a restart of a checkpoint on several hosts is decided, also for a host that loses this one in the midst of it.
// Until it is decided, destruction gives it up.
class RestartDecision {
 public:
  // For whoever has the checkpoint's lock. A store that cannot be written takes no decision: then a host that loses
  // this one gives up by itself, and the log says so.
  RestartDecision(const ThisHost& host, const std::string& directory, const std::string& id,
                  std::uint64_t number);
  ~RestartDecision();
  RestartDecision(const RestartDecision&) = delete;

  // The programs go on. Throws Failure: they do not, on any host.
  void go_on();
  // All hosts have said that theirs do.
  void all_know();

 private:
  const ThisHost& host_;
  const std::string id_;
  const store::Verdict verdict_;
  bool is_open_ = false, goes_on_ = false;
};

}  // namespace ferry::host
