#pragma once

#include <infiniband/verbs.h>

namespace ferry::virt {

// What ibv_modify_qp set of a QP, so that another QP can be brought to the same state.
class QpAttributes {
 public:
  // The device has taken these.
  void merge(const ibv_qp_attr& attributes, int mask);

  const ibv_qp_attr& values() const { return values_; }
  bool has(int mask) const { return (mask_ & mask) == mask; }
  // Of values(), those that bring a QP of this type from the state before into `state` (INIT, RTR
  // or RTS).
  int mask_to(ibv_qp_type type, ibv_qp_state state) const;

 private:
  ibv_qp_attr values_{};
  int mask_ = 0;
};

}  // namespace ferry::virt
