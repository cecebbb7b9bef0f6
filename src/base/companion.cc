#include "base/companion.h"

#include <fmt/core.h>

#include "base/failure.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

}  // namespace

fs::path folder_of_program() {
  return fs::read_symlink("/proc/self/exe").parent_path();
}

std::string companion(const std::string& name) {
  const auto here = folder_of_program();
  const auto installed = here.parent_path() / "lib/ferry" / name;
  return is_there(installed) ? installed : here / name;
}

std::string need_companion(const std::string& name) {
  const std::string path = companion(name);
  if (is_there(path)) return path;
  const auto here = folder_of_program();
  throw Failure(fmt::format("{} is neither in {} nor in {}; build or install Ferry again", name,
                            (here.parent_path() / "lib/ferry").string(), here.string()));
}

}  // namespace ferry
