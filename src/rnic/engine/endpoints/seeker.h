#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "port/endpoint.h"
#include "transport/types.h"

namespace ferry::rnic {

// The names of RNICs that do not answer (transport::Host::seek), for whoever can find out where
// they are now. Used under the engine's lock, but for tell().
class Seeker {
 public:
  static constexpr transport::Time kInterval = std::chrono::milliseconds(100);

  // `tell` is called, without the lock, when there are names for take(); for each name once in
  // kInterval at most. Without `tell` no name is kept.
  void set_tell(std::function<void()> tell) { tell_ = std::move(tell); }
  void seek(const port::Endpoint& name, transport::Time now);
  void take(std::vector<port::Endpoint>* out);

  // Whether tell() is to be called; true only once.
  bool due() { return std::exchange(due_, false); }
  void tell() const { tell_(); }

 private:
  std::function<void()> tell_;
  std::map<port::Endpoint, transport::Time> asked_;  // when seek() last took the name
  std::vector<port::Endpoint> sought_;
  bool due_ = false;
};

}  // namespace ferry::rnic
