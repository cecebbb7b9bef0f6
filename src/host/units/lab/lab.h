#pragma once

#include <chrono>
#include <string>

#include "host/units/container/container.h"

// Containers that are known by their records alone (lab/lab writes them): the host's network hook
// makes their networks, and CRIU dumps and restores their processes.
namespace ferry::host {

class LabRuntime : public Runtime {
 public:
  // `hook` is the network hook's path; empty when this host has none.
  LabRuntime(std::string directory, std::string hook);

  std::string kind() const override { return "lab"; }
  bool has(const std::string& name) override { return find(name).has_value(); }
  Container describe(const std::string& host, const std::string& name) override;
  void check_arrival(const std::string& host, const std::string& name,
                     const std::string& source_json) override;
  Container receive(const std::string& name, const std::string& source_json) override;
  // Every instance counts as the lab's: the other kinds are asked before.
  bool has_made(const std::string& instance) const override { return !instance.empty(); }
  void switch_network(const std::string& command, const std::string& instance) override;

 private:
  std::string hook_;
};

}  // namespace ferry::host
