#pragma once

#include "virtual/shadows/number_table.h"

namespace ferry::virt {

// The numbers of a context's objects: from what the application knows to what the device behind
// knows, and for QPNs back. Of objects that were made since the last move there are none: both know
// the same. A context that has not moved has those of QPs that were made anew because a peer moved.
struct Numbers {
  NumberTable lkeys{8};
  NumberTable rkeys{8};
  NumberTable qpns{0};
  NumberTable virtual_qpns{0};
};

}  // namespace ferry::virt
