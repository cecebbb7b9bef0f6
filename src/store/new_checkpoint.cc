#include "store/new_checkpoint.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <set>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "base/failure.h"
#include "store/digest.h"
#include "store/files.h"
#include "store/sealed_stream.h"
#include "store/store.h"
#include "store/time_text.h"

namespace ferry::store {
namespace {

constexpr int kLooks = 50;
constexpr std::chrono::milliseconds kBetweenLooks{20};

// Later than all that are in the store, whatever the clock says.
Time time_after(const std::vector<Store::Entry>& stored) {
  auto time = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  for (const auto& entry : stored) {
    const auto made = entry.manifest ? parse_time(entry.manifest->made) : std::nullopt;
    if (made && *made >= time) time = *made + std::chrono::milliseconds(1);
  }
  return time;
}

// Those that another host has written may be on another file system.
void need_shards(const UniqueFd& folder, const std::string& path, const Program& program,
                 std::set<std::string>* names) {
  for (const auto& shard : program.shards) {
    struct stat facts {};
    const bool is_there =
        ::fstatat(folder.get(), shard.file.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0;
    if (names->insert(shard.file).second && is_there && S_ISREG(facts.st_mode) &&
        static_cast<std::uint64_t>(facts.st_size) == shard.stored)
      continue;
    throw Failure(fmt::format("{}/{} of '{}', which {} has written, is not there as it was written",
                              printable(path), shard.file, printable(program.name),
                              printable(program.host)));
  }
}

// A ferryd of another version, or a hostile one, may have written what anybody can read.
void need_sealed(const UniqueFd& folder, const std::string& path, const Program& program) {
  for (const auto& shard : program.shards) {
    const std::string where = path + "/" + shard.file;
    const UniqueFd file = open_file(folder, where, shard.file);
    std::array<std::byte, 64> begin;
    if (begins_sealed(std::span(begin).first(read_some(file, begin, where)))) continue;
    throw Failure(fmt::format(
        "{} of '{}' is not encrypted: the ferryd of {}, which has written it, does not do so",
        printable(where), printable(program.name), printable(program.host)));
  }
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

}  // namespace

NewCheckpoint::NewCheckpoint(std::string directory, const std::string& id,
                             const std::optional<EncryptTo>& encryption)
    : directory_(std::move(directory)), id_(need_id(id)), path_(partial_path(directory_, id)) {
  if (::mkdir(path_.c_str(), 0700) != 0) throw cannot("cannot make " + printable(path_));
  folder_ = open_folder(path_);
  // Until the process ends, whoever deletes checkpoints leaves this one alone: Store::remove().
  if (::flock(folder_.get(), LOCK_EX | LOCK_NB) != 0)
    throw cannot("cannot lock " + printable(path_));
  if (!encryption) return;
  try {
    const std::string wrapped = encryption->recipients.wrap(encryption->key);
    write_file(kKeyFile, wrapped);
    key_sha256_ = digest_of(wrapped);
    key_ = encryption->key;
  } catch (const std::exception&) {
    take_away();
    throw;
  }
}

NewCheckpoint::~NewCheckpoint() {
  if (!is_complete_) take_away();
}

// Another host may write a file there until it hears that the checkpoint is given up.
void NewCheckpoint::take_away() {
  for (int looks = 0; looks < kLooks; ++looks) {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
    if (!error) return;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void NewCheckpoint::write_file(const std::string& name, const std::string& text) {
  const std::string path = path_ + "/" + name;
  const UniqueFd file = make_file(folder_, path, name);
  write_all(file, std::as_bytes(std::span(text)), path);
  sync(file, path);
}

Manifest NewCheckpoint::complete(const std::string& version, std::vector<Program> programs) {
  Manifest manifest{id_, {}, version, std::move(programs), {}};
  if (key_) manifest.encryption = {key_sha256_, {}, {}};
  std::set<std::string> names;
  for (const auto& program : manifest.programs) {
    need_shards(folder_, path_, program, &names);
    if (key_) need_sealed(folder_, path_, program);
  }
  manifest.made = time_text(time_after(Store(directory_).list()));
  const std::string text = to_text(manifest, key_);
  write_file(kManifest, text);
  sync(folder_, path_);
  const std::string there = directory_ + "/" + id_;
  const UniqueFd directory = open_folder(directory_);
  // NFS may say that the folder is not there for a rename whose first answer was lost.
  if (::rename(path_.c_str(), there.c_str()) != 0 && !(errno == ENOENT && is_folder(there))) {
    const bool is_gone = errno == ENOENT && !std::filesystem::exists(path_);
    if (!is_gone) throw cannot("cannot write " + printable(there));
    throw Failure(printable(path_) +
                  " is not there any more: a host has lost this one and given it up");
  }
  try {
    sync(directory, directory_);
  } catch (const Failure&) {
    ::rename(there.c_str(), path_.c_str());  // nobody restarts what its writer takes for failed
    throw;
  }
  is_complete_ = true;
  return parse_manifest(text, there + "/" + kManifest);
}

}  // namespace ferry::store
