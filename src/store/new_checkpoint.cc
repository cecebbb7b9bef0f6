#include "store/new_checkpoint.h"

#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/failure.h"
#include "store/files.h"
#include "store/store.h"
#include "store/time_text.h"

namespace ferry::store {
namespace {

// Later than all that are in the store, whatever the clock says.
Time time_after(const std::vector<Store::Entry>& stored) {
  auto time = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  for (const auto& entry : stored) {
    const auto made = entry.manifest ? parse_time(entry.manifest->made) : std::nullopt;
    if (made && *made >= time) time = *made + std::chrono::milliseconds(1);
  }
  return time;
}

}  // namespace

NewCheckpoint::NewCheckpoint(std::string directory, const std::string& id,
                             std::uint64_t shard_bytes)
    : directory_(std::move(directory)),
      id_(id),
      path_(partial_path(directory_, id)),
      shard_bytes_(shard_bytes) {
  if (!is_id(id)) throw Failure("'" + printable(id) + "' is no id of a checkpoint");
  if (::mkdir(path_.c_str(), 0700) != 0) throw cannot("cannot make " + printable(path_));
  folder_ = open_folder(path_);
  // Until the process ends, whoever deletes checkpoints leaves this one alone: Store::remove().
  if (::flock(folder_.get(), LOCK_EX | LOCK_NB) != 0)
    throw cannot("cannot lock " + printable(path_));
}

NewCheckpoint::~NewCheckpoint() {
  if (is_complete_) return;
  images_.clear();
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

ImageWriter& NewCheckpoint::add_image() {
  images_.push_back(std::make_unique<ImageWriter>(
      folder_, path_, fmt::format("{:04}", images_.size()), shard_bytes_));
  return *images_.back();
}

Manifest NewCheckpoint::complete(const std::string& version, std::vector<Program> programs) {
  if (programs.size() != images_.size())
    throw Failure("the checkpoint has images of other programs");
  Manifest manifest{id_, {}, version, std::move(programs)};
  for (std::size_t i = 0; i < images_.size(); ++i) {
    if (!images_[i]->has_ended()) throw Failure("the image of a program has no end");
    manifest.programs[i].files = images_[i]->files();
    manifest.programs[i].shards = images_[i]->shards();
  }
  manifest.made = time_text(time_after(Store(directory_).list()));
  const std::string text = to_text(manifest), file = path_ + "/" + kManifest;
  const UniqueFd written = make_file(folder_, file, kManifest);
  write_all(written, std::as_bytes(std::span(text)), file);
  sync(written, file);
  sync(folder_, path_);
  const std::string there = directory_ + "/" + id_;
  const UniqueFd directory = open_folder(directory_);
  if (::rename(path_.c_str(), there.c_str()) != 0) throw cannot("cannot write " + printable(there));
  try {
    sync(directory, directory_);
  } catch (const Failure&) {
    ::rename(there.c_str(), path_.c_str());  // nobody restarts what its writer takes for failed
    throw;
  }
  is_complete_ = true;
  return manifest;
}

}  // namespace ferry::store
