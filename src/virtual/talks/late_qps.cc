#include "virtual/talks/late_qps.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "virtual/stop/several_threads.h"

namespace ferry::virt {
namespace {

constexpr std::chrono::milliseconds kRest{100};

}  // namespace

int LateQps::make(Qp& qp) {
  return make(std::vector<Qp*>{&qp});
}

// The numbers are entered in order, by one thread. A QP that is not entered is destroyed.
int LateQps::make(const std::vector<Qp*>& qps) {
  std::vector<device::Qp*> made(qps.size());
  const auto create = [&](std::size_t index) {
    device::QpInit init = qps[index]->remade();
    return device_.context->create_qp(&init, &made[index]);
  };
  int error = by_several_threads(device_.context->useful_threads(), qps.size(), create);
  for (std::size_t i = 0; i < qps.size(); ++i) {
    if (made[i] == nullptr) continue;
    if (error == 0 && !device_.numbers->enter_qp(qps[i]->qpn(), made[i]->qpn())) error = ENOMEM;
    if (error != 0) {
      device_.context->destroy(made[i]);
      continue;
    }
    qps[i]->enter_device(*made[i]);
    forget(*qps[i]);
  }
  return error;
}

// Notes that the QP's number is taken: the device may give it to another QP meanwhile, which the
// application must not get.
void LateQps::add(Qp& qp) {
  device_.numbers->qpns.set(qp.qpn(), qp.qpn());
  waiting_.push_back(&qp);
}

void LateQps::forget(Qp& qp) {
  std::erase(waiting_, &qp);
  refused_.erase(&qp);
}

void LateQps::clear() {
  waiting_.clear();
  refused_.clear();
}

Qp* LateQps::next() {
  if (waiting_.empty() || std::chrono::steady_clock::now() < resting_until_) return nullptr;
  const auto used = std::find_if(waiting_.begin(), waiting_.end(),
                                 [&](Qp* qp) { return !refused_.contains(qp) && qp->is_in_use(); });
  return used != waiting_.end() ? *used : waiting_.front();
}

void LateQps::refused(Qp& qp) {
  std::erase(waiting_, &qp);
  waiting_.push_back(&qp);
  refused_.insert(&qp);
  resting_until_ = std::chrono::steady_clock::now() + kRest;
}

}  // namespace ferry::virt
