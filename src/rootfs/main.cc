// ferry-rootfs: packs or unpacks a container's root filesystem, at the two sides of its move. The
// container writes to the files while they are packed, and an archive comes from another host:
// therefore ferry-rootfs has the folder as its root.
//
//   ferry-rootfs pack|unpack FOLDER    talks to ferryd on descriptor 3 (frames.h)

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rootfs/frames.h"
#include "rootfs/pack.h"
#include "rootfs/unpack.h"

namespace {

using namespace ferry::rootfs;

void pack() {
  Packer packer;
  while (await_message(kSocket)) {
    std::set<std::string> anyway;
    std::string name;
    for (std::vector<std::byte> frame; receive_frame(kSocket, &frame);) {
      for (const std::byte byte : frame) {
        if (byte != std::byte{0}) {
          name += static_cast<char>(byte);
        } else {
          anyway.insert(std::exchange(name, {}));
        }
      }
    }
    packer.pass(anyway, [](std::span<const std::byte> bytes) { send_frame(kSocket, bytes); });
    end_message(kSocket);
  }
}

void take() {
  while (await_message(kSocket)) {
    bool has_ended = false;
    unpack([&](std::vector<std::byte>* frame) {
      has_ended = has_ended || !receive_frame(kSocket, frame);
      return !has_ended;
    });
    end_message(kSocket);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  if (what != "pack" && what != "unpack") {
    std::cerr << "usage: ferry-rootfs pack|unpack FOLDER\n";
    return EINVAL;
  }
  try {
    ::umask(0);
    if (::chroot(argv[2]) != 0 || ::chdir("/") != 0) {
      throw Error(std::string("cannot enter ") + argv[2], errno);
    }
    if (what == "pack")
      pack();
    else
      take();
    return 0;
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return error.code;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EIO;
  }
}
