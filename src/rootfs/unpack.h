#pragma once

#include <functional>
#include <vector>

namespace ferry::rootfs {

// Gives the next piece. False: there is no more.
using Source = std::function<bool(std::vector<std::byte>*)>;

// Makes the current folder what an archive of Packer's says. Runs as root and behind a chroot,
// which names and links in somebody else's archive do not leave. Throws Error.
void unpack(const Source& source);

}  // namespace ferry::rootfs
