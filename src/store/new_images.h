#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "store/image_writer.h"

namespace ferry::store {

inline constexpr std::uint64_t kShardBytes = 256ull << 20;  // of content

// Images that are written into a checkpoint which NewCheckpoint has begun, on this host or on another one with the same
// file system. Until NewCheckpoint::complete() nobody reads them.
class NewImages {
 public:
  // In the store `directory`. `first`: number of the first image in the checkpoint. `key`: of an encrypted checkpoint.
  // Throws Failure.
  NewImages(const std::string& directory, const std::string& id, std::size_t first,
            std::uint64_t shard_bytes = kShardBytes, const std::optional<ContentKey>& key = {});

  // The image of one more program, as long as this lives.
  ImageWriter& add();

 private:
  const std::string path_;
  const std::size_t first_;
  const std::uint64_t shard_bytes_;
  const UniqueFd folder_;
  std::optional<Seal> seal_;
  std::vector<std::unique_ptr<ImageWriter>> images_;
};

}  // namespace ferry::store
