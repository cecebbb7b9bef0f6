#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>

#include "device/objects.h"

// A device of the kernel (mlx5_0, rxe0) behind the boundary of device/objects.h. This room is a
// plain program of libibverbs: in libferry.so the functions that it calls pass objects which are not
// Ferry's on to the stock library. It does not know that programs move.
namespace ferry::hca {

class Rnic final : public device::Rnic {
 public:
  // `device` is one of the stock library's list, which is not freed while this lives.
  explicit Rnic(ibv_device* device);

  const std::string& name() const override { return name_; }
  const std::string& netdev() const override { return netdev_; }
  std::uint64_t guid() const override { return guid_; }
  int index() const override { return index_; }
  std::unique_ptr<device::Context> open(device::EventSink& sink, int* error) override;

 private:
  ibv_device* const device_;
  const std::string name_, netdev_;
  const std::uint64_t guid_;
  const int index_;
};

}  // namespace ferry::hca
