#include "base/companion.h"

#include "base/failure.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

constexpr char kLibraryFolder[] = "lib/ferry";

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

}  // namespace

fs::path folder_of_program() {
  return fs::read_symlink("/proc/self/exe").parent_path();
}

fs::path prefix() {
  const auto above = folder_of_program().parent_path();
  return folder_of_program() == above.parent_path() / kLibraryFolder ? above.parent_path() : above;
}

std::string companion(const std::string& name) {
  const auto installed = prefix() / kLibraryFolder / name;
  return is_there(installed) ? installed : folder_of_program() / name;
}

std::string need_companion(const std::string& name) {
  const std::string path = companion(name);
  if (is_there(path)) return path;
  throw Failure(name + " is neither in " + (prefix() / kLibraryFolder).string() + " nor in " +
                folder_of_program().string() + "; build or install Ferry again");
}

}  // namespace ferry
