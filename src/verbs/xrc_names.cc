#include "verbs/xrc_names.h"

#include <algorithm>

namespace ferry::verbs {

bool XrcNames::have_locked(const std::string& device, const struct stat& file) const {
  return std::any_of(names_.begin(), names_.end(), [&](const Name& name) {
    return name.file_system == file.st_dev && name.inode == file.st_ino && name.device == device;
  });
}

bool XrcNames::enter(const XrcDomain& domain, const std::string& device, const struct stat& file) {
  std::lock_guard lock(mutex_);
  if (have_locked(device, file)) return false;
  names_.push_back({&domain, device, file.st_dev, file.st_ino});
  return true;
}

bool XrcNames::have(const std::string& device, const struct stat& file) {
  std::lock_guard lock(mutex_);
  return have_locked(device, file);
}

void XrcNames::leave(const XrcDomain& domain) {
  std::lock_guard lock(mutex_);
  std::erase_if(names_, [&](const Name& name) { return name.domain == &domain; });
}

}  // namespace ferry::verbs
