#pragma once

#include <cstdint>
#include <new>

#include "virtual/shadows/number_table.h"

namespace ferry::virt {

// Tables from the numbers of a context's objects that the application knows to those of the device
// behind, and for QPNs and the rkeys of memory windows also back (virtual_qpns, virtual_rkeys). An object
// that the application made since the last move needs no entry: its numbers are the device's. But each QP has
// one, by which another QP of the context finds out that its peer is one, too. A context that has not moved has
// entries only of QPs that were made, or made anew, since a peer moved.
struct Numbers {
  NumberTable lkeys{8};
  NumberTable rkeys{8};
  NumberTable virtual_rkeys{8};
  NumberTable qpns{0};
  NumberTable virtual_qpns{0};
  NumberTable srqns{0};  // of the XRC SRQs that the last move has made anew

  // Enters a QP's number in both directions. False: there is no memory, and nothing has changed.
  bool enter_qp(std::uint32_t known, std::uint32_t real) try {
    virtual_qpns.set(real, known);
    qpns.set(known, real);
    return true;
  } catch (const std::bad_alloc&) {
    virtual_qpns.erase(real);
    return false;
  }
};

}  // namespace ferry::virt
