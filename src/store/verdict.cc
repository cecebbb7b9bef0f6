#include "store/verdict.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>

#include "base/failure.h"
#include "store/files.h"
#include "store/manifest.h"
#include "store/store.h"

namespace ferry::store {
namespace {

constexpr char kOfRestart[] = ".restart-", kDecided[] = ".goes-on";

bool is_there(const UniqueFd& folder, const std::string& name, const std::string& path) {
  if (::faccessat(folder.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) return true;
  if (errno == ENOENT) return false;
  throw cannot("cannot look at " + printable(path));
}

// False: there is none.
bool take_away(const UniqueFd& folder, const std::string& name, const std::string& path) {
  if (::unlinkat(folder.get(), name.c_str(), 0) == 0) return true;
  if (errno == ENOENT) return false;
  const Failure failure = cannot("cannot delete " + printable(path));
  if (!is_there(folder, name, path))
    return false;  // which a file system that cannot be written does not say
  throw failure;
}

// False: there is none.
bool move_name(const UniqueFd& folder, const std::string& name, const std::string& other,
               const std::string& path) {
  if (::renameat(folder.get(), name.c_str(), folder.get(), other.c_str()) == 0) return true;
  if (errno == ENOENT) return false;
  throw cannot("cannot rename " + printable(path));
}

std::string random_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace

Verdict::Verdict(const std::string& directory, const std::string& id, std::uint64_t attempt)
    : directory_(directory),
      id_(need_id(id)),
      undecided_(fmt::format("{}{}{:016x}", id, kOfRestart, attempt)),
      decided_(undecided_ + kDecided),
      folder_(open_folder(directory)) {}

void Verdict::open() const {
  forget_verdicts(directory_, id_);
  sync(make_file(folder_, path(undecided_), undecided_), path(undecided_));
  sync(folder_, directory_);
}

bool Verdict::go_on() const {
  // NFS may say that the file is not there for a rename whose first answer was lost.
  if (!move_name(folder_, undecided_, decided_, path(undecided_)) &&
      !is_there(folder_, decided_, path(decided_)))
    return false;
  sync(folder_, directory_);
  return true;
}

bool Verdict::goes_on() const {
  if (!take_away(folder_, undecided_, path(undecided_)))
    return is_there(folder_, decided_, path(decided_));
  sync(folder_, directory_);
  return false;
}

void Verdict::forget() const {
  take_away(folder_, undecided_, path(undecided_));
  take_away(folder_, decided_, path(decided_));
}

void forget_verdicts(const std::string& directory, const std::string& id) {
  const UniqueFd folder = open_folder(directory);
  for (const auto& name : names_in(directory)) {
    if (name.starts_with(id + kOfRestart)) take_away(folder, name, directory + "/" + name);
  }
}

Completion::Completion(const std::string& directory, const std::string& id)
    : directory_(directory), id_(need_id(id)), folder_(open_folder(directory)) {}

bool Completion::is_complete() const {
  // Under this name too it can be listed and deleted, should this process end here.
  const std::string given_up = random_id();
  const auto name_of = [](const std::string& id) { return partial_path(".", id); };
  if (!move_name(folder_, name_of(id_), name_of(given_up), partial_path(directory_, id_))) {
    if (!is_there(folder_, id_, directory_ + "/" + id_)) return false;
    sync(folder_, directory_);  // its writer may be about to
    return true;
  }
  sync(folder_, directory_);
  std::error_code ignored;  // others may still write there
  std::filesystem::remove_all(partial_path(directory_, given_up), ignored);
  return false;
}

}  // namespace ferry::store
