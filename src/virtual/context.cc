#include "virtual/context.h"

#include <cerrno>

namespace ferry::virt {

std::unique_ptr<Context> Context::open(device::Rnic& rnic, device::EventSink& sink, int* error) {
  std::unique_ptr<Context> context(new Context(sink));
  context->inner_ = rnic.open(*context, error);
  return context->inner_ ? std::move(context) : nullptr;
}

Context::~Context() {
  inner_.reset();
}

template <typename T, typename Base, typename... Arguments>
int Context::keep(int error, Base* made, Base** out, Arguments... arguments) {
  if (error != 0) return error;
  try {
    auto shadow = std::make_unique<T>(*made, arguments...);
    *out = shadow.get();
    std::lock_guard lock(mutex_);
    objects_.emplace(*out, std::move(shadow));
    return 0;
  } catch (...) {
    inner_->destroy(made);
    throw;
  }
}

int Context::alloc_pd(device::Pd** out) {
  device::Pd* made = nullptr;
  const int error = inner_->alloc_pd(&made);
  return keep<Pd>(error, made, out);
}

int Context::reg_mr(const device::MrInit& init, device::Mr** out) {
  device::MrInit wanted = init;
  wanted.pd = behind(init.pd);
  device::Mr* made = nullptr;
  const int error = inner_->reg_mr(wanted, &made);
  return keep<Mr>(error, made, out);
}

int Context::create_cq(const device::CqInit& init, device::Cq** out) {
  device::CqInit wanted = init;
  wanted.channel = behind(init.channel);
  device::Cq* made = nullptr;
  const int error = inner_->create_cq(wanted, &made);
  return keep<Cq>(error, made, out);
}

int Context::create_qp(device::QpInit* init, device::Qp** out) {
  device::QpInit wanted = *init;
  wanted.pd = behind(init->pd);
  wanted.send_cq = behind(init->send_cq);
  wanted.recv_cq = behind(init->recv_cq);
  wanted.srq = behind(init->srq);
  wanted.xrcd = behind(init->xrcd);
  device::Qp* made = nullptr;
  const int error = inner_->create_qp(&wanted, &made);
  init->cap = wanted.cap;
  return keep<Qp>(error, made, out, init->type);
}

int Context::alloc_null_mr(device::Pd* pd, device::Mr** out) {
  device::Mr* made = nullptr;
  const int error = inner_->alloc_null_mr(behind(pd), &made);
  return keep<Mr>(error, made, out);
}

int Context::rereg_mr(device::Mr* mr, int flags, const device::MrInit& init) {
  device::MrInit wanted = init;
  wanted.pd = behind(init.pd);
  return inner_->rereg_mr(behind(mr), flags, wanted);
}

int Context::alloc_mw(device::Pd* pd, ibv_mw_type type, device::Mw** out) {
  device::Mw* made = nullptr;
  const int error = inner_->alloc_mw(behind(pd), type, &made);
  return keep<Mw>(error, made, out);
}

int Context::create_ah(device::Pd* pd, const ibv_ah_attr& attributes, device::Ah** out) {
  device::Ah* made = nullptr;
  const int error = inner_->create_ah(behind(pd), attributes, &made);
  return keep<Ah>(error, made, out);
}

int Context::create_srq(device::SrqInit* init, device::Srq** out) {
  device::SrqInit wanted = *init;
  wanted.pd = behind(init->pd);
  wanted.xrcd = behind(init->xrcd);
  wanted.cq = behind(init->cq);
  device::Srq* made = nullptr;
  const int error = inner_->create_srq(&wanted, &made);
  init->attributes = wanted.attributes;
  return keep<Srq>(error, made, out);
}

int Context::open_xrcd(device::Xrcd** out) {
  device::Xrcd* made = nullptr;
  const int error = inner_->open_xrcd(&made);
  return keep<Xrcd>(error, made, out);
}

int Context::create_channel(device::Channel** out) {
  device::Channel* made = nullptr;
  const int error = inner_->create_channel(&made);
  return keep<Channel>(error, made, out);
}

int Context::take_asynchronous(device::AsynchronousEvent* out) {
  for (;;) {
    if (const int error = inner_->take_asynchronous(out)) return error;
    if (out->object == nullptr) return 0;
    if (device::Object* shadow = shadow_of(*out->object)) {
      out->object = shadow;
      return 0;
    }
    inner_->acknowledge(*out);  // of an object that the application does not know yet
  }
}

void Context::acknowledge(const device::AsynchronousEvent& event) {
  device::AsynchronousEvent of_device = event;
  if (auto* shadow = dynamic_cast<Shadowing*>(event.object))
    of_device.object = shadow->object_behind();
  inner_->acknowledge(of_device);
}

int Context::destroy(device::Object* object) {
  auto* shadow = dynamic_cast<Shadowing*>(object);
  if (shadow == nullptr) return EINVAL;
  if (const int error = inner_->destroy(shadow->object_behind())) return error;
  std::lock_guard lock(mutex_);
  objects_.erase(object);
  return 0;
}

void Context::status(std::vector<device::QpStatus>* out) {
  std::lock_guard lock(mutex_);
  for (const auto& [object, owner] : objects_) {
    if (auto* qp = dynamic_cast<Qp*>(object)) out->push_back(qp->status(*inner_));
  }
}

void Context::completion(device::Cq& cq) {
  if (device::Cq* shadow = shadow_of(cq)) sink_.completion(*shadow);
}

// An event of an object that the application does not know yet is of no use to it.
void Context::asynchronous(ibv_event_type type, device::Object* object) {
  device::Object* shadow = object != nullptr ? shadow_of(*object) : nullptr;
  if (object == nullptr || shadow != nullptr) sink_.asynchronous(type, shadow);
}

}  // namespace ferry::virt
