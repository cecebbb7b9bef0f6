#pragma once

#include <sys/types.h>

namespace ferry::host {

// Nothing goes out of a network namespace, or comes in, while a copy of a program is held there that
// its runtime has connected already: the program may still go on elsewhere, with the same addresses
// and TCP connections. Without nft(8) that is only logged.
class SilentNetwork {
 public:
  // Silences the network of `pid`, unless it is ferryd's own.
  explicit SilentNetwork(pid_t pid);
  ~SilentNetwork();
  SilentNetwork(const SilentNetwork&) = delete;
  SilentNetwork& operator=(const SilentNetwork&) = delete;

  // The same as the destructor, for what a former ferryd has silenced.
  static void end(pid_t pid);

 private:
  int netns_ = -1;
};

}  // namespace ferry::host
