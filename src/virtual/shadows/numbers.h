#pragma once

#include "virtual/shadows/number_table.h"

namespace ferry::virt {

// Tables from the numbers of a context's objects that the application knows to those of the device
// behind, and for QPNs also back (virtual_qpns). An object that the application made since the last move
// needs no entry: its numbers are the device's. A context that has not moved has entries only of QPs
// that were made anew because a peer moved.
struct Numbers {
  NumberTable lkeys{8};
  NumberTable rkeys{8};
  NumberTable qpns{0};
  NumberTable virtual_qpns{0};
};

}  // namespace ferry::virt
