#pragma once

#include <infiniband/verbs.h>

#include <cstring>

// The QP state diagram with the attributes that each transition demands and allows (IBTA vol. 1
// clause 10.3.1 and 11.2.5.2, annex A14; ibv_modify_qp(3)).
namespace ferry::rnic {

// The value of an enum that a program filled in: it may be none of the enumerators.
template <typename Enum>
int raw(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

struct Transition {
  bool legal = false;
  int required = 0;  // ibv_qp_attr_mask, besides IBV_QP_STATE
  int optional = 0;
};

Transition transition_of(ibv_qp_type type, int from, int to);

// The ranges that check_modify() checks attributes against, besides the table of transitions.
struct AttributeLimits {
  int max_rd_atomic = 16;
  ibv_mtu max_mtu = IBV_MTU_4096;
  int port_count = 1;
  int pkey_count = 1;
  int gid_count = 1;
};

// The mask without the attributes that this half of an XRC connection lacks: the initiator serves
// no requests, the target makes none. Linux' uverbs ignores them too, and perftest names all of
// them for both halves.
int applicable_mask(ibv_qp_type type, int mask);

// 0, or EINVAL when modify(attributes, mask) of a QP in state `current` is illegal: the transition
// does not exist, a required attribute is missing, the transition does not allow an attribute, or a
// value is out of its range. *next gets the state that the transition leads to.
int check_modify(ibv_qp_type type, ibv_qp_state current, const ibv_qp_attr& attributes, int mask,
                 const AttributeLimits& limits, ibv_qp_state* next);

}  // namespace ferry::rnic
