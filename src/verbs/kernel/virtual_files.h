#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

// The files that the kernel would show for our devices: made up when somebody looks.
//
//   /sys/class/infiniband/DEVICE/                the device, with ports/1/ below it
//   /sys/class/infiniband/DEVICE/device          a link to the network interface's own device, if
//                                                it has one (PCI ids, numa_node, local_cpus)
//   /sys/class/infiniband_verbs/uverbsN/         N is 500 and more: the kernel counts from 0
//   /sys/class/misc/rdma_cm/
//   /dev/infiniband/uverbsN, /dev/infiniband/rdma_cm     character devices
//
// The files of counters/ and hw_counters/ count what this process did.
namespace ferry::verbs {

enum class PathKind {
  kNotOurs,    // leave the path to the system
  kMissing,    // below something of ours, and there is no such file
  kFile,       // with `text`
  kDirectory,  // with `entries`
  kLink,       // to `text`
  kDevice,     // a character device, `number`
  kReal,       // the system's file `text` is meant: behind a link, or reached by ".."
};

struct VirtualEntry {
  std::string name;
  PathKind kind;
};

struct VirtualFile {
  PathKind kind = PathKind::kNotOurs;
  std::string text;
  std::vector<VirtualEntry> entries;
  bool shared = false;  // the system may have a directory of this name, too
  dev_t number = 0;
};

// Whether look_up() needs to be asked. Cheap; `path` may be null.
bool may_be_virtual(const char* path);
// With `follow`, a link itself is kReal and not kLink.
VirtualFile look_up(std::string_view path, bool follow);

// Whether the path is that of /dev/infiniband/rdma_cm.
bool is_rdma_cm(std::string_view path);
// The device number of the one that is Ferry's.
dev_t rdma_cm_number();

// `path` without "//", "." and "..". It must be absolute.
std::string normal_path(std::string_view path);

// While a SystemFilesOnly lives, this thread sees the system's files only: the stock library must not find our
// devices, for which it has no driver.
class SystemFilesOnly {
 public:
  SystemFilesOnly();
  ~SystemFilesOnly();
  SystemFilesOnly(const SystemFilesOnly&) = delete;
  SystemFilesOnly& operator=(const SystemFilesOnly&) = delete;
};

}  // namespace ferry::verbs
