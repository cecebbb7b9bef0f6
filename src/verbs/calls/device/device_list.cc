#include <endian.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <span>

#include "hca/rnic.h"
#include "verbs/chosen_devices.h"
#include "verbs/devices.h"
#include "verbs/entry.h"
#include "verbs/fallback_rnic.h"
#include "verbs/kernel/device_name.h"
#include "verbs/kernel/virtual_files.h"
#include "verbs/objects.h"
#include "verbs/restart.h"
#include "verbs/stock.h"
#include "virtual/rnic.h"

namespace ferry::verbs {
namespace {

struct Known {
  std::mutex mutex;
  // Never freed: applications keep ibv_device pointers beyond ibv_free_device_list().
  std::deque<Device> devices;
  std::uint32_t freezes = 0;  // ControlBlock::freezes when rnic_of() last discovered the devices
};

Known& known() {
  static Known* const all = new Known;
  return *all;
}

thread_local bool stock_only = false;

constexpr unsigned kFirstNumber = 500;

template <std::size_t N>
void print_to(char (&out)[N], const char* format, const char* name) {
  std::snprintf(out, N, format, name);
}

void describe(Device& d, const device::Rnic& rnic) {
  d.device.node_type = IBV_NODE_CA;
  d.device.transport_type = IBV_TRANSPORT_IB;
  const char* name = rnic.name().c_str();
  // The number comes from the name, so that all processes of a host number alike, and is far from
  // the kernel's numbers.
  d.number = kFirstNumber + static_cast<unsigned>(std::atoi(name + strcspn(name, "0123456789")));
  const std::string node = "uverbs" + std::to_string(d.number);
  print_to(d.device.name, "%.60s", name);
  print_to(d.device.dev_name, "%.60s", node.c_str());
  print_to(d.device.dev_path, "/sys/class/infiniband_verbs/%.60s", node.c_str());
  print_to(d.device.ibdev_path, "/sys/class/infiniband/%.60s", name);
}

void describe(Device& d, ibv_device* kernel) {
  d.device = *kernel;
  d.kernel = kernel;
}

// A new device, which `from` describes.
template <typename From>
Device& add_device(Known& all, std::unique_ptr<device::MovableRnic> rnic, From& from) {
  auto latest = std::make_unique<std::shared_ptr<device::MovableRnic>>(std::move(rnic));
  Device& d = all.devices.emplace_back();
  describe(d, from);
  d.rnic = latest.release();
  return d;
}

// Ferry's own device of this name, which is `rnic` from now on.
Device& device_for(Known& all, std::unique_ptr<device::MovableRnic> rnic) {
  for (Device& d : all.devices) {
    if (!d.kernel && rnic->name() == d.device.name) {
      *d.rnic = std::move(rnic);  // open contexts keep theirs
      return d;
    }
  }
  const device::Rnic& from = *rnic;
  return add_device(all, std::move(rnic), from);
}

Device* find_kernel_device(Known& all, const ibv_device* kernel) {
  const auto found = std::find_if(all.devices.begin(), all.devices.end(),
                                  [&](const Device& d) { return d.kernel == kernel; });
  return found == all.devices.end() ? nullptr : &*found;
}

// Opens the stock library's device of this name. Null with errno. An open context keeps its device alive when the
// device list is gone.
ibv_context* open_stock(const std::string& name) {
  const auto list_devices = FERRY_STOCK(ibv_get_device_list, "IBVERBS_1.1");
  const auto free_list = FERRY_STOCK(ibv_free_device_list, "IBVERBS_1.1");
  int count = 0;
  ibv_device** list = nullptr;
  if (list_devices) {
    SystemFilesOnly guard;
    list = list_devices(&count);
  }
  errno = ENODEV;
  if (!list) return nullptr;
  ibv_device** const end = list + count;
  ibv_device** const found = std::find_if(
      list, end, [&](const ibv_device* device) { return kernel_name_of(*device) == name; });
  ibv_context* context = found != end ? ibv_open_device(*found) : nullptr;
  const int error = errno;
  free_list(list);
  errno = error;
  return context;
}

// The device that stands for `kernel`, a device of the stock library's list. A device that was unplugged and plugged in
// again is another one, as in the stock library. *kept: the device is new, and that list must not be freed.
Device& device_for(Known& all, ibv_device* kernel, bool* kept) {
  {
    std::lock_guard lock(all.mutex);
    if (Device* d = find_kernel_device(all, kernel)) return *d;
  }
  // No lock: hca::Rnic calls functions of this file.
  auto rnic = std::make_unique<virt::Rnic>(
      std::make_unique<FallbackRnic>(std::make_unique<hca::Rnic>(kernel, open_stock), find_rnic));
  std::lock_guard lock(all.mutex);
  if (Device* d = find_kernel_device(all, kernel)) return *d;  // another thread made it
  Device& d = add_device(all, std::move(rnic), kernel);
  *kept = true;
  return d;
}

void complain_once(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> told;
  std::lock_guard lock(mutex);
  if (!told.insert(name).second) return;
  std::fprintf(stderr,
               "ferry: FERRY_DEVICE names '%s', and there is no such RDMA device here; see: ferry "
               "doctor\n",
               name.c_str());
}

// The devices that FERRY_DEVICE names. *kept: one of them is new from the stock library's list,
// which must not be freed.
std::vector<ibv_device*> chosen_devices(const std::vector<std::string>& names,
                                        std::span<ibv_device* const> stock, bool* kept) {
  auto rnics = chosen_rnics();
  std::vector<ibv_device*> devices;
  Known& all = known();
  for (const std::string& name : names) {
    const auto own = std::find_if(rnics.begin(), rnics.end(),
                                  [&](const auto& r) { return r && r->name() == name; });
    if (own != rnics.end()) {
      std::lock_guard lock(all.mutex);
      devices.push_back(&device_for(all, std::move(*own)).device);
      continue;
    }
    const auto found = std::find_if(stock.begin(), stock.end(),
                                    [&](const ibv_device* d) { return d->name == name; });
    if (found == stock.end()) {
      complain_once(name);
      continue;
    }
    devices.push_back(&device_for(all, *found, kept).device);
  }
  return devices;
}

// A list of ours has, in front of its first element, the stock library's list, which is freed with it; null if a new
// device of ours stands for a device of that list: then that list is never freed. 0 or errno.
int make_list(ibv_device*** out, int* count) {
  int stock_count = 0;
  ibv_device** stock_list = nullptr;
  if (const auto next = FERRY_STOCK(ibv_get_device_list, "IBVERBS_1.1")) {
    SystemFilesOnly guard;
    stock_list = next(&stock_count);
    if (!stock_list) stock_count = 0;  // no kernel support for RDMA: ours are the only ones
  }
  std::vector<ibv_device*> ours;
  bool kept = false;
  const int error = guarded([&] {
    if (stock_only) return 0;
    if (const auto names = chosen_names(); !names.empty()) {
      ours = chosen_devices(names, {stock_list, static_cast<std::size_t>(stock_count)}, &kept);
      stock_count = 0;
      return 0;
    }
    Known& all = known();
    std::lock_guard lock(all.mutex);
    for (auto& rnic : chosen_rnics()) ours.push_back(&device_for(all, std::move(rnic)).device);
    return 0;
  });
  // Our failure must not hide the stock library's devices.
  if (error) ours.clear();
  const std::size_t total = ours.size() + static_cast<std::size_t>(stock_count);
  auto** list = static_cast<ibv_device**>(std::calloc(total + 2, sizeof(ibv_device*)));
  if (!list) {
    if (stock_list && !kept) FERRY_STOCK(ibv_free_device_list, "IBVERBS_1.1")(stock_list);
    return ENOMEM;
  }
  list[0] = kept ? nullptr : reinterpret_cast<ibv_device*>(stock_list);
  std::copy(ours.begin(), ours.end(), list + 1);
  std::copy(stock_list, stock_list + stock_count, list + 1 + ours.size());
  *out = list + 1;
  *count = static_cast<int>(total);
  return 0;
}

}  // namespace

StockDevicesOnly::StockDevicesOnly() {
  stock_only = true;
}
StockDevicesOnly::~StockDevicesOnly() {
  stock_only = false;
}

Device* device_of(ibv_device* device) {
  Known& all = known();
  std::lock_guard lock(all.mutex);
  for (Device& d : all.devices) {
    if (&d.device == device) return &d;
  }
  return nullptr;
}

// Discovers the devices again after a restore: on another host they have other addresses.
std::shared_ptr<device::MovableRnic> rnic_of(const Device& device) {
  Known& all = known();
  std::lock_guard lock(all.mutex);
  const auto freezes = std::atomic_ref<std::uint32_t>(control_block.freezes).load();
  if (freezes != all.freezes) {
    for (auto& rnic : chosen_rnics()) device_for(all, std::move(rnic));
    all.freezes = freezes;
  }
  return *device.rnic;
}

void lock_devices() {
  known().mutex.lock();
}
void unlock_devices() {
  known().mutex.unlock();
}

void visit_own_devices(const std::function<void(const Device&, device::Rnic&)>& visit) {
  Known& all = known();
  std::lock_guard lock(all.mutex);
  if (all.devices.empty()) {
    for (auto& rnic : chosen_rnics()) device_for(all, std::move(rnic));
  }
  for (const Device& d : all.devices) {
    if (!d.kernel) visit(d, **d.rnic);
  }
}

void visit_kernel_devices(const std::function<void(device::Rnic&)>& visit) {
  Known& all = known();
  std::lock_guard lock(all.mutex);
  for (const Device& d : all.devices) {
    if (d.kernel) visit(**d.rnic);
  }
}

}  // namespace ferry::verbs

using namespace ferry::verbs;

FERRY_EXPORT ibv_device** ibv_get_device_list(int* num_devices) {
  ibv_device** list = nullptr;
  int count = 0;
  const int error = make_list(&list, &count);
  if (num_devices) *num_devices = count;
  return pointer_or_errno(error, list);
}

FERRY_EXPORT void ibv_free_device_list(ibv_device** list) {
  if (!list) return;
  auto** stock_list = reinterpret_cast<ibv_device**>(list[-1]);
  if (stock_list) FERRY_STOCK(ibv_free_device_list, "IBVERBS_1.1")(stock_list);
  std::free(list - 1);
}

// `name` has the same place in every ibv_device.
FERRY_EXPORT const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

FERRY_EXPORT __be64 ibv_get_device_guid(ibv_device* device) {
  if (Device* ours = device_of(device)) return htobe64(rnic_of(*ours)->guid());
  return FERRY_STOCK(ibv_get_device_guid, "IBVERBS_1.1")(device);
}

FERRY_EXPORT int ibv_get_device_index(ibv_device* device) {
  if (Device* ours = device_of(device)) return rnic_of(*ours)->index();
  return FERRY_STOCK(ibv_get_device_index, "IBVERBS_1.9")(device);
}
