#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "port/endpoint.h"
#include "transport/types.h"

namespace ferry::rnic {

// The names of peers that do not answer (transport::Host::seek), for whoever finds out where these
// live by now. Under the engine's lock.
class Seeker {
 public:
  static constexpr transport::Time kInterval = std::chrono::milliseconds(100);

  // `tell` is called, without the lock, when there is a name that take() has not given yet; each
  // name at most every kInterval. Without it no name is kept.
  void set_tell(std::function<void()> tell) { tell_ = std::move(tell); }
  void seek(const port::Endpoint& name, transport::Time now);
  void take(std::vector<port::Endpoint>* out);

  // Whether tell() is to be called, once.
  bool due() { return std::exchange(due_, false); }
  void tell() const { tell_(); }

 private:
  std::function<void()> tell_;
  std::map<port::Endpoint, transport::Time> asked_;  // when seek() was told last
  std::vector<port::Endpoint> sought_;
  bool due_ = false;
};

}  // namespace ferry::rnic
