#include "store/new_checkpoint.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/failure.h"
#include "store/files.h"
#include "store/store.h"

namespace ferry::store {
namespace {

using std::chrono::milliseconds;

// So that texts are in the order of the times, of which each is behind `latest`.
std::string time_after(const std::string& latest) {
  auto now = std::chrono::time_point_cast<milliseconds>(std::chrono::system_clock::now());
  for (;; now += milliseconds(1)) {
    const auto time = now.time_since_epoch();
    const auto second = std::chrono::floor<std::chrono::seconds>(now);
    std::string text = fmt::format("{:%FT%H:%M:%S}.{:03}Z",
                                   fmt::gmtime(std::chrono::system_clock::to_time_t(second)),
                                   (time % std::chrono::seconds(1)).count());
    if (text > latest) return text;
  }
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
  std::string latest;
  for (const auto& stored : Store(directory_).list()) {
    if (stored.manifest) latest = std::max(latest, stored.manifest->made);
  }
  manifest.made = time_after(latest);
  const std::string text = to_text(manifest), file = path_ + "/" + kManifest;
  const UniqueFd written = make_file(folder_, file, kManifest);
  write_all(written, std::as_bytes(std::span(text)), file);
  sync(written, file);
  sync(folder_, path_);
  const std::string there = directory_ + "/" + id_;
  if (::rename(path_.c_str(), there.c_str()) != 0) throw cannot("cannot write " + printable(there));
  is_complete_ = true;
  sync(open_folder(directory_), directory_);
  return manifest;
}

}  // namespace ferry::store
