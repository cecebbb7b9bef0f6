#include "virtual/talks/qp_stops.h"

#include <cerrno>
#include <new>
#include <utility>

#include "virtual/queues/shared_receive_queue.h"

namespace ferry::virt {
namespace {

constexpr std::chrono::milliseconds kCallsEnd{2};  // the wait for calls that are under way

}  // namespace

void QpStops::stop_queues(Qp& qp) {
  std::vector<Gate*> gates;
  for (device::Cq* cq : {qp.init().send_cq, qp.init().recv_cq}) {
    if (cq == nullptr) continue;
    static_cast<Cq*>(cq)->stop();
    gates.push_back(&static_cast<Cq*>(cq)->gate());
  }
  gates.push_back(&qp.send_gate());
  gates.push_back(&qp.receive_gate());
  Gate::shut(gates);
}

void QpStops::resume_queues(Qp& qp) {
  for (device::Cq* cq : {qp.init().send_cq, qp.init().recv_cq}) {
    if (cq != nullptr) static_cast<Cq*>(cq)->resume();
  }
}

void QpStops::hold(Qp& qp) {
  device_.learn_gids();
  stop_queues(qp);
  qp.hold();
  for (device::Cq* cq : {qp.init().send_cq, qp.init().recv_cq}) {
    if (cq != nullptr) static_cast<Cq*>(cq)->keep_use();
  }
  late_.erase(&qp);
}

std::vector<Cq*> QpStops::queues_of(const Qp& qp) {
  std::vector<Cq*> found;
  const auto add = [&](device::Cq* cq) {
    if (cq != nullptr) found.push_back(static_cast<Cq*>(cq));
  };
  if (qp.is_xrc_target()) {
    shadows_.for_each<Srq>([&](const Srq& srq) {
      if (srq.xrcd() == qp.init().xrcd) add(srq.cq());
    });
  } else {
    add(qp.init().send_cq);
    add(qp.init().recv_cq);
  }
  return found;
}

void QpStops::sweep(Qp& qp) {
  if (qp.is_xrc_target()) {
    for (Cq* cq : queues_of(qp)) cq->keep_all();  // they are not stopped: others use them, too
    return;
  }
  for (device::Cq* cq : {qp.init().send_cq, qp.init().recv_cq}) {
    if (cq == nullptr) continue;
    static_cast<Cq*>(cq)->sweep();
    if (Channel* channel = static_cast<Cq*>(cq)->channel()) channel->collect();
  }
}

bool QpStops::is_drained(Qp& qp) {
  sweep(qp);
  if (markers_.make_window(qp) != 0) return false;
  if (qp.inner->state() == IBV_QPS_RTS && !qp.sends_are_done()) return false;
  sweep(qp);
  qp.settle();
  resume_queues(qp);
  return true;
}

void QpStops::flush(Qp& qp) {
  stop_queues(qp);
  if (windows_.has_bound_to(qp.qpn()) && qp.inner->state() == IBV_QPS_RTS)
    binder_.release(*qp.inner, qp.qpn(), device_.numbers.get(), [&] { sweep(qp); });
  bool flushes = false;
  if (qp.flush(&flushes) != 0) qp.fail();
  qp.stay_away();
}

bool QpStops::is_replaced(Qp& qp, const Introduction& peer) {
  sweep(qp);
  if (qp.has_receive_queue() && !qp.receives_are_back()) return false;
  if (!calls_.stop(std::chrono::steady_clock::now() + kCallsEnd)) return false;
  const int error = replace(qp);
  calls_.go_on();
  resume_queues(qp);
  markers_.destroy_window(qp);
  if (error != 0) clear(qp);
  if (error == 0 || qp.reset() == 0) {
    connect(qp, peer);
  } else {
    qp.fail();
  }
  return true;
}

bool QpStops::is_left(Qp& qp, LateQps& late) {
  sweep(qp);
  if (qp.has_receive_queue() && !qp.receives_are_back()) return false;
  if (!calls_.stop(std::chrono::steady_clock::now() + kCallsEnd)) return false;
  const bool has_left = leave(qp, late);
  calls_.go_on();
  if (!has_left) return false;
  resume_queues(qp);
  markers_.destroy_window(qp);
  return true;
}

bool QpStops::leave(Qp& qp, LateQps& late) try {
  Numbers& numbers = rename_queues(qp);
  late.add(qp);
  device::Qp* const old = qp.inner;
  numbers.virtual_qpns.erase(old->qpn());
  qp.leave_device();
  device_.context->destroy(old);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

Numbers& QpStops::rename_queues(Qp& qp) {
  if (device_.numbers == nullptr) {
    device_.numbers = std::make_unique<Numbers>();
    for (Qp* each : shadows_.all<Qp>()) each->rename_attributes_by(*device_.numbers);
  }
  for (Cq* cq : queues_of(qp)) cq->rename_by(*device_.numbers);
  return *device_.numbers;
}

int QpStops::make(Qp& qp, device::Qp** out) {
  device::QpInit init = qp.remade();
  device::Qp* made = nullptr;
  if (const int error = device_.context->create_qp(&init, &made)) return error;
  if (taken_.have(*made)) {  // another QP would have to be made again and again
    device_.context->destroy(made);
    return EEXIST;
  }
  *out = made;
  return 0;
}

// Makes another QP, because a QP that is reset and connected anew may keep the route to the peer's former
// place (rdma_rxe).
int QpStops::replace(Qp& qp) try {
  Numbers& numbers = rename_queues(qp);
  const auto prepared = prepared_.find(&qp);
  const bool is_prepared = prepared != prepared_.end();
  device::Qp* made = is_prepared ? prepared->second : nullptr;
  if (!is_prepared) {
    if (const int error = make(qp, &made)) return error;
  }
  if (!numbers.enter_qp(qp.qpn(), made->qpn())) {
    if (!is_prepared) device_.context->destroy(made);
    return ENOMEM;
  }
  device::Qp* const old = qp.inner;
  numbers.virtual_qpns.erase(old->qpn());
  qp.leave_device();
  if (is_prepared) {
    auto node = prepared_.extract(prepared);
    node.mapped() = old;
    former_.insert(std::move(node));
  } else {
    device_.context->destroy(old);
  }
  qp.enter_device(*made);
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

void QpStops::prepare(Qp& qp) try {
  device::Qp*& prepared = prepared_[&qp];
  if (prepared == nullptr && make(qp, &prepared) != 0) prepared_.erase(&qp);
} catch (const std::bad_alloc&) {
  // is_replaced() makes the object.
}

void QpStops::end_former() {
  if (former_.empty()) return;
  device_.context->destroy(former_.begin()->second);
  former_.erase(former_.begin());
}

void QpStops::clear(Qp& qp) {
  if (const auto prepared = prepared_.extract(&qp)) device_.context->destroy(prepared.mapped());
  const auto [begin, end] = former_.equal_range(&qp);
  for (auto each = begin; each != end; ++each) device_.context->destroy(each->second);
  former_.erase(begin, end);
}

void QpStops::clear() {
  for (const auto& [qp, former] : std::exchange(former_, {})) device_.context->destroy(former);
  for (const auto& [qp, prepared] : std::exchange(prepared_, {}))
    device_.context->destroy(prepared);
}

void QpStops::connect(Qp& qp, const Introduction& peer) {
  Gate* const gates[] = {&qp.receive_gate()};
  Gate::shut(gates);
  {
    const auto sends = qp.send_gate().lock();
    const auto receives = qp.receive_gate().lock();
    qp.meet(peer);
  }
  if (qp.connect() != 0 || !bind_windows(qp) || qp.pass_receives() != 0) qp.fail();
}

bool QpStops::bind_windows(Qp& qp) {
  if (!windows_.has_bound_to(qp.qpn())) return true;
  if (!qp.goes_to_rts()) {
    windows_.end_qp(qp.qpn());
    return true;
  }
  stop_queues(qp);
  const bool are_bound =
      binder_.bind(*qp.inner, qp.qpn(), device_.numbers.get(), [&] { sweep(qp); });
  resume_queues(qp);
  return are_bound;
}

void QpStops::resume(Qp& qp) {
  if (!qp.resume()) late_.insert(&qp);
}

bool QpStops::resume_late() {
  std::erase_if(late_, [&](Qp* qp) {
    sweep(*qp);
    return qp->resume();
  });
  return !late_.empty();
}

}  // namespace ferry::virt
