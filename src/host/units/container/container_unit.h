#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "host/units/container/container.h"

namespace ferry::host {

// A container, which its runtime knows how to move.
class ContainerUnit : public Unit {
 public:
  ContainerUnit(Runtime& runtime, Container container);

  std::string kind() const override { return runtime_.kind(); }
  std::string details() const override { return container_.json; }
  std::string netns() const override { return container_.netns; }
  std::string instance() const override { return container_.instance; }
  bool rdma_moves() const override { return container_.rdma_moves; }
  std::string log() const override { return container_.log; }
  std::optional<Rootfs> copied_rootfs() const override;
  void switch_network(const std::string& command) const override;
  void stage(State state, pid_t root, const std::string& to) const override;
  void publish() const override;
  void correct(State from, State state, pid_t root, const std::string& to) const override;

  void need_mover(uid_t user) const override;
  void want(const Extras& extras) override;
  void need_movable() const override;
  std::set<std::string> needed_files() const override;
  void leave() const override;
  std::string dump(CriuRunner& criu, CriuRunner::Dump dump, std::atomic<pid_t>* pid) const override;
  void left() const override;

  std::string restore(CriuRunner& criu, CriuRunner::Restore restore,
                      std::atomic<pid_t>* pid) const override;
  bool end(int status) const override;
  void forget() const override;

 private:
  Runtime& runtime_;
  Container container_;
};

}  // namespace ferry::host
