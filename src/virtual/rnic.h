#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/movable.h"
#include "virtual/context.h"

namespace ferry::virt {

// A device of any kind, whose contexts stand behind virt::Context.
class Rnic final : public device::MovableRnic {
 public:
  // `watch`: a QP over which nothing goes for so long is idle, and leaves the device before a stop.
  explicit Rnic(std::unique_ptr<device::Rnic> inner,
                std::chrono::milliseconds watch = std::chrono::milliseconds(10))
      : inner_(std::move(inner)), watch_(watch) {}

  const std::string& name() const override { return inner_->name(); }
  const std::string& netdev() const override { return inner_->netdev(); }
  std::uint64_t guid() const override { return inner_->guid(); }
  int index() const override { return inner_->index(); }
  int query(device::PortFacts* out) override { return inner_->query(out); }
  void follow(const std::string& name) override { inner_->follow(name); }
  std::string name_here() const override { return inner_->name_here(); }
  std::vector<ibv_gid> addresses() const override { return inner_->addresses(); }
  std::unique_ptr<device::MovableContext> open_movable(device::EventSink& sink,
                                                       device::MoveSink& moves,
                                                       int* error) override {
    return Context::open(inner_, sink, moves, watch_, error);
  }

 private:
  const std::shared_ptr<device::Rnic> inner_;
  const std::chrono::milliseconds watch_;
};

}  // namespace ferry::virt
