#include "base/kept_library.h"

#include <sys/stat.h>

#include "base/build_id.h"

namespace ferry {
namespace {

bool is_roots_alone(const std::string& path, mode_t type) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && (status.st_mode & S_IFMT) == type &&
         status.st_uid == 0 && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

std::string kept_library(const std::string& library, const std::string& folder) {
  const std::string id = build_id_of(library);
  if (id.empty()) return library;
  const std::string copy = folder + "/" + id, file = copy + "/libferry.so";
  const bool is_safe = is_roots_alone(folder, S_IFDIR) && is_roots_alone(copy, S_IFDIR) &&
                       is_roots_alone(file, S_IFREG);
  return is_safe ? file : library;
}

bool is_kept_library(const std::string& file) {
  return file.starts_with(std::string(kKeptLibraries) + "/");
}

}  // namespace ferry
