#include <cerrno>
#include <cstring>
#include <new>

#include "rnic/attributes.h"
#include "rnic/context.h"
#include "rnic/engine/qp/records.h"

// Describes a context object by object, and restores it from the records (docs/image.md).
namespace ferry::rnic {

using device::ObjectType;
using device::Record;
using device::RestoreCommand;

namespace {

template <typename Object>
Handle handle_of(const Object* object) {
  return object != nullptr ? object->handle : 0;
}

// These write the body of an object's record, and give its version.

std::uint16_t write_body(const MemoryRegion& region, wire::ByteWriter& writer) {
  const device::MrHead saved{
      region.pd->handle, region.key,  reinterpret_cast<std::uintptr_t>(region.address),
      region.length,     region.iova, region.is_null ? device::kNullRegion : region.access};
  encode(saved, writer);
  return version_of(saved);
}

std::uint16_t write_body(const CompletionQueue& queue, wire::ByteWriter& writer) {
  CqRecord saved;
  saved.contents = queue.contents();
  saved.capacity = static_cast<std::uint32_t>(queue.capacity());
  saved.armed = static_cast<std::uint8_t>(saved.contents.armed);
  saved.overflowed = saved.contents.overflowed;
  saved.timestamps = queue.timestamps;
  saved.ignore_overrun = queue.ignore_overrun;
  encode(saved, writer);
  return version_of(saved);
}

std::uint16_t write_body(const SharedReceiveQueue& queue, wire::ByteWriter& writer) {
  const SharedReceiveQueue::Init& init = queue.init();
  device::SrqHead head;
  head.pd = init.pd->handle;
  head.xrcd = handle_of(init.xrcd);
  head.cq = handle_of(init.cq);
  head.number = init.number;
  head.max_wr = queue.max_wr();
  head.max_sge = init.max_sge;
  encode(head, writer);
  queue.save(writer);
  return 1;
}

std::uint16_t write_body(const QueuePair& pair, wire::ByteWriter& writer) {
  const QueuePair::Init& init = pair.init();
  device::QpHead head;
  head.pd = handle_of(init.pd);
  head.send_cq = handle_of(init.send_cq);
  head.recv_cq = handle_of(init.recv_cq);
  head.srq = init.srq != nullptr ? init.srq->init().handle : 0;
  head.xrcd = handle_of(init.xrcd);
  head.type = static_cast<std::uint8_t>(init.type);
  head.virtual_qpn = init.virtual_qpn;
  head.wire_qpn = pair.wire_qpn();
  head.cap = init.cap;
  head.sq_sig_all = init.sq_sig_all;
  head.block_multicast_loopback = init.block_multicast_loopback;
  encode(head, writer);
  pair.save(writer);
  return pair.is_paced() ? 2 : version_of(head);
}

std::uint16_t write_body(const MemoryWindow& window, wire::ByteWriter& writer) {
  device::MwHead saved;
  saved.pd = window.pd->handle;
  saved.key = window.key;
  saved.posted_key = window.posted_key;
  saved.type = static_cast<std::uint8_t>(window.type);
  if (const MemoryRegion* region = window.region) {
    saved.region = region->handle;
    saved.qp = window.qp != nullptr ? window.qp->init().handle : 0;
    saved.address = reinterpret_cast<std::uintptr_t>(window.address);
    saved.length = window.length;
    saved.iova = window.iova;
    saved.access = window.access;
  }
  encode(saved, writer);
  return 1;
}

std::uint16_t write_body(const AddressHandle& ah, wire::ByteWriter& writer) {
  encode(device::AhHead{ah.pd()->handle, ah.attributes()}, writer);
  return 1;
}

}  // namespace

int Context::describe(std::vector<std::byte>* out, int* count) try {
  if (engine_.abandoned()) return ENODEV;
  if (!engine_.suspended()) return EBUSY;
  std::lock_guard objects(mutex_);
  Engine::Lock lock(engine_);
  engine_.suspension().wake_all();
  *count = 0;
  std::vector<std::byte> body;
  const auto record = [&](ObjectType type, Handle handle, auto&& write) {
    body.clear();
    wire::ByteWriter writer(&body);
    const std::uint16_t version = write(writer);
    device::put_record(out, type, handle, body, version);
    ++*count;
  };
  const auto record_all = [&](ObjectType type, const auto& objects_of_type) {
    for (const auto& [handle, object] : objects_of_type) {
      record(type, handle, [&, each = object.get()](wire::ByteWriter& writer) {
        return write_body(*each, writer);
      });
    }
  };
  const auto nothing = [](wire::ByteWriter&) -> std::uint16_t { return 1; };
  record(ObjectType::kContext, 0, [&](wire::ByteWriter& writer) -> std::uint16_t {
    ContextRecord saved;
    saved.origin_slot = origin_slot_;
    saved.next_handle = next_handle_;
    saved.guid = guid_;
    saved.max_mtu = max_mtu_;
    for (const port::Address& gid : engine_.lanes().gids()) {
      std::memcpy(saved.gids.emplace_back().raw, gid.bytes.data(), gid.bytes.size());
    }
    encode(saved, writer);
    return 1;
  });
  for (const auto& [handle, pd] : pds_) record(ObjectType::kPd, handle, nothing);
  for (const auto& [handle, xrcd] : xrcds_) record(ObjectType::kXrcd, handle, nothing);
  record_all(ObjectType::kMr, mrs_);
  record_all(ObjectType::kCq, cqs_);
  record_all(ObjectType::kSrq, srqs_);
  record_all(ObjectType::kQp, qps_);
  record_all(ObjectType::kMw, mws_);
  record_all(ObjectType::kAh, ahs_);
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int Context::restore(ObjectType type, RestoreCommand command, std::span<const std::byte> bytes,
                     device::Object** object) try {
  if (engine_.abandoned()) return ENODEV;
  Record record;
  if (!device::next_record(&bytes, &record) || !bytes.empty() || record.type != type) return EINVAL;
  std::lock_guard lock(mutex_);
  switch (type) {
    case ObjectType::kContext:
      return command == RestoreCommand::kCreate ? restore_context(record) : EINVAL;
    case ObjectType::kPd:
      return command == RestoreCommand::kCreate ? restore_pd(record, object) : EINVAL;
    case ObjectType::kMr: return restore_mr(command, record, object);
    case ObjectType::kCq: return restore_cq(command, record, object);
    case ObjectType::kXrcd:
      return command == RestoreCommand::kCreate ? restore_xrcd(record, object) : EINVAL;
    case ObjectType::kSrq: return restore_srq(command, record, object);
    case ObjectType::kAh:
      return command == RestoreCommand::kCreate ? restore_ah(record, object) : EINVAL;
    case ObjectType::kQp: return restore_qp(command, record, object);
    case ObjectType::kMw:
      return command == RestoreCommand::kCreate ? restore_mw(record, object) : EINVAL;
    default: return EINVAL;
  }
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

// A fresh RNIC takes the identity of the one that was described, and is Stopped until resume(). Its
// own slot and address stay its place on the wire.
int Context::restore_context(const Record& record) {
  ContextRecord context;
  if (record.handle != 0 || !parse(record.body, &context)) return EINVAL;
  if (!pds_.empty() || !cqs_.empty() || !xrcds_.empty() || restored_) return EBUSY;
  Engine::Lock lock(engine_);
  engine_.suspension().set_suspended(true);
  std::vector<port::Address> gids;
  for (const ibv_gid& gid : context.gids) {
    std::memcpy(gids.emplace_back().bytes.data(), gid.raw, sizeof gid.raw);
  }
  engine_.lanes().set_gids(gids);
  origin_slot_ = context.origin_slot;
  next_handle_ = context.next_handle;
  guid_ = context.guid;
  max_mtu_ = context.max_mtu;
  restored_ = true;
  return 0;
}

// 0 if an object may be restored under this handle. ENOENT: the context's record was not restored;
// EINVAL: no object of the image has this handle; EEXIST: it is in use.
template <typename Map>
int check_handle(bool restored, Handle handle, Handle next, const Map& objects) {
  if (!restored) return ENOENT;
  if (handle == 0 || handle >= next) return EINVAL;
  return objects.contains(handle) ? EEXIST : 0;
}

// *out gets the object with this handle; handle 0 leaves it alone. False: it was not restored yet.
template <typename Map, typename T>
bool find(const Map& objects, Handle handle, T** out) {
  if (handle == 0) return true;
  const auto at = objects.find(handle);
  if (at == objects.end()) return false;
  *out = at->second.get();
  return true;
}

int Context::restore_pd(const Record& record, device::Object** object) {
  if (!record.body.empty()) return EINVAL;
  if (const int error = check_handle(restored_, record.handle, next_handle_, pds_); error != 0) {
    return error;
  }
  auto pd = std::make_unique<ProtectionDomain>(record.handle);
  *object = pd.get();
  pds_.emplace(record.handle, std::move(pd));
  return 0;
}

int Context::restore_mr(RestoreCommand command, const Record& record, device::Object** object) {
  device::MrHead saved;
  if (!parse(record.body, &saved)) return EINVAL;
  if (command == RestoreCommand::kMrKeys) {
    auto* region = dynamic_cast<MemoryRegion*>(*object);
    if (region == nullptr) return EINVAL;
    Engine::Lock lock(engine_);
    if (region->key == saved.key) return 0;
    const std::uint32_t key = region->key;
    MemoryTable& table = engine_.objects().memory();
    table.remove(region);
    if (table.insert_with_key(region, saved.key)) return 0;
    table.insert_with_key(region, key);
    return EEXIST;
  }
  if (command != RestoreCommand::kCreate) return EINVAL;
  if (const int error = check_handle(restored_, record.handle, next_handle_, mrs_); error != 0) {
    return error;
  }
  const auto pd = pds_.find(saved.pd);
  if (pd == pds_.end()) return ENOENT;
  device::MrInit init;
  init.pd = pd->second.get();
  init.address = reinterpret_cast<void*>(saved.address);
  init.length = saved.length;
  init.iova = saved.iova;
  init.access = saved.access;
  device::Mr* mr = nullptr;
  const int error = saved.access == device::kNullRegion
                        ? insert_null_mr(pd->second.get(), record.handle, &mr)
                        : insert_mr(init, pd->second.get(), nullptr, record.handle, &mr);
  if (error == 0) *object = mr;
  return error;
}

int Context::restore_cq(RestoreCommand command, const Record& record, device::Object** object) {
  CqRecord saved;
  if (!parse(record.body, &saved)) return EINVAL;
  if (command == RestoreCommand::kRefill) {
    auto* cq = dynamic_cast<CompletionQueue*>(*object);
    return cq != nullptr && cq->restore(saved.contents) ? 0 : EINVAL;
  }
  if (command != RestoreCommand::kCreate) return EINVAL;
  if (const int error = check_handle(restored_, record.handle, next_handle_, cqs_); error != 0) {
    return error;
  }
  const device::CqInit init{static_cast<int>(saved.capacity), saved.timestamps, saved.timestamps,
                            saved.ignore_overrun};
  auto cq = std::make_unique<CompletionQueue>(engine_, sink_, record.handle, init);
  *object = cq.get();
  cqs_.emplace(record.handle, std::move(cq));
  return 0;
}

int Context::restore_xrcd(const Record& record, device::Object** object) {
  if (!record.body.empty()) return EINVAL;
  if (const int error = check_handle(restored_, record.handle, next_handle_, xrcds_); error != 0) {
    return error;
  }
  auto xrcd = std::make_unique<XrcDomain>(record.handle);
  *object = xrcd.get();
  xrcds_.emplace(record.handle, std::move(xrcd));
  return 0;
}

int Context::restore_srq(RestoreCommand command, const Record& record, device::Object** object) {
  SrqRecord saved;
  if (!parse(record.body, &saved)) return EINVAL;
  if (command == RestoreCommand::kRefill) {
    auto* srq = dynamic_cast<SharedReceiveQueue*>(*object);
    if (srq == nullptr) return EINVAL;
    wire::ByteReader in(saved.state);
    Engine::Lock lock(engine_);
    return srq->load(in) && in.remaining() == 0 ? 0 : EINVAL;
  }
  if (command != RestoreCommand::kCreate) return EINVAL;
  if (const int error = check_handle(restored_, record.handle, next_handle_, srqs_); error != 0) {
    return error;
  }
  SharedReceiveQueue::Init init;
  init.handle = record.handle;
  if (saved.pd == 0) return EINVAL;
  if (!find(pds_, saved.pd, &init.pd) || !find(xrcds_, saved.xrcd, &init.xrcd) ||
      !find(cqs_, saved.cq, &init.cq)) {
    return ENOENT;
  }
  init.number = saved.number;
  init.max_wr = saved.max_wr;
  init.max_sge = saved.max_sge;
  if (init.xrcd != nullptr) {
    Engine::Lock lock(engine_);
    if (engine_.objects().xrc_srq(init.number) != nullptr) return EEXIST;
  }
  SharedReceiveQueue* srq = nullptr;
  const int error = insert_srq(init, &srq);
  if (error == 0) *object = srq;
  return error;
}

int Context::restore_mw(const Record& record, device::Object** object) {
  device::MwHead saved;
  if (!parse(record.body, &saved)) return EINVAL;
  if (const int error = check_handle(restored_, record.handle, next_handle_, mws_); error != 0) {
    return error;
  }
  ProtectionDomain* pd = nullptr;
  MemoryRegion* region = nullptr;
  QueuePair* qp = nullptr;
  if (saved.pd == 0) return EINVAL;
  if (!find(pds_, saved.pd, &pd) || !find(mrs_, saved.region, &region) ||
      !find(qps_, saved.qp, &qp)) {
    return ENOENT;
  }
  const auto offset =
      region != nullptr ? saved.address - reinterpret_cast<std::uintptr_t>(region->address) : 0;
  if (region != nullptr && region->locate(region->iova + offset, saved.length) == nullptr) {
    return EINVAL;
  }
  MemoryWindow* window = nullptr;
  if (const int error =
          insert_mw(pd, static_cast<ibv_mw_type>(saved.type), &saved.key, record.handle, &window);
      error != 0) {
    return error;
  }
  *object = window;
  window->posted_key = saved.posted_key;
  if (region == nullptr) return 0;
  Engine::Lock lock(engine_);
  ++region->windows;
  window->region = region;
  window->qp = qp;
  window->address = region->address + offset;
  window->length = saved.length;
  window->iova = saved.iova;
  window->access = saved.access;
  return 0;
}

int Context::restore_ah(const Record& record, device::Object** object) {
  device::AhHead saved;
  if (!parse(record.body, &saved)) return EINVAL;
  if (const int error = check_handle(restored_, record.handle, next_handle_, ahs_); error != 0) {
    return error;
  }
  const auto pd = pds_.find(saved.pd);
  if (pd == pds_.end()) return ENOENT;
  device::Ah* ah = nullptr;
  const int error = insert_ah(pd->second.get(), saved.attributes, record.handle, &ah);
  if (error == 0) *object = ah;
  return error;
}

int Context::restore_qp(RestoreCommand command, const Record& record, device::Object** object) {
  QpRecord saved;
  if (!parse(record.body, &saved)) return EINVAL;
  if (command == RestoreCommand::kRefill) {
    auto* qp = dynamic_cast<QueuePair*>(*object);
    if (qp == nullptr || qp->qpn() != saved.virtual_qpn) return EINVAL;
    wire::ByteReader in(saved.state);
    Engine::Lock lock(engine_);
    return qp->load(in) ? 0 : EINVAL;
  }
  if (command != RestoreCommand::kCreate) return EINVAL;
  if (const int error = check_handle(restored_, record.handle, next_handle_, qps_); error != 0) {
    return error;
  }
  QueuePair::Init init;
  init.handle = record.handle;
  init.type = static_cast<ibv_qp_type>(saved.type);
  if (!find(pds_, saved.pd, &init.pd) || !find(cqs_, saved.send_cq, &init.send_cq) ||
      !find(cqs_, saved.recv_cq, &init.recv_cq) || !find(srqs_, saved.srq, &init.srq) ||
      !find(xrcds_, saved.xrcd, &init.xrcd)) {
    return ENOENT;
  }
  if (!QueuePair::supports(init.type) || !init.has_its_objects()) return EINVAL;
  init.cap = saved.cap;
  init.sq_sig_all = saved.sq_sig_all;
  init.block_multicast_loopback = saved.block_multicast_loopback;
  init.virtual_qpn = saved.virtual_qpn;
  const std::uint32_t index = port::index_of(saved.virtual_qpn);
  device::Qp* qp = nullptr;
  const int error = insert_qp(init, &index, &qp);
  if (error == 0) *object = qp;
  return error;
}

}  // namespace ferry::rnic
