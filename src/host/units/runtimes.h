#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "host/units/lab/container.h"

namespace ferry::host {

// The runtimes of this host, whose containers move: that of the network hook, and runc. podman is
// none of these (podman/podman.h).
class Runtimes {
 public:
  // `runc`: null when this host has none.
  Runtimes(std::string host, Runtime& hooked, Runtime* runc = nullptr)
      : host_(std::move(host)), hooked_(hooked), runc_(runc) {}

  // That of the network hook.
  Runtime& hooked() const { return hooked_; }
  // By Runtime::runtime(). Throws Failure when there is none of that name.
  Runtime& named(const std::string& runtime) const;
  // Whose containers have instances like this.
  Runtime& of_instance(const std::string& instance) const;

  std::vector<Container> all_containers() const;
  std::optional<Container> container_of(pid_t pid) const;

 private:
  const std::string host_;
  Runtime& hooked_;
  Runtime* const runc_;
};

}  // namespace ferry::host
