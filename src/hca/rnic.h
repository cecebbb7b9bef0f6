#pragma once

#include <infiniband/verbs.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "device/objects.h"

// A device of the kernel (mlx5_0, rxe0) behind the boundary of device/objects.h. This room uses
// libibverbs like any program: in libferry.so the functions that the room calls pass objects which
// are not Ferry's on to the stock library. The room does not know that programs move.
namespace ferry::hca {

class Rnic final : public device::Rnic {
 public:
  // Opens the device of this name, as the stock library finds it now. Null with errno.
  using OpenNamed = std::function<ibv_context*(const std::string& name)>;

  // `device` is of a device list of the stock library, which is not freed while the Rnic lives.
  Rnic(ibv_device* device, OpenNamed open_named);

  const std::string& name() const override { return name_; }
  const std::string& netdev() const override { return netdev_; }
  std::uint64_t guid() const override { return guid_; }
  int index() const override { return index_; }
  std::unique_ptr<device::Context> open(device::EventSink& sink, int* error) override;
  void follow(const std::string& name) override;
  std::string name_here() const override;

 private:
  const OpenNamed open_named_;
  mutable std::mutex mutex_;  // guards the two below
  ibv_device* device_;        // null after follow()
  std::string name_here_;     // as of follow()
  const std::string name_, netdev_;
  const std::uint64_t guid_;
  const int index_;
};

}  // namespace ferry::hca
