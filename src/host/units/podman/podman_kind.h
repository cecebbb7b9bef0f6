#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "host/peers/this_host.h"
#include "host/units/podman/podman_unit.h"

namespace ferry::host {

// The containers that podman runs for root.
class PodmanKind : public UnitKind {
 public:
  // `command`: podman, in PATH or by path. The notes (podman_notes.h) are in the state directory.
  // `host` is stopping before the destructor.
  PodmanKind(std::string command, const ThisHost& host);

  std::string kind() const override { return kPodman; }
  bool has(const std::string& name) override;
  std::shared_ptr<Unit> named(const std::string& host, const std::string& name) override;
  std::shared_ptr<Unit> of_process(const std::string& host, pid_t pid) override;
  std::optional<UnitName> name_of(pid_t pid) override;

  void check_arrival(const std::string& host, const std::string& name,
                     const std::string& details) override;
  bool name_is_free(const std::string& name) override;
  std::shared_ptr<Unit> arrive(const std::string& name, const std::string& details,
                               const std::string& source) override;

  bool has_made(const std::string& instance) const override;
  std::shared_ptr<Unit> known(const std::string& name, const std::string& instance) override;
  void clear_up_arrivals() override;

 private:
  std::shared_ptr<Unit> unit_of(const std::string& host, PodmanContainer container);

  const ThisHost& host_;
  const Podman podman_;
  const PodmanNotes notes_;
  PodmanCleaner cleaner_;
  const PodmanHere here_;
  std::mutex mutex_;
  std::set<std::string> known_;  // tokens of moves that are taken up again
};

}  // namespace ferry::host
