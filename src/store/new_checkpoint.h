#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "store/manifest.h"

namespace ferry::store {

// A checkpoint that is being written, under a name that no reader takes for one: its images by NewImages. Until
// complete() has returned, its destruction takes all of it away.
class NewCheckpoint {
 public:
  // In the store `directory`. Throws Failure.
  NewCheckpoint(std::string directory, const std::string& id);
  NewCheckpoint(const NewCheckpoint&) = delete;
  ~NewCheckpoint();

  // `programs`: of all images, in their order. When this returns the checkpoint is in the store, and durable. Throws
  // Failure, also when a shard is not there.
  Manifest complete(const std::string& version, std::vector<Program> programs);

 private:
  const std::string directory_, id_, path_;
  UniqueFd folder_;
  bool is_complete_ = false;
};

}  // namespace ferry::store
