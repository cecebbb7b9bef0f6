#include <algorithm>
#include <cerrno>
#include <set>
#include <thread>
#include <utility>

#include "device/parcel.h"
#include "virtual/context.h"
#include "virtual/messages/needs.h"
#include "virtual/stop/several_threads.h"

// How a context leaves the device behind, and how its objects are made anew.
//
//   quiesce   the program's calls wait, its requests are held; the device does those that it has
//   park      receives that were not consumed come back; the device is closed
//   unpark    a device is opened, the objects are made in order of dependency; receives are posted again
//   resume    requests that were held are posted; the program's calls go on
//
// A QP whose peer belongs to another context gets both later, when the peer has answered (talks/).
namespace ferry::virt {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How long park() waits for the receives of QPs in the error state, and of each SRQ. The device has
// nothing to wait for.
constexpr milliseconds kFlushLimit{5000};
// How long settle() sweeps: a device may give the completion of a receive later than it has acknowledged the message,
// or than a QP is in the error state.
constexpr milliseconds kSettling{1};
constexpr std::chrono::microseconds kBetweenSweeps{20};
// What MRs of any device take; Needs has atomics and memory windows by themselves.
constexpr unsigned kPlainAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_MW_BIND;

}  // namespace

// --- Leaving

const char* Context::obstacle_of(Qp& qp) {
  const ibv_qp_type type = qp.init().type;
  if (type != IBV_QPT_RC && type != IBV_QPT_UC && type != IBV_QPT_UD && type != IBV_QPT_XRC_SEND &&
      type != IBV_QPT_XRC_RECV)
    return "a QP that is not RC, UC, UD or XRC";
  const ibv_qp_state state = qp.attributes().qp_state;
  if (state == IBV_QPS_SQD || state == IBV_QPS_SQE) return "a QP in the state SQD or SQE";
  return nullptr;
}

const char* Context::obstacle() {
  const char* found = nullptr;
  shadows_.for_each<Xrcd>([&](const Xrcd& xrcd) {
    if (xrcd.is_shared) found = "an XRC domain of a file, which other processes may have, too";
  });
  shadows_.for_each<Qp>([&](Qp& qp) {
    if (const char* obstacle = obstacle_of(qp)) found = obstacle;
  });
  return found;
}

// Is called also while the device is away; its GIDs have been learned then.
std::string Context::needs() {
  Needs needs;
  shadows_.for_each<Pd>([&](const Pd&) { ++needs.pds; });
  shadows_.for_each<Mr>([&](const Mr& mr) {
    ++needs.mrs;
    if (mr.is_null) {
      needs.null_mrs = true;
    } else if ((mr.init.access & ~kPlainAccess) != 0) {
      needs.accesses.insert(mr.init.access);
    }
  });
  shadows_.for_each<Mw>([&](const Mw& window) { ++needs.mws[window.type]; });
  shadows_.for_each<Cq>([&](const Cq& cq) {
    ++needs.cqs[static_cast<std::uint32_t>(cq.wanted_capacity())];
    if (const std::uint32_t features = cq.features()) needs.cq_features.insert(features);
  });
  shadows_.for_each<Xrcd>([&](const Xrcd&) { ++needs.xrcds; });
  shadows_.for_each<Srq>([&](const Srq& srq) { ++needs.srqs[srq.needs()]; });
  shadows_.for_each<Qp>([&](const Qp& qp) {
    ++needs.qps[{qp.init().type, qp.init().srq != nullptr, qp.init().cap}];
    const ibv_qp_attr set = qp.attributes();
    needs.atomics |= (set.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) != 0;
    if (set.qp_state != IBV_QPS_RTR && set.qp_state != IBV_QPS_RTS) return;
    needs.mtu = std::max(needs.mtu, set.path_mtu);
    // Neither end of XRC has the attributes of the other one, whatever the application sets.
    if (!qp.is_xrc_target()) needs.reads = std::max<std::uint32_t>(needs.reads, set.max_rd_atomic);
    if (qp.init().type != IBV_QPT_XRC_SEND)
      needs.served_reads = std::max<std::uint32_t>(needs.served_reads, set.max_dest_rd_atomic);
    ibv_gid_entry source{};
    const ibv_ah_attr& path = set.ah_attr;
    if (path.is_global != 0 && query_source(path, &source) == 0) needs.need_gid(source);
  });
  need_paths(&needs);
  return encode(needs);
}

int Context::can_stop() {
  if (obstacle() != nullptr) return EOPNOTSUPP;
  for (const Qp* qp : shadows_.all<Qp>()) {
    if (!qp->has_object()) continue;
    const ibv_qp_state state = qp->inner->state();
    if (state == IBV_QPS_SQD || state == IBV_QPS_SQE) return EOPNOTSUPP;
  }
  const auto talks = talks_.hold();
  return talks_.can_stop() ? 0 : EBUSY;
}

void Context::prepare() {
  const Calls::Call call(calls_);
  device_.learn_gids();
  const auto talks = talks_.hold();
  markers_.make_windows();  // if that fails, quiesce() tries again and gives the error
}

void Context::shut_gates() {
  std::vector<Gate*> gates;
  for (Cq* cq : shadows_.all<Cq>()) gates.push_back(&cq->gate());
  for (Qp* qp : shadows_.all<Qp>()) {
    gates.push_back(&qp->send_gate());
    gates.push_back(&qp->receive_gate());
  }
  for (Srq* srq : shadows_.all<Srq>()) gates.push_back(&srq->gate());
  Gate::shut(gates);
}

bool Context::sweep() {
  bool some = false;
  for (Cq* cq : shadows_.all<Cq>()) some |= cq->sweep();
  for (Channel* channel : shadows_.all<Channel>()) channel->collect();
  return some;
}

template <typename IsDone>
int Context::await(std::vector<Qp*> qps, Deadline deadline, IsDone is_done) {
  for (;;) {
    std::erase_if(qps, [&](Qp* qp) { return is_done(*qp); });
    if (qps.empty()) return 0;
    if (sweep()) continue;
    if (steady_clock::now() >= deadline) return ETIMEDOUT;
    std::this_thread::sleep_for(kBetweenSweeps);
  }
}

void Context::settle() {
  const Deadline settled = steady_clock::now() + kSettling;
  while (sweep() || steady_clock::now() < settled) std::this_thread::yield();
}

int Context::drain(Deadline deadline) {
  is_drained_ = true;
  for (Channel* channel : shadows_.all<Channel>()) channel->stop();
  for (Cq* cq : shadows_.all<Cq>()) cq->stop();
  shut_gates();
  std::vector<Qp*> sending;
  for (Qp* qp : shadows_.all<Qp>()) {
    if (!qp->has_object()) continue;  // a late QP: its requests are held since the last move
    qp->hold();
    if (qp->inner->state() == IBV_QPS_RTS) sending.push_back(qp);
  }
  for (Cq* cq : shadows_.all<Cq>()) cq->keep_use();
  const int error = await(sending, deadline, [](Qp& qp) { return qp.sends_are_done(); });
  if (error == 0) settle();
  for (Qp* qp : shadows_.all<Qp>()) {
    if (qp->has_object()) qp->settle();
  }
  return error;
}

// Makes threads that wait for events of the device leave it: the device is about to be closed.
int Context::drive_out(Deadline deadline) {
  for (Channel* channel : shadows_.all<Channel>()) {
    if (const int error = channel->drive_out(*device_.context, deadline)) return error;
  }
  return 0;
}

int Context::quiesce(std::chrono::nanoseconds limit, std::uint32_t* unacked_psns) {
  *unacked_psns = 0;  // a queue that is empty has sent nothing that is not acknowledged
  const Deadline deadline = steady_clock::now() + limit;
  if (!calls_.stop(deadline)) return ETIMEDOUT;
  int error = 0;
  try {
    device_.learn_gids();
    error = can_stop();
    if (error == 0) error = markers_.make_windows();
    if (error == 0) error = markers_.make_paths();
    for (Srq* srq : shadows_.all<Srq>()) {
      if (error == 0) error = srq->prepare_to_empty(*device_.context, device_.numbers.get());
    }
    if (error == 0) error = drain(deadline);
    if (error == 0) error = drive_out(deadline);
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error != 0) {
    resume(/*rollback=*/true);
    return error;
  }
  const auto talks = talks_.hold();
  talks_.stopped();
  return 0;
}

// Windows go first: one that is bound may hold its QP (rdma_rxe), and holds its MR.
void Context::leave_device() {
  const auto leave = [&](auto*& object) {
    if (object != nullptr) device_.context->destroy(std::exchange(object, nullptr));
  };
  for (Mw* mw : shadows_.all<Mw>()) leave(mw->inner);
  for (Qp* qp : shadows_.all<Qp>()) {
    if (device::Qp* object = qp->inner) {
      qp->leave_device();
      device_.context->destroy(object);
    }
    markers_.destroy_window(*qp);
    markers_.destroy_path(*qp);
  }
  for (Srq* srq : shadows_.all<Srq>()) {
    device::Srq* object = srq->inner;
    srq->leave_device();
    if (object != nullptr) device_.context->destroy(object);
  }
  for (Xrcd* xrcd : shadows_.all<Xrcd>()) leave(xrcd->inner);
  for (Cq* cq : shadows_.all<Cq>()) {
    device::Cq* object = cq->inner;
    cq->leave_device();
    if (object != nullptr) device_.context->destroy(object);
  }
  for (Srq* srq : shadows_.all<Srq>()) srq->forget_taken();
  for (Ah* ah : shadows_.all<Ah>()) {
    for (device::Ah* way : datagrams_.take_ways(*ah)) device_.context->destroy(way);
    leave(ah->inner);
  }
  for (Mr* mr : shadows_.all<Mr>()) leave(mr->inner);
  for (Pd* pd : shadows_.all<Pd>()) {
    markers_.destroy_region(*pd);
    leave(pd->inner);
  }
  for (Channel* channel : shadows_.all<Channel>()) {
    if (device::Channel* object = channel->leave_device()) device_.context->destroy(object);
  }
  events_.leave();
  device_.context.reset();
}

int Context::park(device::Parcel* out) {
  events_.drain(AsynchronousEvents::Use::kKeep);
  std::vector<Qp*> flushing;
  bool takes_shared = false;
  int error = 0;
  // After a failure as well the other receives come back: a rollback posts them again. Those of an SRQ whose device
  // has failed are lost.
  const auto note = [&](int failed) {
    if (error == 0) error = failed;
    return failed == 0;
  };
  for (Qp* qp : shadows_.all<Qp>()) {
    if (!qp->has_object()) continue;
    bool flushes = false;
    if (note(qp->flush(&flushes)) && flushes) flushing.push_back(qp);
    takes_shared |= (qp->is_ud() && !qp->has_receive_queue()) || qp->is_xrc_target();
  }
  note(await(flushing, steady_clock::now() + kFlushLimit,
             [](Qp& qp) { return qp.receives_are_back(); }));
  if (takes_shared) settle();
  for (Srq* srq : shadows_.all<Srq>()) note(srq->empty(steady_clock::now() + kFlushLimit));
  events_.drain(AsynchronousEvents::Use::kDrop);  // the events of the flush
  leave_device();
  *out = place();
  // The QPs are flushed: the program can only go on with new ones.
  if (error != 0) unpark(*out);
  return error;
}

// --- Entering

int Context::make_mr_anew(Mr& mr) {
  device::Mr* made = nullptr;
  device::MrInit init = mr.init;
  init.pd = behind(init.pd);
  const int error = mr.is_null ? device_.context->alloc_null_mr(init.pd, &made)
                               : device_.context->reg_mr(init, &made);
  if (error == 0) mr.attach(*made);
  return error;
}

int Context::make_memory_anew() {
  for (Pd* pd : shadows_.all<Pd>()) {
    device::Pd* made = nullptr;
    if (const int error = device_.context->alloc_pd(&made)) return error;
    pd->attach(*made);
  }
  // Most of the time of a move that the device needs, where there is much memory: the kernel pins it.
  const std::vector<Mr*> mrs = shadows_.all<Mr>();
  const auto make = [&](std::size_t index) { return make_mr_anew(*mrs[index]); };
  if (const int error = by_several_threads(device_.context->useful_threads(), mrs.size(), make))
    return error;
  return make_windows_anew();
}

int Context::make_windows_anew() {
  for (Mw* mw : shadows_.all<Mw>()) {
    device::Mw* made = nullptr;
    if (const int error = device_.context->alloc_mw(behind(mw->pd), mw->type, &made)) return error;
    mw->attach(*made);
  }
  std::set<std::uint32_t> going_to_rts;
  for (const Qp* qp : shadows_.all<Qp>()) {
    if (qp->goes_to_rts()) going_to_rts.insert(qp->qpn());
  }
  windows_.made_anew([&](std::uint32_t qpn) { return going_to_rts.contains(qpn); });
  return binder_.bind_all_of_type_1(*device_.context);
}

int Context::make_queues_anew() {
  if (const int error = events_.enter(*device_.context)) return error;
  for (Channel* channel : shadows_.all<Channel>()) {
    device::Channel* made = nullptr;
    const int error = device_.context->create_channel(&made);
    if (error == EOPNOTSUPP) continue;  // the device tells the context of its events
    if (error != 0) return error;
    if (const int refused = channel->enter_device(*made)) return refused;
  }
  for (Cq* cq : shadows_.all<Cq>()) {
    device::Cq* made = nullptr;
    device::CqInit init = cq->remade();
    init.vector %= device_.context->completion_vectors();  // another device may have fewer
    if (const int error = device_.context->create_cq(init, &made)) return error;
    if (const int error = cq->enter_device(*made)) return error;
    cq->rename_by(*device_.numbers);
  }
  for (Xrcd* xrcd : shadows_.all<Xrcd>()) {
    device::Xrcd* made = nullptr;
    if (const int error = device_.context->open_xrcd({}, &made)) return error;
    xrcd->attach(*made);
  }
  for (Srq* srq : shadows_.all<Srq>()) {
    device::Srq* made = nullptr;
    device::SrqInit init = srq->remade();
    if (const int error = device_.context->create_srq(&init, &made)) return error;
    srq->enter_device(*made);
  }
  if (const int error = talks_.make_qps()) return error;
  for (Ah* ah : shadows_.all<Ah>()) {
    device::Ah* made = nullptr;
    ibv_ah_attr path = ah->attributes;
    if (!device_.gids.rename_source(&path)) return EADDRNOTAVAIL;
    if (const int error = device_.context->create_ah(behind(ah->pd), path, &made)) return error;
    datagrams_.enter_device(*ah, *made);
  }
  return 0;
}

void Context::number_anew() {
  for (const Mr* mr : shadows_.all<Mr>()) name(*mr);
  windows_.enter_numbers();
  name_own_datagrams();
  shadows_.for_each<Ah>([&](Ah& ah) { add_ways(ah); });
  for (Srq* srq : shadows_.all<Srq>()) {
    if (srq->number() != 0) device_.numbers->srqns.set(srq->number(), srq->inner->number());
    srq->rename_by(*device_.numbers);
  }
  for (Qp* qp : shadows_.all<Qp>()) qp->rename_by(*device_.numbers);
}

int Context::make_anew() {
  device_.gids.match(*device_.context);
  if (device_.numbers == nullptr) device_.numbers = std::make_unique<Numbers>();
  for (NumberTable* table :
       {&device_.numbers->lkeys, &device_.numbers->rkeys, &device_.numbers->virtual_rkeys,
        &device_.numbers->qpns, &device_.numbers->virtual_qpns, &device_.numbers->srqns}) {
    table->clear();
  }
  const auto talks = talks_.hold();
  if (const int error = make_memory_anew()) return error;
  if (const int error = make_queues_anew()) return error;
  number_anew();
  is_made_anew_ = true;
  const std::vector<Qp*> qps = talks_.made_anew();
  const auto connect = [&](std::size_t index) {
    Qp& qp = *qps[index];
    return qp.is_ud() ? qp.begin_to_connect() : qp.connect();
  };
  if (const int error = by_several_threads(device_.context->useful_threads(), qps.size(), connect))
    return error;
  for (Qp* qp : qps) {
    if (!stops_.bind_windows(*qp)) qp->fail();
  }
  for (Qp* qp : qps) {
    if (const int error = qp->refill()) return error;
  }
  for (Srq* srq : shadows_.all<Srq>()) {
    if (const int error = srq->refill()) return error;
  }
  return 0;
}

device::Parcel Context::place() {
  return device::to_parcel(name_);
}

int Context::unpark(const device::Parcel& parcel) {
  const std::string name = device::device_behind(parcel);
  if (name.empty() || device_.context != nullptr) return EINVAL;
  name_ = name;
  rnic_->follow(name_);
  int error = 0;
  device_.context = rnic_->open(*this, &error);
  if (device_.context == nullptr) return error;
  try {
    error = make_anew();
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error != 0) leave_device();  // so that unpark() can be called again
  return error;
}

void Context::resume(bool /*rollback*/) {
  if (device_.context == nullptr) return;  // unpark() failed: the program's calls wait on
  const auto talks = talks_.hold();
  for (Srq* srq : shadows_.all<Srq>()) srq->resume();
  for (Qp* qp : shadows_.all<Qp>()) {
    if (is_made_anew_ && qp->is_ud() && (qp->pass_receives() != 0 || qp->connect() != 0))
      qp->fail();
  }
  talks_.resume(std::exchange(is_made_anew_, false));
  if (std::exchange(is_drained_, false)) {
    for (Cq* cq : shadows_.all<Cq>()) cq->resume();
    for (Channel* channel : shadows_.all<Channel>()) channel->resume();
  }
  calls_.go_on();
}

}  // namespace ferry::virt
