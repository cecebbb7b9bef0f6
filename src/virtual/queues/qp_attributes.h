#pragma once

#include <infiniband/verbs.h>

namespace ferry::virt {

// What ibv_modify_qp set of a QP, so that another QP can be brought to the same state.
class QpAttributes {
 public:
  // The device has taken these.
  void merge(const ibv_qp_attr& attributes, int mask);

  // Puts what is set into *out.
  void give(ibv_qp_attr* out) const;

  const ibv_qp_attr& values() const { return values_; }
  bool has(int mask) const { return (mask_ & mask) == mask; }
  // Of values(), those that bring a QP of this type from the state before into `state` (INIT, RTR
  // or RTS).
  int mask_to(ibv_qp_type type, ibv_qp_state state) const;
  // Whether `mask` has what an RC or UC QP needs for its way from INIT into RTR (IBTA vol. 1, 11.2.4.2).
  static bool suffice_for_rtr(ibv_qp_type type, int mask);

 private:
  ibv_qp_attr values_{};
  int mask_ = 0;
};

}  // namespace ferry::virt
