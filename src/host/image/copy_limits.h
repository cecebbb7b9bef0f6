#pragma once

namespace ferry::host {

// What the user wants of copying ahead. 0: nothing is wanted.
struct CopyLimits {
  double max_blackout_ms = 0;  // the program shall stand still for so long at most
  double rate = 0;             // bytes a second that are sent at most while it runs

  // Of `rate`. Each of many programs that share it has to send a frame before the other side gives it up.
  static constexpr double kLeastRate = 1e6, kMostRate = 1e12;
};

}  // namespace ferry::host
