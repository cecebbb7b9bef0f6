#include <chrono>
#include <climits>
#include <cstring>

#include "device/record.h"
#include "device/record_heads.h"
#include "ferry/verbs_ext.h"
#include "verbs/entry.h"
#include "verbs/objects.h"
#include "verbs/process.h"

namespace ferry::verbs {
namespace {

using device::ObjectType;
using device::RestoreCommand;

static_assert(sizeof(ibv_dump_record) == device::kRecordHeaderSize);
static_assert(static_cast<int>(ObjectType::kContext) == IBV_OBJECT_CONTEXT &&
              static_cast<int>(ObjectType::kPd) == IBV_OBJECT_PD &&
              static_cast<int>(ObjectType::kMr) == IBV_OBJECT_MR &&
              static_cast<int>(ObjectType::kCq) == IBV_OBJECT_CQ &&
              static_cast<int>(ObjectType::kQp) == IBV_OBJECT_QP &&
              static_cast<int>(ObjectType::kSrq) == IBV_OBJECT_SRQ &&
              static_cast<int>(ObjectType::kXrcd) == IBV_OBJECT_XRCD &&
              static_cast<int>(ObjectType::kMw) == IBV_OBJECT_MW &&
              static_cast<int>(ObjectType::kAh) == IBV_OBJECT_AH);
static_assert(static_cast<int>(RestoreCommand::kCreate) == IBV_RESTORE_CREATE &&
              static_cast<int>(RestoreCommand::kRefill) == IBV_RESTORE_REFILL &&
              static_cast<int>(RestoreCommand::kMrKeys) == IBV_RESTORE_MR_KEYS);

constexpr std::chrono::seconds kQuiesceLimit{5};  // as for a STOP that names no deadline

// Stops the context, and writes its description to `out` if `length` bytes are enough. 0 or errno;
// *bytes: the length of the description.
int dump(Context& context, int* count, void* out, std::size_t length, std::size_t* bytes) {
  if (int error = usable(context)) return error;
  // No move of the process begins while the context leaves the registry.
  agent::Registry::Change change(process().registry);
  if (!context.dumped) {
    std::uint32_t unacked = 0;
    context.device->prepare();
    if (int error = context.device->quiesce(kQuiesceLimit, &unacked)) return error;
    change.remove(context.device.get());
    context.dumped = true;
  }
  std::vector<std::byte> records;
  if (int error = context.device->describe(&records, count)) return error;
  if (records.size() > INT_MAX) return EFBIG;
  *bytes = records.size();
  if (records.size() <= length) std::memcpy(out, records.data(), records.size());
  return 0;
}

template <typename T>
T* restored(Context& context, std::uint32_t handle) {
  const auto found = context.restored.find(handle);
  return found == context.restored.end() ? nullptr : static_cast<T*>(found->second);
}

template <typename Head>
bool read_head(std::span<const std::byte> body, Head* out) {
  wire::ByteReader in(body);
  return device::parse(in, out);
}

// wrap() makes the struct for a restored device object. What the struct shows and the device object
// does not tell comes from the head of the object's record. 0 or errno.
int wrap(Context& context, device::Mr* object, std::span<const std::byte> body, Mr** out) {
  device::MrHead head;
  Pd* pd = read_head(body, &head) ? restored<Pd>(context, head.pd) : nullptr;
  if (!pd) return ENOENT;
  *out = wrap_mr(context, &pd->pd, object, reinterpret_cast<void*>(head.address), head.length);
  return 0;
}

int wrap(Context& context, device::Mw* object, std::span<const std::byte> body, Mw** out) {
  device::MwHead head;
  Pd* pd = read_head(body, &head) ? restored<Pd>(context, head.pd) : nullptr;
  if (!pd) return ENOENT;
  *out = wrap_mw(context, &pd->pd, object, static_cast<ibv_mw_type>(head.type));
  return 0;
}

int wrap(Context& context, device::Ah* object, std::span<const std::byte> body, Ah** out) {
  device::AhHead head;
  Pd* pd = read_head(body, &head) ? restored<Pd>(context, head.pd) : nullptr;
  if (!pd) return ENOENT;
  *out = wrap_ah(context, &pd->pd, object);
  return 0;
}

int wrap(Context& context, device::Srq* object, std::span<const std::byte> body, Srq** out) {
  device::SrqHead head;
  if (!read_head(body, &head)) return EINVAL;
  Pd* pd = restored<Pd>(context, head.pd);
  Xrcd* xrcd = restored<Xrcd>(context, head.xrcd);
  if (!pd || (head.xrcd && !xrcd)) return ENOENT;
  *out = wrap_srq(context, object, &pd->pd, xrcd, nullptr);
  return 0;
}

int wrap(Context& context, device::Qp* object, std::span<const std::byte> body, Qp** out) {
  device::QpHead head;
  if (!read_head(body, &head)) return EINVAL;
  Pd* pd = restored<Pd>(context, head.pd);
  Cq* send_cq = restored<Cq>(context, head.send_cq);
  Cq* recv_cq = restored<Cq>(context, head.recv_cq);
  Srq* srq = restored<Srq>(context, head.srq);
  Xrcd* xrcd = restored<Xrcd>(context, head.xrcd);
  if ((head.pd && !pd) || (head.send_cq && !send_cq) || (head.recv_cq && !recv_cq) ||
      (head.srq && !srq) || (head.xrcd && !xrcd)) {
    return ENOENT;
  }
  const ibv_qp_init_attr init{nullptr,
                              send_cq ? &send_cq->cq : nullptr,
                              recv_cq ? &recv_cq->cq : nullptr,
                              srq ? &srq->srq : nullptr,
                              head.cap,
                              static_cast<ibv_qp_type>(head.type),
                              head.sq_sig_all};
  *out = wrap_qp(context, object, pd ? &pd->pd : nullptr, xrcd, init);
  return 0;
}

// *out: our struct, which begins with the application's.
template <typename Shell, typename DeviceObject>
int wrap_as(Context& context, device::Object* made, std::span<const std::byte> body, void** out) {
  Shell* shell = nullptr;
  const int error = wrap(context, static_cast<DeviceObject*>(made), body, &shell);
  *out = shell;
  return error;
}

int create(Context& context, const device::Record& record, std::span<const std::byte> bytes,
           void** object) {
  device::Object* made = nullptr;
  auto* channel =
      static_cast<ibv_comp_channel*>(record.type == ObjectType::kCq ? *object : nullptr);
  if (channel && channel->context != context.application()) return EINVAL;
  if (int error = context.device->restore(record.type, RestoreCommand::kCreate, bytes, &made))
    return error;
  if (!made && record.type != ObjectType::kContext) return EOPNOTSUPP;
  void* shell = nullptr;
  int error = 0;
  switch (record.type) {
    case ObjectType::kContext: *object = context.application(); return 0;
    case ObjectType::kPd: shell = wrap_pd(context, static_cast<device::Pd*>(made)); break;
    case ObjectType::kXrcd: shell = wrap_xrcd(context, static_cast<device::Xrcd*>(made)); break;
    case ObjectType::kCq: {
      device::CqHead head;
      if (!read_head(record.body, &head)) {
        error = EINVAL;
        break;
      }
      Cq* cq = wrap_cq(context, static_cast<device::Cq*>(made), nullptr, channel);
      cq->timestamps = head.timestamps;
      shell = cq;
      break;
    }
    case ObjectType::kMr:
      error = wrap_as<Mr, device::Mr>(context, made, record.body, &shell);
      break;
    case ObjectType::kMw:
      error = wrap_as<Mw, device::Mw>(context, made, record.body, &shell);
      break;
    case ObjectType::kAh:
      error = wrap_as<Ah, device::Ah>(context, made, record.body, &shell);
      break;
    case ObjectType::kSrq:
      error = wrap_as<Srq, device::Srq>(context, made, record.body, &shell);
      break;
    case ObjectType::kQp:
      error = wrap_as<Qp, device::Qp>(context, made, record.body, &shell);
      break;
    default: error = EINVAL;
  }
  if (error) {
    context.device->destroy(made);
    return error;
  }
  context.restored[record.handle] = shell;
  *object = shell;
  return 0;
}

int refill(Context& context, const device::Record& record, std::span<const std::byte> bytes,
           void** object) {
  device::Object* target = nullptr;
  switch (record.type) {
    case ObjectType::kContext:
      context.restored.clear();
      context.device->resume(/*rollback=*/false);
      return 0;
    case ObjectType::kCq: target = static_cast<Cq*>(*object)->device; break;
    case ObjectType::kSrq: target = static_cast<Srq*>(*object)->device; break;
    case ObjectType::kQp: target = static_cast<Qp*>(*object)->device; break;
    default: return EINVAL;
  }
  if (int error = context.device->restore(record.type, RestoreCommand::kRefill, bytes, &target))
    return error;
  if (record.type == ObjectType::kQp) {
    auto* qp = static_cast<Qp*>(*object);
    qp->qp.state = qp->device->state();
  }
  return 0;
}

int give_keys(Context& context, const device::Record& record, std::span<const std::byte> bytes,
              void** object) {
  if (record.type != ObjectType::kMr) return EINVAL;
  auto* mr = static_cast<Mr*>(*object);
  device::Object* target = mr->device;
  if (int error = context.device->restore(record.type, RestoreCommand::kMrKeys, bytes, &target))
    return error;
  mr->mr.lkey = mr->device->lkey();
  mr->mr.rkey = mr->device->rkey();
  return 0;
}

int restore(Context& context, void** object, int type, int command,
            std::span<const std::byte> bytes) {
  if (int error = usable(context)) return error;
  if (context.dumped) return EINVAL;  // Stopped for good
  device::Record record;
  auto rest = bytes;
  if (!device::next_record(&rest, &record) || !rest.empty()) return EINVAL;
  if (static_cast<int>(record.type) != type) return EINVAL;
  std::lock_guard lock(context.restore_mutex);
  if (command == IBV_RESTORE_CREATE) return create(context, record, bytes, object);
  if (!*object) return EINVAL;
  if (command == IBV_RESTORE_REFILL) return refill(context, record, bytes, object);
  if (command == IBV_RESTORE_MR_KEYS) return give_keys(context, record, bytes, object);
  return EINVAL;
}

}  // namespace
}  // namespace ferry::verbs

using namespace ferry::verbs;

FERRY_EXPORT int ibv_dump_context(ibv_context* ctx, int* count, void* out, size_t length) {
  if (!ctx || !count || (!out && length)) return -EINVAL;
  Context* ours = context_of(ctx);
  if (!ours) return -EOPNOTSUPP;
  std::size_t bytes = 0;
  const int error = guarded([&] { return dump(*ours, count, out, length, &bytes); });
  return error ? -error : static_cast<int>(bytes);
}

FERRY_EXPORT int ibv_restore_object(ibv_context* ctx, void** object, int object_type, int cmd,
                                    void* args, size_t length) {
  if (!ctx || !object || !args) return EINVAL;
  Context* ours = context_of(ctx);
  if (!ours) return EOPNOTSUPP;
  return guarded([&] {
    return restore(*ours, object, object_type, cmd, {static_cast<const std::byte*>(args), length});
  });
}
