#include "hca/rnic.h"

#include <endian.h>

#include <cerrno>
#include <fstream>
#include <new>
#include <utility>

#include "hca/context.h"

namespace ferry::hca {
namespace {

// The network interface of port 1's first GID; empty on InfiniBand, which has none.
std::string netdev_of(const std::string& device) {
  std::string netdev;
  std::ifstream file("/sys/class/infiniband/" + device + "/ports/1/gid_attrs/ndevs/0");
  std::getline(file, netdev);
  return netdev;
}

}  // namespace

Rnic::Rnic(ibv_device* device, OpenNamed open_named)
    : open_named_(std::move(open_named)),
      device_(device),
      name_(ibv_get_device_name(device)),
      netdev_(netdev_of(name_)),
      guid_(be64toh(ibv_get_device_guid(device))),
      index_(ibv_get_device_index(device)) {}

// Drops device_, which is from a list of another host, or from an older list of this one: the device
// of this name may have another number now.
void Rnic::follow(const std::string& name) {
  std::lock_guard lock(mutex_);
  device_ = nullptr;
  name_here_ = name;
}

std::string Rnic::name_here() const {
  std::lock_guard lock(mutex_);
  return device_ != nullptr ? name_ : name_here_;
}

std::unique_ptr<device::Context> Rnic::open(device::EventSink& /*sink*/, int* error) {
  const StockErrno stock_errno;
  ibv_device* device = nullptr;
  std::string name;
  {
    std::lock_guard lock(mutex_);
    device = device_;
    name = name_here_;
  }
  ibv_context* context = device != nullptr ? ibv_open_device(device) : open_named_(name);
  if (context == nullptr) {
    *error = errno != 0 ? errno : EIO;
    return nullptr;
  }
  try {
    return std::make_unique<Context>(context);
  } catch (const std::bad_alloc&) {
    ibv_close_device(context);
    *error = ENOMEM;
    return nullptr;
  }
}

}  // namespace ferry::hca
