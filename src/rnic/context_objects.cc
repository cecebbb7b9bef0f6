#include <cerrno>
#include <new>

#include "rnic/attributes.h"
#include "rnic/context.h"

// Makes, changes and destroys the objects of an RNIC. EBUSY: another object still uses this one.
namespace ferry::rnic {
namespace {

// The caller's object as a T; null: it is null, or of another type.
template <typename T>
T* as(device::Object* object) {
  return dynamic_cast<T*>(object);
}

}  // namespace

int Context::alloc_pd(device::Pd** out) try {
  if (engine_.abandoned()) return ENODEV;
  std::lock_guard lock(mutex_);
  if (pds_.size() >= kMaxPds) return ENOMEM;
  auto pd = std::make_unique<ProtectionDomain>(next_handle_++);
  *out = pd.get();
  pds_.emplace(pd->handle, std::move(pd));
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int Context::destroy_pd(ProtectionDomain* pd) {
  if (pd->users > 0) return EBUSY;
  pds_.erase(pd->handle);
  return 0;
}

// --- Memory

int Context::insert_mr(const device::MrInit& init, ProtectionDomain* pd, const std::uint32_t* key,
                       Handle handle, device::Mr** out) {
  auto mr = std::make_unique<MemoryRegion>();
  if (const int error = check_registration(init, &mr->access, &mr->iova); error != 0) return error;
  mr->handle = handle;
  mr->pd = pd;
  mr->address = static_cast<std::byte*>(init.address);
  mr->length = init.length;
  MemoryRegion* region = mr.get();
  mrs_.emplace(handle, std::move(mr));
  {
    Engine::Lock lock(engine_);
    MemoryTable& table = engine_.objects().memory();
    const bool inserted = key != nullptr ? table.insert_with_key(region, *key)
                                         : table.insert(region, engine_.environment().random());
    if (!inserted) {
      mrs_.erase(handle);
      return key != nullptr ? EEXIST : ENOMEM;
    }
  }
  ++pd->users;
  *out = region;
  return 0;
}

int Context::reg_mr(const device::MrInit& init, device::Mr** out) try {
  if (engine_.abandoned()) return ENODEV;
  auto* pd = as<ProtectionDomain>(init.pd);
  if (pd == nullptr) return EINVAL;
  std::lock_guard lock(mutex_);
  return insert_mr(init, pd, nullptr, next_handle_++, out);
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int Context::insert_null_mr(ProtectionDomain* pd, Handle handle, device::Mr** out) {
  auto mr = std::make_unique<MemoryRegion>();
  mr->handle = handle;
  mr->pd = pd;
  mr->access = IBV_ACCESS_LOCAL_WRITE;
  mr->is_null = true;
  MemoryRegion* region = mr.get();
  mrs_.emplace(handle, std::move(mr));
  {
    Engine::Lock lock(engine_);
    if (!engine_.objects().memory().insert(region, engine_.environment().random())) {
      mrs_.erase(handle);
      return ENOMEM;
    }
  }
  ++pd->users;
  *out = region;
  return 0;
}

int Context::alloc_null_mr(device::Pd* object, device::Mr** out) try {
  if (engine_.abandoned()) return ENODEV;
  auto* pd = as<ProtectionDomain>(object);
  if (pd == nullptr) return EINVAL;
  std::lock_guard lock(mutex_);
  return insert_null_mr(pd, next_handle_++, out);
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

// Keeps the keys, as clause 11.2.8.9 allows. On failure the MR is as before.
int Context::rereg_mr(device::Mr* mr, int flags, const device::MrInit& init) {
  if (engine_.abandoned()) return ENODEV;
  auto* region = as<MemoryRegion>(mr);
  constexpr int kFlags =
      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  if (region == nullptr || region->is_null || flags == 0 || (flags & ~kFlags) != 0) return EINVAL;
  std::lock_guard objects(mutex_);
  auto* pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0 ? as<ProtectionDomain>(init.pd) : region->pd;
  if (pd == nullptr) return EINVAL;
  device::MrInit wanted = init;
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) == 0) wanted.access = region->access;
  if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) == 0) {
    wanted.address = region->address;
    wanted.length = region->length;
    wanted.iova = (region->access & IBV_ACCESS_ZERO_BASED) != 0
                      ? reinterpret_cast<std::uintptr_t>(region->address)
                      : region->iova;
  }
  std::uint32_t access = 0;
  std::uint64_t iova = 0;
  if (const int error = check_registration(wanted, &access, &iova); error != 0) return error;
  Engine::Lock lock(engine_);
  if (region->windows > 0) return EBUSY;
  --region->pd->users;
  ++pd->users;
  region->pd = pd;
  region->address = static_cast<std::byte*>(wanted.address);
  region->length = wanted.length;
  region->iova = iova;
  region->access = access;
  return 0;
}

int Context::destroy_mr(MemoryRegion* mr) {
  {
    // Whoever copies to or from the region holds this lock: nobody does from here on.
    Engine::Lock lock(engine_);
    if (mr->windows > 0) return EBUSY;
    engine_.objects().memory().remove(mr);
  }
  --mr->pd->users;
  mrs_.erase(mr->handle);
  return 0;
}

int Context::insert_mw(ProtectionDomain* pd, ibv_mw_type type, const std::uint32_t* key,
                       Handle handle, MemoryWindow** out) {
  auto mw = std::make_unique<MemoryWindow>(handle, type);
  mw->pd = pd;
  MemoryWindow* window = mw.get();
  mws_.emplace(handle, std::move(mw));
  {
    Engine::Lock lock(engine_);
    MemoryTable& table = engine_.objects().memory();
    const bool inserted = key != nullptr ? table.insert_with_key(window, *key)
                                         : table.insert(window, engine_.environment().random());
    if (!inserted) {
      mws_.erase(handle);
      return key != nullptr ? EEXIST : ENOMEM;
    }
  }
  window->posted_key = window->key;
  ++pd->users;
  *out = window;
  return 0;
}

int Context::alloc_mw(device::Pd* object, ibv_mw_type type, device::Mw** out) try {
  if (engine_.abandoned()) return ENODEV;
  auto* pd = as<ProtectionDomain>(object);
  if (pd == nullptr || (raw(type) != IBV_MW_TYPE_1 && raw(type) != IBV_MW_TYPE_2)) return EINVAL;
  std::lock_guard lock(mutex_);
  MemoryWindow* window = nullptr;
  const int error = insert_mw(pd, type, nullptr, next_handle_++, &window);
  if (error == 0) *out = window;
  return error;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int Context::destroy_mw(MemoryWindow* mw) {
  {
    Engine::Lock lock(engine_);
    MemoryTable::unbind(mw);
    engine_.objects().memory().remove(mw);
  }
  --mw->pd->users;
  mws_.erase(mw->number);
  return 0;
}

// --- Queues

int Context::create_cq(const device::CqInit& init, device::Cq** out) try {
  if (engine_.abandoned()) return ENODEV;
  if (init.cqe < 1 || init.cqe > CompletionQueue::kMaxEntries) return EINVAL;
  std::lock_guard lock(mutex_);
  if (cqs_.size() >= kMaxCqs) return ENOMEM;
  auto cq = std::make_unique<CompletionQueue>(engine_, sink_, next_handle_++, init);
  *out = cq.get();
  cqs_.emplace(cq->handle, std::move(cq));
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int Context::destroy_cq(CompletionQueue* cq) {
  if (cq->users > 0) return EBUSY;
  {
    Engine::Lock lock(engine_);
    engine_.events().forget_moderated(cq);
  }
  cqs_.erase(cq->handle);
  return 0;
}

int Context::open_xrcd(const device::XrcdInit& /*init*/, device::Xrcd** out) try {
  if (engine_.abandoned()) return ENODEV;
  std::lock_guard lock(mutex_);
  if (xrcds_.size() >= kMaxXrcds) return ENOMEM;
  auto xrcd = std::make_unique<XrcDomain>(next_handle_++);
  *out = xrcd.get();
  xrcds_.emplace(xrcd->handle, std::move(xrcd));
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int Context::destroy_xrcd(XrcDomain* xrcd) {
  if (xrcd->users > 0) return EBUSY;
  xrcds_.erase(xrcd->handle);
  return 0;
}

void Context::use(const SharedReceiveQueue::Init& init, int change) {
  init.pd->users += change;
  if (init.cq != nullptr) init.cq->users += change;
  if (init.xrcd != nullptr) init.xrcd->users += change;
}

int Context::insert_srq(const SharedReceiveQueue::Init& wanted, SharedReceiveQueue** out) {
  SharedReceiveQueue::Init init = wanted;
  Engine::Lock lock(engine_);
  if (init.xrcd != nullptr && init.number == 0) {
    do {
      init.number = static_cast<std::uint32_t>(engine_.environment().random()) & 0xFFFFFF;
    } while (init.number == 0 || engine_.objects().xrc_srq(init.number) != nullptr);
  }
  auto srq = std::make_unique<SharedReceiveQueue>(engine_, sink_, init);
  SharedReceiveQueue* queue = srq.get();
  srqs_.emplace(init.handle, std::move(srq));
  if (init.xrcd != nullptr) engine_.objects().add_xrc(queue);
  use(init, +1);
  *out = queue;
  return 0;
}

int Context::create_srq(device::SrqInit* wanted, device::Srq** out) try {
  if (engine_.abandoned()) return ENODEV;
  SharedReceiveQueue::Init init;
  init.pd = as<ProtectionDomain>(wanted->pd);
  init.xrcd = as<XrcDomain>(wanted->xrcd);
  init.cq = as<CompletionQueue>(wanted->cq);
  if (init.pd == nullptr || (init.xrcd == nullptr) != (init.cq == nullptr)) return EINVAL;
  ibv_srq_attr granted = wanted->attributes;
  if (const int error = SharedReceiveQueue::grant(&granted); error != 0) return error;
  init.max_wr = granted.max_wr;
  init.max_sge = granted.max_sge;
  std::lock_guard lock(mutex_);
  if (srqs_.size() >= kMaxSrqs) return ENOMEM;
  init.handle = next_handle_++;
  SharedReceiveQueue* srq = nullptr;
  if (const int error = insert_srq(init, &srq); error != 0) return error;
  wanted->attributes = granted;
  wanted->attributes.srq_limit = 0;
  *out = srq;
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int Context::destroy_srq(SharedReceiveQueue* srq) {
  const SharedReceiveQueue::Init init = srq->init();
  if (srq->users > 0) return EBUSY;
  {
    Engine::Lock lock(engine_);
    if (init.xrcd != nullptr) {
      engine_.objects().remove_xrc(srq);
      engine_.qps().for_each([srq](QueuePair& qp) { qp.forget_srq(srq); });
    }
    srqs_.erase(init.handle);
  }
  use(init, -1);
  return 0;
}

// --- QPs

void Context::use(const QueuePair::Init& init, int change) {
  if (init.pd != nullptr) init.pd->users += change;
  if (init.send_cq != nullptr) init.send_cq->users += change;
  if (init.recv_cq != nullptr) init.recv_cq->users += change;
  if (init.srq != nullptr) init.srq->users += change;
  if (init.xrcd != nullptr) init.xrcd->users += change;
}

int Context::insert_qp(const QueuePair::Init& wanted, const std::uint32_t* index,
                       device::Qp** out) {
  Engine::Lock lock(engine_);
  const Lane& lane = engine_.lanes()[engine_.lanes()[0].port != nullptr ? 0 : 1];
  // The QP is made under the lock: it needs its index, which is free only until add_qp().
  const std::uint32_t taken = index != nullptr ? *index : engine_.qps().free_index();
  if (taken == QpTable::kNoIndex || !engine_.qps().is_free(taken))
    return index != nullptr ? EEXIST : ENOMEM;
  QueuePair::Init init = wanted;
  if (index == nullptr) init.virtual_qpn = port::make_qpn(origin_slot_, taken);
  init.wire_qpn = port::make_qpn(lane.slot, taken);
  auto qp = std::make_unique<QueuePair>(engine_, sink_, limits(), init);
  engine_.add_qp(qp.get(), taken);
  use(init, +1);
  *out = qp.get();
  qps_.emplace(init.handle, std::move(qp));
  return 0;
}

int Context::create_qp(device::QpInit* init, device::Qp** out) try {
  if (engine_.abandoned()) return ENODEV;
  QueuePair::Init qp;
  qp.type = init->type;
  if (!QueuePair::supports(init->type)) return EOPNOTSUPP;
  qp.pd = as<ProtectionDomain>(init->pd);
  qp.send_cq = as<CompletionQueue>(init->send_cq);
  qp.recv_cq = as<CompletionQueue>(init->recv_cq);
  qp.srq = as<SharedReceiveQueue>(init->srq);
  qp.xrcd = as<XrcDomain>(init->xrcd);
  if (qp.type == IBV_QPT_XRC_SEND) qp.recv_cq = nullptr;
  if (qp.type == IBV_QPT_XRC_RECV) {
    qp.pd = nullptr;
    qp.send_cq = qp.recv_cq = nullptr;
  }
  if (!qp.has_its_objects()) return EINVAL;
  qp.cap = init->cap;
  qp.cap.max_inline_data = std::max(qp.cap.max_inline_data, QueuePair::kMinInline);
  if (const int error = QueuePair::grant(qp.type, qp.srq != nullptr, &qp.cap); error != 0) {
    return error;
  }
  qp.sq_sig_all = init->sq_sig_all;
  if (init->block_multicast_loopback && qp.type != IBV_QPT_UD) return EINVAL;
  qp.block_multicast_loopback = init->block_multicast_loopback;
  std::lock_guard lock(mutex_);
  qp.handle = next_handle_++;
  const int error = insert_qp(qp, nullptr, out);
  if (error == 0) init->cap = qp.cap;
  return error;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int Context::destroy_qp(QueuePair* qp) {
  const QueuePair::Init init = qp->init();
  {
    Engine::Lock lock(engine_);
    if (!engine_.multicast().groups_of(qp).empty()) return EBUSY;  // ibv_detach_mcast(3) first
    for (const auto& [number, window] : mws_) {
      if (window->qp == qp) MemoryTable::unbind(window.get());
    }
    qp->say_farewell();
    engine_.transmit(engine_.now());  // sends what was kept or held (PostGatherer, ReplyHabit)
    engine_.remove_qp(qp, port::index_of(init.virtual_qpn));
    qps_.erase(init.handle);
  }
  use(init, -1);
  return 0;
}

// --- Address handles

// RoCE needs a destination GID (annex A17.4.5), and a source GID of the same address family.
int Context::insert_ah(ProtectionDomain* pd, const ibv_ah_attr& attributes, Handle handle,
                       device::Ah** out) {
  const auto& gids = engine_.lanes().gids();
  if (attributes.is_global == 0 || attributes.port_num != 1 ||
      attributes.grh.sgid_index >= gids.size()) {
    return EINVAL;
  }
  auto ah = std::make_unique<AddressHandle>(handle, pd, attributes);
  if (lane_of(ah->address().destination) != lane_of(gids[attributes.grh.sgid_index])) return EINVAL;
  if (ahs_.size() >= kMaxAhs) return ENOMEM;
  *out = ah.get();
  {
    Engine::Lock lock(engine_);
    engine_.objects().add(ah.get());
  }
  ++pd->users;
  ahs_.emplace(handle, std::move(ah));
  return 0;
}

int Context::create_ah(device::Pd* pd, const ibv_ah_attr& attributes, device::Ah** out) try {
  if (engine_.abandoned()) return ENODEV;
  auto* domain = as<ProtectionDomain>(pd);
  if (domain == nullptr) return EINVAL;
  std::lock_guard lock(mutex_);
  return insert_ah(domain, attributes, next_handle_++, out);
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int Context::destroy_ah(AddressHandle* ah) {
  {
    Engine::Lock lock(engine_);
    engine_.objects().remove(ah);
  }
  --ah->pd()->users;
  ahs_.erase(ah->handle());
  return 0;
}

int Context::destroy(device::Object* object) {
  if (engine_.abandoned()) return ENODEV;
  std::lock_guard lock(mutex_);
  if (auto* qp = as<QueuePair>(object)) return destroy_qp(qp);
  if (auto* srq = as<SharedReceiveQueue>(object)) return destroy_srq(srq);
  if (auto* cq = as<CompletionQueue>(object)) return destroy_cq(cq);
  if (auto* mr = as<MemoryRegion>(object)) return destroy_mr(mr);
  if (auto* ah = as<AddressHandle>(object)) return destroy_ah(ah);
  if (auto* mw = as<MemoryWindow>(object)) return destroy_mw(mw);
  if (auto* xrcd = as<XrcDomain>(object)) return destroy_xrcd(xrcd);
  if (auto* pd = as<ProtectionDomain>(object)) return destroy_pd(pd);
  return EINVAL;
}

}  // namespace ferry::rnic
