#include "host/units/container/container_unit.h"

#include <fmt/core.h>

#include "base/failure.h"
#include "host/units/obstacles.h"

namespace ferry::host {
namespace {

// The state's name in records.
std::string text_of(Unit::State state) {
  switch (state) {
    case Unit::State::kRestoring: return "restoring";
    case Unit::State::kRunning: return "running";
    default: return "moved";
  }
}

}  // namespace

ContainerUnit::ContainerUnit(Runtime& runtime, Container container)
    : Unit(container.name, container.pid), runtime_(runtime), container_(std::move(container)) {}

std::optional<Rootfs> ContainerUnit::copied_rootfs() const {
  return runtime_.copied_rootfs(container_);
}

void ContainerUnit::switch_network(const std::string& command) const {
  runtime_.switch_network(command, container_.instance);
}

void ContainerUnit::stage(State state, pid_t root, const std::string& to) const {
  runtime_.stage_state(container_, text_of(state), root, to);
}

void ContainerUnit::publish() const {
  runtime_.publish_state(container_);
}

void ContainerUnit::correct(State from, State state, pid_t root, const std::string& to) const {
  if (container_.state == text_of(from)) runtime_.set_state(container_, text_of(state), root, to);
}

void ContainerUnit::need_mover(uid_t user) const {
  Unit::need_mover(user);
  if (user == 0 || !runtime_.is_only_roots()) return;
  throw Failure(fmt::format("'{}' is a container of {}'s, which only root may move", name(),
                            runtime_.kind()));
}

void ContainerUnit::want(const Extras& extras) {
  if (!extras.rootfs && extras.stdio.empty()) return;
  container_ = runtime_.with(container_, extras);
}

void ContainerUnit::need_movable() const {
  if (const auto obstacle = find_obstacle(root(), OuterStreams::kRuntimes); !obstacle.empty()) {
    throw Failure(obstacle);
  }
}

std::set<std::string> ContainerUnit::needed_files() const {
  auto files = host::needed_files(root());
  // The container's own files are made at the destination.
  std::erase_if(files, [this](const std::string& file) {
    return file.starts_with(container_.folder + "/") || file == container_.log;
  });
  return files;
}

void ContainerUnit::leave() const {
  runtime_.leave(container_);
}

std::string ContainerUnit::dump(CriuRunner& criu, CriuRunner::Dump dump,
                                std::atomic<pid_t>* pid) const {
  dump.netns = container_.netns;
  return runtime_.dump(criu, dump, container_, pid);
}

void ContainerUnit::left() const {
  runtime_.left(container_);
}

std::string ContainerUnit::restore(CriuRunner& criu, CriuRunner::Restore restore,
                                   std::atomic<pid_t>* pid) const {
  restore.netns = container_.netns;
  return runtime_.restore(criu, restore, container_, pid);
}

bool ContainerUnit::end(int status) const {
  return runtime_.end(container_, status);
}

void ContainerUnit::forget() const {
  runtime_.forget(container_);
}

}  // namespace ferry::host
