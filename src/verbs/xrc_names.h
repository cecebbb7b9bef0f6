#pragma once

#include <sys/stat.h>

#include <mutex>
#include <string>
#include <vector>

namespace ferry::verbs {

struct XrcDomain;

// The files that name XRC domains of this process, of devices whose domains contexts do not share: a file names a
// domain of one context only. Nobody waits for a context with the mutex held.
class XrcNames {
 public:
  // From now on the file names `domain`, of the device with this name. False: it names another domain of the device.
  // Throws std::bad_alloc.
  bool enter(const XrcDomain& domain, const std::string& device, const struct stat& file);
  // Whether the file names a domain of the device.
  bool have(const std::string& device, const struct stat& file);
  // The domain has no name any more, if it had one.
  void leave(const XrcDomain& domain);

 private:
  struct Name {
    const XrcDomain* domain;
    std::string device;
    dev_t file_system;
    ino_t inode;
  };
  // With mutex_.
  bool have_locked(const std::string& device, const struct stat& file) const;

  std::mutex mutex_;
  std::vector<Name> names_;
};

}  // namespace ferry::verbs
