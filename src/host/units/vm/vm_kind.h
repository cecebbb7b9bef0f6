#pragma once

#include <memory>
#include <optional>
#include <string>

#include "host/image/image_room.h"
#include "host/units/vm/vm_unit.h"

namespace ferry::host {

class VmKind : public UnitKind {
 public:
  VmKind(VmHost host, const ImageRoom& room) : host_(std::move(host)), room_(room) {}

  std::string kind() const override { return VmUnit::kKind; }
  bool needs_criu() const override { return false; }
  bool has(const std::string& name) override;
  std::shared_ptr<Unit> named(const std::string& host, const std::string& name) override;
  // A QEMU, or a process that it has started.
  std::shared_ptr<Unit> of_process(const std::string& host, pid_t pid) override;
  std::optional<UnitName> name_of(pid_t pid) override;

  void check_arrival(const std::string& host, const std::string& name,
                     const std::string& details) override;
  bool name_is_free(const std::string& name) override { return !has(name); }
  std::shared_ptr<Unit> arrive(const std::string& name, const std::string& details,
                               const std::string& source) override;

  bool has_made(const std::string& instance) const override;
  std::shared_ptr<Unit> known(const std::string& name, const std::string& instance) override;
  void clear_up_arrivals() override;

 private:
  std::optional<MachineRecord> machine_of(pid_t pid) const;

  const VmHost host_;
  const ImageRoom& room_;
};

}  // namespace ferry::host
