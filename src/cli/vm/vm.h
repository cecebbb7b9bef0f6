#pragma once

#include <string>
#include <vector>

// Virtual machines that Ferry can move (docs/vm.md).
namespace ferry::cli {

// Becomes the QEMU that the command starts, which goes on as `name`. `nics`: ids of devices that moves unplug. Throws
// Failure.
[[noreturn]] void vm_run(const std::string& name, const std::vector<std::string>& nics,
                         const std::vector<std::string>& command);

// Lists those of this host.
int vm_ps(bool json);

}  // namespace ferry::cli
