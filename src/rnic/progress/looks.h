#pragma once

#include <algorithm>

namespace ferry::rnic {

// Decides when the progress thread looks for the next packet for a moment before it sleeps: to be
// woken takes longer than most answers of a network. It looks after every packet as long as another
// one follows at once. Where none does, or somebody else wants the processor, it looks after every
// second packet, then every fourth, up to every kRarest-th.
class Looks {
 public:
  static constexpr unsigned kRarest = 256;

  // The thread itself has taken a packet. True: it should look now, and then call ended().
  bool due() {
    if (left_ > 0) --left_;
    return left_ == 0;
  }
  void ended(bool found) {
    interval_ = found ? 1 : std::min(interval_ * 2, kRarest);
    left_ = interval_;
  }

 private:
  unsigned interval_ = 1, left_ = 1;
};

}  // namespace ferry::rnic
