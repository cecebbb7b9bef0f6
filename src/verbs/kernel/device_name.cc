#include "verbs/kernel/device_name.h"

#include <fstream>

#include "verbs/kernel/virtual_files.h"

namespace ferry::verbs {

std::string kernel_name_of(const ibv_device& device, const std::string& sysfs) {
  const SystemFilesOnly guard;
  std::ifstream file(sysfs + "/" + device.dev_name + "/ibdev");
  std::string name;
  return std::getline(file, name) ? name : device.name;
}

}  // namespace ferry::verbs
