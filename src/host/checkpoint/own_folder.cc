#include "host/checkpoint/own_folder.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/failure.h"

namespace ferry::host {
namespace {

struct stat facts_of_file(const std::filesystem::path& path) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) == 0) return facts;
  const int error = errno;
  throw Failure(fmt::format("cannot read {}: {}", printable(path), error_text(error)));
}

bool is_own(const struct stat& facts) {
  return facts.st_uid == 0 && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

Failure not_own(const std::filesystem::path& path) {
  return Failure(fmt::format(
      "{} can be written by others than root, who could change what is restored from there; chown "
      "root and chmod go-w what is yours",
      printable(path)));
}

}  // namespace

std::string need_own_folder(const std::string& path) {
  std::error_code error;
  const auto folder = std::filesystem::canonical(path, error);
  if (error) throw Failure(fmt::format("cannot read {}: {}", printable(path), error.message()));
  if (!is_own(facts_of_file(folder))) throw not_own(folder);
  for (auto above = folder; above.has_relative_path();) {
    above = above.parent_path();
    // In a folder with the sticky bit each may rename his own only.
    const auto facts = facts_of_file(above);
    const bool keeps = facts.st_uid == 0 && (facts.st_mode & S_ISVTX) != 0;
    if (!keeps && !is_own(facts)) throw not_own(above);
  }
  return folder;
}

std::string need_own_contents(const std::string& path) {
  const std::string folder = need_own_folder(path);
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (!is_own(facts_of_file(file.path()))) throw not_own(file.path());
  }
  return folder;
}

store::Checkpoint open_checkpoint(const store::Store& store, const std::string& directory,
                                  const std::string& id, const std::string& key) {
  const std::string folder = directory + "/" + id;
  if (store::is_id(id) && std::filesystem::is_directory(folder)) need_own_contents(folder);
  auto checkpoint = store.open(id);
  if (!key.empty()) checkpoint.unlock(store::ContentKey(key));
  checkpoint.need_readable();
  return checkpoint;
}

}  // namespace ferry::host
