#include "migrate/host.h"

#include <fmt/format.h>

#include <algorithm>

#include <iterator>

#include "migrate/failure.h"
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

}  // namespace ferry::migrate
