#include "migrate/host.h"

#include <fmt/core.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <iterator>

#include "base/failure.h"
#include "migrate/process_tree.h"
#include "migrate/runtimes/runc.h"

namespace ferry::migrate {

std::uint64_t Host::available() const {
  const std::uint64_t free = available_memory();
  return memory_limit == 0 ? free : std::min(free, memory_limit);
}

std::string Host::images_of(std::uint64_t move_id) const {
  return fmt::format("{}/{:016x}", image_directory, move_id);
}

Containers& Host::runtime(const std::string& wanted) const {
  if (wanted.empty()) return *containers;
  if (runc != nullptr && wanted == runc->runtime()) return *runc;
  throw Failure(fmt::format("the ferryd of {} moves no containers of {}", name, printable(wanted)));
}

Containers& Host::runtime_of(const std::string& instance) const {
  return runc != nullptr && Runc::has_made(instance) ? *runc : *containers;
}

std::vector<Container> Host::all_containers() const {
  auto all = containers->all();
  if (runc != nullptr) std::ranges::move(runc->all(), std::back_inserter(all));
  return all;
}

std::optional<Container> Host::container_of(pid_t pid) const {
  auto found = containers->of_process(pid);
  return found || runc == nullptr ? found : runc->of_process(pid);
}

void Host::need_room_for_images(std::uint64_t bytes) const {
  constexpr std::uint64_t kBeside = 1 << 20;  // all that is not memory
  struct statvfs room {};
  if (::statvfs(image_directory.c_str(), &room) != 0) return;  // who writes there will see
  const std::uint64_t free = std::uint64_t{room.f_bavail} * room.f_frsize;
  if (free >= bytes + kBeside) return;
  throw Failure(
      fmt::format("not enough room in {} on {}: {} MiB needed, {} MiB free; make some, or give "
                  "another --image-dir",
                  image_directory, name, (bytes + kBeside) >> 20, free >> 20));
}

}  // namespace ferry::migrate
