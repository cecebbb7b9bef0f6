#pragma once

#include <functional>
#include <vector>

namespace ferry::rootfs {

// False: there is no more.
using Source = std::function<bool(std::vector<std::byte>*)>;

// Brings the current folder to what an archive of Packer's says; as root and behind a chroot, which
// names and links in an archive of somebody else's do not leave. Throws Error.
void unpack(const Source& source);

}  // namespace ferry::rootfs
