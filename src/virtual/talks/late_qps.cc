#include "virtual/talks/late_qps.h"

#include <algorithm>
#include <cerrno>
#include <new>

namespace ferry::virt {
namespace {

constexpr std::chrono::milliseconds kRest{100};

}  // namespace

int LateQps::make(Qp& qp) {
  device::Qp* made = nullptr;
  device::QpInit init = qp.remade();
  if (const int error = device_.context->create_qp(&init, &made)) return error;
  if (!device_.numbers->enter_qp(qp.qpn(), made->qpn())) {
    device_.context->destroy(made);
    return ENOMEM;
  }
  qp.enter_device(*made);
  forget(qp);
  return 0;
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
