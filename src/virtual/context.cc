#include "virtual/context.h"

#include <cerrno>
#include <utility>

namespace ferry::virt {

using Call = Calls::Call;

std::unique_ptr<Context> Context::open(std::shared_ptr<device::Rnic> rnic, device::EventSink& sink,
                                       device::MoveSink& moves, std::chrono::milliseconds watch,
                                       int* error) {
  std::unique_ptr<Context> context(new Context(std::move(rnic), sink, moves, watch));
  context->name_ = context->rnic_->name_here();
  context->device_.context = context->rnic_->open(*context, error);
  if (context->device_.context == nullptr) return nullptr;
  context->command_descriptor_ = context->device_.context->command_descriptor();
  // A device of the kernel has descriptors for its events. The application keeps those, also on a device without.
  if (context->rnic_->index() >= 0 || context->device_.context->asynchronous_descriptor() >= 0)
    *error = context->events_.open(*context->device_.context);
  return *error == 0 ? std::move(context) : nullptr;
}

Context::~Context() {
  events_.leave();
  device_.context.reset();
}

// --- What the device is

int Context::query_device(ibv_device_attr_ex* out) {
  const Call call(calls_);
  return device_.context->query_device(out);
}

int Context::query_port(std::uint8_t port_number, ibv_port_attr* out) {
  const Call call(calls_);
  return device_.context->query_port(port_number, out);
}

int Context::query_gid(std::uint8_t port_number, unsigned index, ibv_gid_entry* out) {
  const Call call(calls_);
  return device_.gids.are_learned() ? device_.gids.query(port_number, index, out)
                                    : device_.context->query_gid(port_number, index, out);
}

std::vector<ibv_gid_entry> Context::gids() {
  const Call call(calls_);
  return device_.gids.are_learned() ? device_.gids.known() : device_.context->gids();
}

bool Context::can_name_gid(std::uint8_t port, std::uint8_t index, std::uint8_t at) {
  const Calls::Glance glance(calls_);
  if (!glance.is_in()) return device_.gids.index_at(port, index) == at;
  if (!device_.gids.are_learned() && at == index) return true;
  device_.learn_gids();
  ibv_gid_entry entry{};
  return query_real_gid(port, index, &entry) ? device_.gids.can_name(entry, at) : at == index;
}

void Context::name_gid(std::uint8_t port, std::uint8_t index, std::uint8_t at) {
  const Calls::Glance glance(calls_);
  ibv_gid_entry entry{};
  const bool is_known = glance.is_in() && device_.gids.are_learned();
  if (is_known && query_real_gid(port, index, &entry)) device_.gids.name(entry, at);
}

bool Context::query_real_gid(std::uint8_t port, std::uint8_t index, ibv_gid_entry* out) {
  if (device_.context->query_gid(port, index, out) != 0) return false;
  out->port_num = port;
  out->gid_index = index;
  return true;
}

int Context::query_pkey(std::uint8_t port_number, int index, std::uint16_t* out) {
  const Call call(calls_);
  return device_.context->query_pkey(port_number, index, out);
}

int Context::completion_vectors() const {
  const Call call(calls_);
  return device_.context->completion_vectors();
}

bool Context::checks_requests() const {
  const Call call(calls_);
  return device_.context->checks_requests();
}

std::uint64_t Context::clock() const {
  const Call call(calls_);
  return device_.context->clock();
}

// In a child nobody ends a stop.
bool Context::survives_fork() const {
  return !calls_.are_stopped() && device_.context->survives_fork();
}

void Context::counters(std::vector<device::Counter>* out) {
  const Calls::Glance glance(calls_);
  if (glance.is_in()) device_.context->counters(out);
}

void Context::abandon() {
  if (device_.context != nullptr) device_.context->abandon();
}

void Context::leave() {
  if (device_.context != nullptr) device_.context->leave();
}

// --- Objects

template <typename T, typename Base, typename Make, typename... Arguments>
int Context::keep(Base** out, Make make, const Arguments&... arguments) {
  // Objects whose number is taken are kept until there is one whose number is free.
  std::vector<Base*> colliding;
  Base* made = nullptr;
  int error = make(&made);
  try {
    while (error == 0 && taken_.have(*made)) {
      colliding.push_back(made);
      error = make(&made);
    }
    if (error == 0) {
      auto shadow = std::make_unique<T>(*made, arguments...);
      // An object that is made after a move is used together with objects that were made before it.
      if constexpr (requires { shadow->rename_by(*device_.numbers); }) {
        if (device_.numbers != nullptr) shadow->rename_by(*device_.numbers);
      }
      *out = shadow.get();
      shadows_.add(std::move(shadow));
    }
  } catch (const std::bad_alloc&) {
    device_.context->destroy(made);
    error = ENOMEM;
  }
  for (Base* object : colliding) device_.context->destroy(object);
  return error;
}

int Context::alloc_pd(device::Pd** out) {
  const Call call(calls_);
  return keep<Pd>(out, [&](device::Pd** made) { return device_.context->alloc_pd(made); });
}

int Context::reg_mr(const device::MrInit& init, device::Mr** out) {
  const Call call(calls_);
  device::MrInit wanted = init;
  wanted.pd = behind(init.pd);
  const int error = keep<Mr>(
      out, [&](device::Mr** made) { return device_.context->reg_mr(wanted, made); }, init, false);
  if (error == 0) datagrams_.add(*static_cast<Mr*>(*out));
  return error;
}

int Context::alloc_null_mr(device::Pd* pd, device::Mr** out) {
  const Call call(calls_);
  device::MrInit init;
  init.pd = pd;
  return keep<Mr>(
      out, [&](device::Mr** made) { return device_.context->alloc_null_mr(behind(pd), made); },
      init, true);
}

int Context::create_cq(const device::CqInit& init, device::Cq** out) {
  const Call call(calls_);
  device::CqInit wanted = init;
  wanted.channel = behind(init.channel);
  wanted.vector %=
      device_.context
          ->completion_vectors();  // of the device on which the program began, there were more
  const int error = keep<Cq>(
      out, [&](device::Cq** made) { return device_.context->create_cq(wanted, made); }, init,
      std::ref(calls_), std::ref(returns_), std::ref(sink_));
  if (error == 0 && windows_.are_used()) static_cast<Cq*>(*out)->look_at(windows_);
  return error;
}

int Context::create_qp(device::QpInit* init, device::Qp** out) {
  const Call call(calls_);
  device::QpInit wanted = *init;
  wanted.pd = behind(init->pd);
  wanted.send_cq = behind(init->send_cq);
  wanted.recv_cq = behind(init->recv_cq);
  wanted.srq = behind(init->srq);
  wanted.xrcd = behind(init->xrcd);
  const auto make = [&](device::Qp** made) {
    wanted.cap = init->cap;
    const int error = device_.context->create_qp(&wanted, made);
    if (error == 0) init->cap = wanted.cap;
    return error;
  };
  return keep_qp(*init, make, out);
}

template <typename Make>
int Context::keep_qp(const device::QpInit& init, Make make, device::Qp** out) {
  const int error = keep<Qp>(out, make, std::cref(init), std::ref(calls_), std::ref(returns_),
                             std::cref(device_.gids), std::ref(static_cast<Introducer&>(talks_)),
                             std::ref(datagrams_), std::ref(windows_));
  if (error == 0 && device_.numbers != nullptr) {
    const auto talks = talks_.hold();
    device_.numbers->qpns.set((*out)->qpn(), (*out)->qpn());
  }
  if (error == 0 && windows_.are_used()) static_cast<Qp*>(*out)->redirect();
  if (error == 0 && init.type == IBV_QPT_UD) add_ud(*static_cast<Qp*>(*out));
  return error;
}

int Context::rereg_mr(device::Mr* mr, int flags, const device::MrInit& init) {
  const Call call(calls_);
  device::MrInit wanted = init;
  wanted.pd = behind(init.pd);
  auto& shadow = *static_cast<Mr*>(mr);
  if (const int error = device_.context->rereg_mr(shadow.inner, flags, wanted)) return error;
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) shadow.init.pd = init.pd;
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) shadow.init.access = init.access;
  if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
    shadow.init.address = init.address;
    shadow.init.length = init.length;
    shadow.init.iova = init.iova;
  }
  datagrams_.remove(shadow);
  windows_.end_region(shadow.lkey());
  if (device_.numbers == nullptr || !device_.numbers->lkeys.is_used()) {
    shadow.take_keys();
  } else {
    name(shadow);
  }
  datagrams_.add(shadow);
  return 0;
}

int Context::alloc_mw(device::Pd* pd, ibv_mw_type type, device::Mw** out) {
  const Call call(calls_);
  const int error = keep<Mw>(
      out, [&](device::Mw** made) { return device_.context->alloc_mw(behind(pd), type, made); }, pd,
      type);
  if (error != 0) return error;
  windows_.add(*static_cast<Mw*>(*out));
  look_for_windows();
  return 0;
}

void Context::look_for_windows() {
  const auto talks = talks_.hold();
  if (windows_.are_used()) return;
  windows_.use();
  for (Qp* qp : shadows_.all<Qp>()) qp->redirect();
  for (Cq* cq : shadows_.all<Cq>()) cq->look_at(windows_);
}

int Context::create_ah(device::Pd* pd, const ibv_ah_attr& attributes, device::Ah** out) {
  const Call call(calls_);
  ibv_ah_attr path = attributes;
  if (device_.gids.are_learned() && !device_.gids.rename_source(&path)) return EINVAL;
  const int error = keep<Ah>(
      out, [&](device::Ah** made) { return device_.context->create_ah(behind(pd), path, made); },
      pd, attributes);
  if (error != 0) return error;
  auto& ah = *static_cast<Ah*>(*out);
  datagrams_.add(ah);
  if (!datagrams_.are_used()) return 0;
  shadows_.alone([&] { add_ways(ah); });
  return 0;
}

int Context::create_srq(device::SrqInit* init, device::Srq** out) {
  const Call call(calls_);
  device::SrqInit wanted = *init;
  wanted.pd = behind(init->pd);
  wanted.xrcd = behind(init->xrcd);
  wanted.cq = behind(init->cq);
  const auto make = [&](device::Srq** made) {
    const int error = device_.context->create_srq(&wanted, made);
    if (error == 0) init->attributes = wanted.attributes;
    return error;
  };
  const int error = keep<Srq>(out, make, std::cref(*init), std::ref(calls_), std::ref(returns_));
  // A target whose peer has moved may have another QPN than when the CQ was made.
  if (error == 0 && init->cq != nullptr && device_.numbers != nullptr)
    static_cast<Cq*>(init->cq)->rename_by(*device_.numbers);
  return error;
}

int Context::open_xrcd(const device::XrcdInit& init, device::Xrcd** out) {
  const Call call(calls_);
  const bool is_shared = init.file >= 0 && device_.context->shares_xrcds();
  return keep<Xrcd>(
      out, [&](device::Xrcd** made) { return device_.context->open_xrcd(init, made); }, is_shared);
}

bool Context::shares_xrcds() const {
  const Call call(calls_);
  return device_.context->shares_xrcds();
}

int Context::open_qp(device::Xrcd* xrcd, std::uint32_t qpn, device::Qp** out) {
  const Call call(calls_);
  device::QpInit init;
  init.type = IBV_QPT_XRC_RECV;
  init.xrcd = xrcd;
  bool is_opened = false;
  const auto open = [&](device::Qp** made) {
    // Only a QP that is made anew gets another number.
    if (std::exchange(is_opened, true)) return EBUSY;
    return device_.context->open_qp(behind(xrcd), qpn, made);
  };
  return keep_qp(init, open, out);
}

int Context::create_channel(device::Channel** out) {
  const Call call(calls_);
  auto channel = std::make_unique<Channel>();
  device::Channel* made = nullptr;
  int error = device_.context->create_channel(&made);
  if (error == EOPNOTSUPP && events_.descriptor() >= 0)
    error = 0;  // the next device may have channels
  if (error != 0) return error;
  if (made != nullptr) channel->attach(*made);
  error = channel->open();
  if (error != 0) {
    channel->unwatch();
    if (made != nullptr) device_.context->destroy(made);
    return error;
  }
  *out = channel.get();
  shadows_.add(std::move(channel));
  return 0;
}

void Context::name(const Mr& mr) {
  device_.numbers->lkeys.set(mr.lkey(), mr.inner->lkey());
  if (mr.rkey() != 0) device_.numbers->rkeys.set(mr.rkey(), mr.inner->rkey());
}

// The key of a window and the number of an XRC SRQ stay in the tables: peers may have them, the key with all its
// variants, until the next move. So no object gets them.
void Context::forget_numbers(device::Object* shadow, std::uint32_t real_qpn) {
  if (device_.numbers == nullptr) return;
  if (const auto* mr = dynamic_cast<Mr*>(shadow)) {
    device_.numbers->lkeys.erase(mr->lkey());
    if (mr->rkey() != 0) device_.numbers->rkeys.erase(mr->rkey());
  } else if (const auto* qp = dynamic_cast<Qp*>(shadow)) {
    device_.numbers->qpns.erase(qp->qpn());
    if (real_qpn != 0) device_.numbers->virtual_qpns.erase(real_qpn);
  } else if (const auto* mw = dynamic_cast<Mw*>(shadow)) {
    device_.numbers->virtual_rkeys.erase(device_.numbers->rkeys[mw->rkey()]);
  }
}

int Context::destroy(device::Object* object) {
  const Call call(calls_);
  auto* shadow = dynamic_cast<Shadowing*>(object);
  if (shadow == nullptr) return EINVAL;
  if (auto* ah = dynamic_cast<Ah*>(object)) return destroy_ah(*ah);
  auto* pd = dynamic_cast<Pd*>(object);
  auto* qp = dynamic_cast<Qp*>(object);
  std::unique_lock<std::mutex> talks;
  if (pd != nullptr || qp != nullptr || dynamic_cast<Cq*>(object) != nullptr ||
      dynamic_cast<Srq*>(object) != nullptr || dynamic_cast<Xrcd*>(object) != nullptr ||
      dynamic_cast<Mw*>(object) != nullptr ||
      (windows_.are_used() && dynamic_cast<Mr*>(object) != nullptr)) {
    talks = talks_.hold();
    if (talks_.is_needed(*object)) return EBUSY;
  }
  if (pd != nullptr) markers_.destroy_region(*pd);
  device::Object* const behind_it = shadow->object_behind();
  const std::uint32_t real_qpn = qp != nullptr && behind_it != nullptr ? qp->inner->qpn() : 0;
  if (auto* channel = dynamic_cast<Channel*>(object)) channel->unwatch();
  // The shadow leaves the table first: nobody may find it any more when its object goes.
  auto owner = shadows_.take(*object);
  if (behind_it != nullptr) {
    if (const int error = device_.context->destroy(behind_it)) {
      shadows_.add(std::move(owner));
      return error;
    }
  }
  // Completions of a target may wait in CQs that outlive it, and no more come now.
  if (qp != nullptr && qp->is_xrc_target() && device_.numbers != nullptr) {
    try {
      stops_.sweep(*qp);
    } catch (
        const std::bad_alloc&) {  // the target is gone all the same; those have the device's QPN
    }
  }
  forget(*object, real_qpn);
  return 0;
}

void Context::forget(device::Object& shadow, std::uint32_t real_qpn) {
  events_.forget(&shadow);
  forget_numbers(&shadow, real_qpn);
  if (auto* mr = dynamic_cast<Mr*>(&shadow)) {
    datagrams_.remove(*mr);
    windows_.end_region(mr->lkey());
  } else if (auto* mw = dynamic_cast<Mw*>(&shadow)) {
    windows_.remove(*mw);
  } else if (auto* cq = dynamic_cast<Cq*>(&shadow)) {
    if (cq->channel() != nullptr) cq->channel()->forget(*cq);
  } else if (auto* qp = dynamic_cast<Qp*>(&shadow)) {
    markers_.destroy_window(*qp);
    talks_.forget(*qp);
    windows_.end_qp(qp->qpn());
    if (qp->is_ud()) remove_ud(*qp);
  }
}

void Context::status(std::vector<device::QpStatus>* out) {
  shadows_.for_each<Qp>([&](Qp& qp) { out->push_back(qp.status(device_.context.get())); });
}

// --- Events

int Context::take_asynchronous(device::AsynchronousEvent* out) {
  return events_.take(out);
}

void Context::acknowledge(const device::AsynchronousEvent& event) {
  events_.acknowledge(event);
}

// These two run under the locks of the device behind: without memory, the event is lost.
void Context::completion(device::Cq& cq) try {
  device::Cq* shadow = shadow_of(cq);
  if (shadow != nullptr && static_cast<Cq*>(shadow)->raised()) static_cast<Cq*>(shadow)->raise();
} catch (const std::bad_alloc&) {
}

// Drops an event of an object that the application does not know yet.
void Context::asynchronous(ibv_event_type type, device::Object* object) try {
  device::Object* shadow = object != nullptr ? shadow_of(*object) : nullptr;
  if (object != nullptr && shadow == nullptr) return;
  if (events_.descriptor() >= 0) {
    events_.keep({type, shadow, 1});
  } else if (object == nullptr || !events_.are_dropped()) {
    sink_.asynchronous(type, shadow);
  }
} catch (const std::bad_alloc&) {
}

}  // namespace ferry::virt
