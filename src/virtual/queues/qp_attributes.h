#pragma once

#include <infiniband/verbs.h>

namespace ferry::virt {

// The attributes that ibv_modify_qp has set on a QP, so that another QP can be brought to the same state.
class QpAttributes {
 public:
  // Notes attributes that the application has set.
  void merge(const ibv_qp_attr& attributes, int mask);

  // Puts the attributes that are set into *out, and leaves the others there as they are.
  void give(ibv_qp_attr* out) const;

  const ibv_qp_attr& values() const { return values_; }
  bool has(int mask) const { return (mask_ & mask) == mask; }
  // Gives the mask of those of values() that bring a QP of this type from the state before `state` into
  // `state` (INIT, RTR or RTS).
  int mask_to(ibv_qp_type type, ibv_qp_state state) const;
  // Whether `mask` has what a connected QP needs for its way from INIT into RTR (IBTA vol. 1, 11.2.4.2).
  static bool suffice_for_rtr(ibv_qp_type type, int mask);

 private:
  ibv_qp_attr values_{};
  int mask_ = 0;
};

}  // namespace ferry::virt
