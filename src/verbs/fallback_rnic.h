#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "device/movable.h"

namespace ferry::verbs {

// A device of the kernel, and after a move to a host where the program goes on without such a device (`ferry move
// --to-device ferry0`) one of Ferry's own. The facts are those of the device with which the program began.
class FallbackRnic final : public device::Rnic {
 public:
  // Finds one of Ferry's own devices by its name. Null: there is none.
  using Find = std::function<std::unique_ptr<device::MovableRnic>(const std::string& name)>;
  FallbackRnic(std::unique_ptr<device::Rnic> kernel, Find find)
      : kernel_(std::move(kernel)), find_(std::move(find)) {}

  const std::string& name() const override { return kernel_->name(); }
  std::string name_here() const override { return now()->name_here(); }
  const std::string& netdev() const override { return kernel_->netdev(); }
  std::uint64_t guid() const override { return kernel_->guid(); }
  int index() const override { return kernel_->index(); }
  int query(device::PortFacts* out) override { return now()->query(out); }
  std::vector<ibv_gid> addresses() const override { return now()->addresses(); }
  std::unique_ptr<device::Context> open(device::EventSink& sink, int* error) override {
    return now()->open(sink, error);
  }
  void follow(const std::string& name) override;

 private:
  std::shared_ptr<device::Rnic> now() const {
    std::lock_guard lock(mutex_);
    return own_ != nullptr ? own_ : kernel_;
  }

  const std::shared_ptr<device::Rnic> kernel_;
  const Find find_;
  mutable std::mutex mutex_;           // guards own_
  std::shared_ptr<device::Rnic> own_;  // null: the program is on a device of the kernel
};

}  // namespace ferry::verbs
