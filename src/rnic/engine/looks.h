#pragma once

#include <algorithm>

namespace ferry::rnic {

// When the progress thread looks for the next packet for a moment before it sleeps: to be woken
// takes longer than most answers of a network. After every packet as long as another one follows at
// once; where none does, or somebody else wants the processor, after every second, then every
// fourth, up to every kRarest.
class Looks {
 public:
  static constexpr unsigned kRarest = 256;

  // A packet came, and nobody took it but the thread.
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
