#include "store/new_images.h"

#include <fmt/core.h>

#include "store/files.h"
#include "store/store.h"

namespace ferry::store {

NewImages::NewImages(const std::string& directory, const std::string& id, std::size_t first,
                     std::uint64_t shard_bytes, const std::optional<ContentKey>& key)
    : path_(partial_path(directory, need_id(id))),
      first_(first),
      shard_bytes_(shard_bytes),
      folder_(open_folder(path_)) {
  if (key) seal_ = {*key, id};
}

ImageWriter& NewImages::add() {
  images_.push_back(std::make_unique<ImageWriter>(
      folder_, path_, fmt::format("{:04}", first_ + images_.size()), shard_bytes_, seal_));
  return *images_.back();
}

}  // namespace ferry::store
