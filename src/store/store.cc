#include "store/store.h"

#include <fmt/core.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/failure.h"
#include "store/files.h"
#include "store/verdict.h"

namespace ferry::store {
namespace {

constexpr std::string_view kPartial = ".partial";

Failure no_checkpoint(const std::string& directory, const char* what, const std::string& id) {
  return Failure(fmt::format("{0} has no {1} '{2}'; see: ferry checkpoints {0}",
                             printable(directory), what, printable(id)));
}

}  // namespace

std::string partial_path(const std::string& directory, const std::string& id) {
  return fmt::format("{}/{}{}", directory, id, kPartial);
}

std::vector<Store::Entry> Store::list() const {
  std::vector<Entry> complete, others;
  for (const auto& name : names_in(directory_)) {
    if (is_id(name)) {
      try {
        complete.push_back({name, Checkpoint(directory_ + "/" + name).manifest(), {}});
      } catch (const Failure& failure) {
        others.push_back({name, std::nullopt, failure.what()});
      }
    } else if (name.ends_with(kPartial)) {
      const std::string id = name.substr(0, name.size() - kPartial.size());
      if (!is_id(id)) continue;
      others.push_back(
          {id, std::nullopt, printable(directory_ + "/" + name) + " is not complete", true});
    }
  }
  std::stable_sort(complete.begin(), complete.end(), [](const Entry& a, const Entry& b) {
    return a.manifest->made < b.manifest->made;
  });
  complete.insert(complete.end(), others.begin(), others.end());
  return complete;
}

Checkpoint Store::open(const std::string& id) const {
  const std::string path = directory_ + "/" + id;
  std::error_code error;
  if (!is_id(id) || !std::filesystem::is_directory(path, error)) {
    throw no_checkpoint(directory_, "complete checkpoint", id);
  }
  return Checkpoint(path);
}

std::string Store::latest() const {
  std::string id;
  for (const auto& entry : list()) {
    if (entry.manifest) {
      id = entry.id;
    } else if (!entry.is_partial) {
      throw Failure(fmt::format(
          "{}; which checkpoint is the latest is not known: give one with --checkpoint, or delete "
          "that one: ferry checkpoints {} rm {}",
          entry.problem, printable(directory_), entry.id));
    }
  }
  if (id.empty()) throw Failure(fmt::format("no complete checkpoint in {}", printable(directory_)));
  return id;
}

void Store::remove(const std::string& id) const {
  const std::string path = directory_ + "/" + id, partial = partial_path(directory_, id);
  std::error_code error;
  const bool is_complete = is_id(id) && std::filesystem::is_directory(path, error);
  if (!is_complete && !(is_id(id) && std::filesystem::is_directory(partial, error))) {
    throw no_checkpoint(directory_, "checkpoint", id);
  }
  if (std::filesystem::is_directory(partial, error)) {
    const UniqueFd folder = open_folder(partial);
    if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) {
      throw Failure(printable(partial) + " is being written; wait until that has ended");
    }
  }
  std::filesystem::remove_all(partial, error);
  if (!error && is_complete) {
    if (::rename(path.c_str(), partial.c_str()) != 0) {
      throw cannot("cannot delete " + printable(path));
    }
    sync(open_folder(directory_), directory_);
    std::filesystem::remove_all(partial, error);
    std::filesystem::remove(path + kRestarted, error);
    forget_verdicts(directory_, id);
  }
  if (error) {
    throw Failure(fmt::format("cannot delete {}: {}", printable(partial), error.message()));
  }
}

}  // namespace ferry::store
