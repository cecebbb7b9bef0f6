#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/unique_fd.h"

namespace ferry::host {

// As long as a NetworkRules lives, nft(8) rules are in the network namespace of a process, unless that namespace is
// ferryd's own. A failure is only logged.
class NetworkRules {
 public:
  enum class Effect : std::uint8_t {
    // Packets to Ferry's UDP ports pass CRIU's network lock. For runtimes that let CRIU lock the
    // network: without it the peers wait in silence.
    kPassLock,
    // Nothing goes out of the namespace, or comes in, while a copy of a program is held there that its runtime has
    // connected already: the program may still go on elsewhere, with the same addresses and TCP connections.
    kSilence,
  };

  NetworkRules(pid_t pid, Effect effect);
  ~NetworkRules();
  NetworkRules(const NetworkRules&) = delete;
  NetworkRules& operator=(const NetworkRules&) = delete;

  // The same as the destructor, for the rules of a former ferryd.
  static void end(pid_t pid, Effect effect);

 private:
  const UniqueFd netns_;
  const Effect effect_;
};

}  // namespace ferry::host
