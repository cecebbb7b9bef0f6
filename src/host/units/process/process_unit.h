#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "host/units/unit.h"

// Programs that nobody runs in a container: on the network of the host, with its process ids.
namespace ferry::host {

class ProcessUnit : public Unit {
 public:
  using Unit::Unit;

  std::string kind() const override;
  void want(const Extras& extras) override;
  void need_movable() const override;
  std::set<std::string> needed_files() const override;
  std::optional<StdioFile> redirects_to(uid_t user) const override;
  std::string dump(CriuRunner& criu, CriuRunner::Dump dump, std::atomic<pid_t>* pid) const override;
  std::string restore(CriuRunner& criu, CriuRunner::Restore restore,
                      std::atomic<pid_t>* pid) const override;
  void settle(pid_t root) const override;

 private:
  std::string stdio_;
};

class ProcessKind : public UnitKind {
 public:
  std::string kind() const override;
  std::shared_ptr<Unit> named(const std::string& host, const std::string& name) override;
  std::shared_ptr<Unit> of_process(const std::string& host, pid_t pid) override;
  std::shared_ptr<Unit> arrive(const std::string& name, const std::string& details,
                               const std::string& source) override;
  std::shared_ptr<Unit> known(const std::string& name, const std::string& instance) override;
};

}  // namespace ferry::host
