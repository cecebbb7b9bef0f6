#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "store/image_writer.h"
#include "store/manifest.h"

namespace ferry::store {

inline constexpr std::uint64_t kShardBytes = 256ull << 20;  // of content

// A checkpoint that is being written, under a name that no reader takes for one. Until complete() has returned, its
// destruction takes all of it away.
class NewCheckpoint {
 public:
  // In the store `directory`. Throws Failure.
  NewCheckpoint(std::string directory, const std::string& id,
                std::uint64_t shard_bytes = kShardBytes);
  NewCheckpoint(const NewCheckpoint&) = delete;
  ~NewCheckpoint();

  // The image of one more program, as long as this lives.
  ImageWriter& add_image();
  // `programs`: of all images, in their order and each with its name, host and facts. When this returns the checkpoint
  // is in the store, and durable. Throws Failure.
  Manifest complete(const std::string& version, std::vector<Program> programs);

 private:
  const std::string directory_, id_, path_;
  const std::uint64_t shard_bytes_;
  UniqueFd folder_;
  std::vector<std::unique_ptr<ImageWriter>> images_;
  bool is_complete_ = false;
};

}  // namespace ferry::store
