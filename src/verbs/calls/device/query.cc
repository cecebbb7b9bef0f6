#include <endian.h>

#include <algorithm>
#include <cstring>

#include "verbs/entry.h"
#include "verbs/objects.h"
#include "verbs/stock.h"

namespace ferry::verbs {
namespace {

// What ibv_query_port() wrote before the struct grew: up to and including `flags`.
constexpr std::size_t kCompatPortSize = 48;
static_assert(offsetof(ibv_port_attr, flags) + sizeof(ibv_port_attr::flags) == kCompatPortSize);

// ibv_query_gid_type() speaks the numbers of sysfs.
enum GidTypeSysfs { kGidIbOrRoceV1 = 0, kGidRoceV2 = 1 };

// Callers name the size of the struct that they were compiled with.
template <typename T>
void copy_out(const T& value, void* out, std::size_t size) {
  if (size > sizeof value) {
    std::memset(static_cast<std::byte*>(out) + sizeof value, 0, size - sizeof value);
  }
  std::memcpy(out, &value, std::min(size, sizeof value));
}

int fetch_port(Context& context, std::uint8_t number, ibv_port_attr* out) {
  if (int error = usable(context)) return error;
  return context.device->query_port(number, out);
}

int fetch_gid(Context& context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* out) {
  if (int error = usable(context)) return error;
  if (port > 0xff) return EINVAL;
  return context.device->query_gid(static_cast<std::uint8_t>(port), index, out);
}

// For the older calls: an empty entry of the table is a GID of zeros.
int fetch_gid_or_zeros(Context& context, std::uint32_t port, std::uint32_t index,
                       ibv_gid_entry* out) {
  const int error = fetch_gid(context, port, index, out);
  if (error != ENODATA) return error;
  *out = {};
  return 0;
}

// Returns the number of entries written, or a negative errno value, as the kernel's call behind the
// stock function.
ssize_t gid_table(Context& context, std::byte* out, std::size_t max_entries,
                  std::size_t entry_size) {
  if (int error = usable(context)) return -error;
  ibv_device_attr_ex device{};
  if (int error = context.device->query_device(&device)) return -error;
  std::size_t count = 0;
  for (unsigned number = 1; number <= device.orig_attr.phys_port_cnt; ++number) {
    ibv_port_attr port{};
    if (int error = fetch_port(context, static_cast<std::uint8_t>(number), &port)) return -error;
    for (int i = 0; i < port.gid_tbl_len; ++i) {
      ibv_gid_entry entry{};
      if (fetch_gid(context, number, static_cast<std::uint32_t>(i), &entry)) continue;  // empty
      if (count == max_entries) return -EINVAL;
      copy_out(entry, out + count++ * entry_size, entry_size);
    }
  }
  return static_cast<ssize_t>(count);
}

// Takes out capabilities that a device may have and our contexts do not offer (docs/verbs.md): a program would ask for
// them in vain.
void leave_out_what_contexts_lack(ibv_device_attr_ex* device) {
  device->tso_caps = {};
  device->rss_caps = {};
  device->tm_caps = {};
  device->max_wq_type_rq = 0;
  device->raw_packet_caps = 0;
  device->max_dm_size = 0;
}

}  // namespace

int query_port(ibv_context* context, std::uint8_t number, ibv_port_attr* out, std::size_t size) {
  if (!out) return EINVAL;
  return guarded([&] {
    ibv_port_attr port{};
    if (int e = fetch_port(*context_of(context), number, &port)) return e;
    copy_out(port, out, size);
    return 0;
  });
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* out, std::size_t size) {
  if (!out || (input && input->comp_mask)) return EINVAL;
  if (size < offsetof(ibv_device_attr_ex, comp_mask) + sizeof out->comp_mask) return EINVAL;
  return guarded([&] {
    Context& ours = *context_of(context);
    if (int e = usable(ours)) return e;
    ibv_device_attr_ex device{};
    if (int e = ours.device->query_device(&device)) return e;
    leave_out_what_contexts_lack(&device);
    copy_out(device, out, size);
    return 0;
  });
}

// The ticks stand in tv_nsec alone, as drivers of hardware have them.
int query_rt_values(ibv_context* context, ibv_values_ex* values) {
  Context& ours = *context_of(context);
  if (int error = usable(ours)) return error;
  if (!values || (values->comp_mask & ~static_cast<std::uint32_t>(IBV_VALUES_MASK_RAW_CLOCK)))
    return EINVAL;
  if (values->comp_mask) {
    const std::uint64_t ticks = ours.device->clock();
    if (!ticks) return EOPNOTSUPP;
    values->raw_clock.tv_sec = 0;
    values->raw_clock.tv_nsec = static_cast<long>(ticks);
  }
  return 0;
}

}  // namespace ferry::verbs

using namespace ferry::verbs;

FERRY_EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* out) {
  if (!context || !out) return EINVAL;
  if (!context_of(context)) return FERRY_STOCK(ibv_query_device, "IBVERBS_1.1")(context, out);
  ibv_device_attr_ex device{};
  if (int error = query_device_ex(context, nullptr, &device, sizeof device)) return error;
  *out = device.orig_attr;
  return 0;
}

FERRY_EXPORT int ibv_query_port(ibv_context* context, uint8_t number, _compat_ibv_port_attr* out) {
  if (!context || !out) return EINVAL;
  if (!context_of(context)) return FERRY_STOCK(ibv_query_port, "IBVERBS_1.1")(context, number, out);
  return query_port(context, number, reinterpret_cast<ibv_port_attr*>(out), kCompatPortSize);
}

FERRY_EXPORT int ibv_query_gid(ibv_context* context, uint8_t number, int index, ibv_gid* out) {
  if (!context || !out) return minus_one_or_errno(EINVAL);
  Context* ours = context_of(context);
  if (!ours) return FERRY_STOCK(ibv_query_gid, "IBVERBS_1.1")(context, number, index, out);
  return minus_one_or_errno(guarded([&] {
    ibv_gid_entry entry{};
    if (index < 0) return EINVAL;
    if (int e = fetch_gid_or_zeros(*ours, number, static_cast<uint32_t>(index), &entry)) return e;
    *out = entry.gid;
    return 0;
  }));
}

FERRY_EXPORT int ibv_query_gid_type(ibv_context* context, uint8_t number, unsigned index,
                                    int* type) {
  if (!context || !type) return minus_one_or_errno(EINVAL);
  Context* ours = context_of(context);
  if (!ours)
    return FERRY_STOCK(ibv_query_gid_type, "IBVERBS_PRIVATE_34")(context, number, index, type);
  return minus_one_or_errno(guarded([&] {
    ibv_gid_entry entry{};
    if (int e = fetch_gid_or_zeros(*ours, number, index, &entry)) return e;
    *type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? kGidRoceV2 : kGidIbOrRoceV1;
    return 0;
  }));
}

FERRY_EXPORT int _ibv_query_gid_ex(ibv_context* context, uint32_t number, uint32_t index,
                                   ibv_gid_entry* out, uint32_t flags, size_t entry_size) {
  if (!context || !out) return EINVAL;
  Context* ours = context_of(context);
  if (!ours) {
    return FERRY_STOCK(_ibv_query_gid_ex, "IBVERBS_1.11")(context, number, index, out, flags,
                                                          entry_size);
  }
  if (flags) return EOPNOTSUPP;
  return guarded([&] {
    ibv_gid_entry entry{};
    if (int e = fetch_gid(*ours, number, index, &entry)) return e;
    copy_out(entry, out, entry_size);
    return 0;
  });
}

FERRY_EXPORT ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries,
                                          size_t max_entries, uint32_t flags, size_t entry_size) {
  if (!context || !entries) return -EINVAL;
  Context* ours = context_of(context);
  if (!ours) {
    return FERRY_STOCK(_ibv_query_gid_table, "IBVERBS_1.11")(context, entries, max_entries, flags,
                                                             entry_size);
  }
  if (flags) return -EOPNOTSUPP;
  ssize_t count = 0;
  const int error = guarded([&] {
    count = gid_table(*ours, reinterpret_cast<std::byte*>(entries), max_entries, entry_size);
    return 0;
  });
  return error ? -error : count;
}

FERRY_EXPORT int ibv_query_pkey(ibv_context* context, uint8_t number, int index, __be16* out) {
  if (!context || !out) return minus_one_or_errno(EINVAL);
  Context* ours = context_of(context);
  if (!ours) return FERRY_STOCK(ibv_query_pkey, "IBVERBS_1.1")(context, number, index, out);
  return minus_one_or_errno(guarded([&] {
    if (int e = usable(*ours)) return e;
    uint16_t key = 0;
    if (int e = ours->device->query_pkey(number, index, &key)) return e;
    *out = htobe16(key);
    return 0;
  }));
}

FERRY_EXPORT int ibv_get_pkey_index(ibv_context* context, uint8_t number, __be16 pkey) {
  if (!context) return minus_one_or_errno(EINVAL);
  Context* ours = context_of(context);
  if (!ours) return FERRY_STOCK(ibv_get_pkey_index, "IBVERBS_1.5")(context, number, pkey);
  __be16 found;
  for (int i = 0; ibv_query_pkey(context, number, i, &found) == 0; ++i) {
    if (found == pkey) return i;
  }
  return -1;
}
