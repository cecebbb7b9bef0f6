// ferry-oci-hook: the OCI hook of containers with Ferry's RDMA devices (`ferry cdi generate`). It
// decides whether the image can have them. All that it changes is to take mounts away, in the
// container's own mount namespace: what is left is in the container's config, so that a restored
// container has it too.
//
//   createContainer  in the container's namespaces, before pivot_root, with all privileges; the
//                    folder of the root filesystem is the working directory. Decides. The reason,
//                    if there is one, goes to the container's stderr.
//   startContainer   in the container, without privileges: a terminal exists only now, and gets the
//                    reason then. (stderr is out of reach: runc's init is not dumpable where it has
//                    joined a namespace, and podman's always has.)
//
// stdin: the container's state (runtime-spec). Statically linked: startContainer runs in any image.
// Exit status: 1, and the container does not start, only where it would be broken if it did.

#include <fcntl.h>
#include <linux/mount.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "oci/layout.h"
#include "oci/root.h"
#include "oci/verdict.h"

namespace ferry::oci {
namespace {

using nlohmann::json;

constexpr std::size_t kMostPreload = 1u << 16;  // bytes

constexpr char kOwnPreload[] =
    "the image has an /etc/ld.so.preload of its own; to have both, set "
    "LD_PRELOAD=/usr/lib/ferry/libferry.so";

// Detaches what is mounted at a path of the container, if anything is.
void unmount(const Root& root, std::string_view path) {
  const UniqueFd mounted = root.open(path, O_PATH);
  if (!mounted) return;
  const std::string name = "/proc/self/fd/" + std::to_string(mounted.get());
  if (::umount2(name.c_str(), MNT_DETACH) != 0 && errno != EINVAL) {
    throw std::runtime_error("cannot unmount " + std::string(path) + ": " + std::strerror(errno));
  }
}

// The /etc/ld.so.preload of the root filesystem without what is mounted into that.
std::string own_preload(const Root& root) {
  const UniqueFd here = root.open("/", O_PATH | O_DIRECTORY);
  UniqueFd image(static_cast<int>(::syscall(SYS_open_tree, here.get(), "",
                                            AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)));
  if (!image) return {};
  return Root(std::move(image)).read(kPreload, kMostPreload).value_or("");
}

bool has_terminal(const json& state) {
  std::ifstream in(state.value("bundle", "") + "/config.json");
  const json config = json::parse(in, nullptr, false);
  return config.is_object() && config.value("process", json::object()).value("terminal", false);
}

void say(const UniqueFd& where, const std::string& reason) {
  const std::string line = "ferry: no RDMA in this container: " + reason + "\n";
  (void)!::write(where.get(), line.data(), line.size());
}

// The hook's parent becomes the container's first process.
UniqueFd stderr_of_container() {
  const UniqueFd parent(static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0)));
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_getfd, parent.get(), STDERR_FILENO, 0)));
}

void create_container(const json& state) {
  const Root root = Root::at(".");
  Verdict verdict = judge(root);
  if (verdict.reason.empty() && names_libraries(own_preload(root))) verdict.reason = kOwnPreload;
  if (!verdict.host_verbs) unmount(root, kHostFolder);
  if (verdict.reason.empty()) return;
  unmount(root, kPreload);
  std::cerr << verdict.reason << '\n';  // for the runtime's log
  if (!has_terminal(state)) say(stderr_of_container(), verdict.reason);
}

void start_container() {
  const Root root = Root::at("/");
  const std::string preload = root.read(kPreload, kMostPreload).value_or("");
  if (preload.starts_with(kLibrary)) return;
  const UniqueFd terminal(::open("/dev/console", O_WRONLY | O_NOCTTY | O_CLOEXEC));
  if (!terminal || ::isatty(terminal.get()) == 0) return;
  const Verdict verdict = judge(root);
  say(terminal, verdict.reason.empty() ? kOwnPreload : verdict.reason);
}

int run(const std::string& stage) {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const json state = json::parse(text, nullptr, false);
  if (!state.is_object()) throw std::runtime_error("stdin has no state of a container");
  if (stage == "createContainer") {
    create_container(state);
  } else if (stage == "startContainer") {
    start_container();
  } else {
    throw std::runtime_error("unknown stage '" + stage + "': createContainer or startContainer");
  }
  return 0;
}

}  // namespace
}  // namespace ferry::oci

int main(int argc, char** argv) {
  try {
    return ferry::oci::run(argc == 2 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::cerr << "ferry-oci-hook: " << error.what() << '\n';
    return 1;
  }
}
