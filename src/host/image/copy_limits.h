#pragma once

namespace ferry::host {

// What the user wants of copying ahead. 0: nothing is wanted.
struct CopyLimits {
  double max_blackout_ms = 0;  // the program shall stand still for so long at most
  double rate = 0;             // bytes a second that are sent at most while it runs

  // Of `rate`: the other side would take a slower sender for one that is gone.
  static constexpr double kLeastRate = 1e5;
};

}  // namespace ferry::host
