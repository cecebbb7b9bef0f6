#include "virtual/talks/quiet_qps.h"

namespace ferry::virt {

std::optional<QuietQps::Psns> QuietQps::psns_of(const Qp& qp) {
  ibv_qp_attr attributes{};
  if (qp.inner->query(&attributes) != 0) return std::nullopt;
  return Psns{attributes.sq_psn, attributes.rq_psn};
}

void QuietQps::look(const std::vector<Qp*>& qps) {
  noted_.clear();
  for (const Qp* qp : qps) {
    if (const auto psns = psns_of(*qp)) noted_.emplace(qp->qpn(), *psns);
  }
}

bool QuietQps::is_quiet(const Qp& qp) const {
  const auto noted = noted_.find(qp.qpn());
  return noted != noted_.end() && psns_of(qp) == noted->second;
}

}  // namespace ferry::virt
