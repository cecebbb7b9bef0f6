#include "migrate/host.h"

#include <fmt/format.h>

#include <algorithm>

#include "migrate/process_tree.h"

namespace ferry::migrate {

std::uint64_t Host::available() const {
  const std::uint64_t free = available_memory();
  return memory_limit == 0 ? free : std::min(free, memory_limit);
}

std::string Host::images_of(std::uint64_t move_id) const {
  return fmt::format("{}/{:016x}", image_directory, move_id);
}

}  // namespace ferry::migrate
