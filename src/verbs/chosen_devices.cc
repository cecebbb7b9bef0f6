#include "verbs/chosen_devices.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "verbs/devices.h"

namespace ferry::verbs {

std::vector<std::string> chosen_names() {
  std::vector<std::string> names;
  const char* list = ::secure_getenv("FERRY_DEVICE");
  for (std::string_view rest = list ? list : ""; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find(','));
    const bool again = std::find(names.begin(), names.end(), name) != names.end();
    if (!name.empty() && !again) names.emplace_back(name);
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
  }
  return names;
}

std::vector<std::unique_ptr<device::MovableRnic>> chosen_rnics() {
  auto rnics = discover_rnics();
  const auto names = chosen_names();
  if (names.empty()) return rnics;
  std::erase_if(rnics, [&](const auto& rnic) {
    return std::find(names.begin(), names.end(), rnic->name()) == names.end();
  });
  return rnics;
}

void say_opened(const device::Rnic& rnic, bool of_kernel) {
  const char* wanted = ::secure_getenv("FERRY_VERBOSE");
  if (!wanted || std::string_view(wanted) != "on") return;
  std::fprintf(stderr, "ferry: process %d opens %s, %s%s\n", ::getpid(), rnic.name().c_str(),
               of_kernel ? "a device of the kernel" : "Ferry's own device on ",
               of_kernel ? "" : rnic.netdev().c_str());
}

}  // namespace ferry::verbs
