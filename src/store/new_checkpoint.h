#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "store/content_key.h"
#include "store/manifest.h"
#include "store/recipients.h"

namespace ferry::store {

// How a checkpoint is encrypted: with the key, which `recipients` can unwrap.
struct EncryptTo {
  ContentKey key;
  Recipients recipients;
};

// A checkpoint that is being written, under a name that no reader takes for one: its images by NewImages. Until
// complete() has returned, its destruction takes all of it away.
class NewCheckpoint {
 public:
  // In the store `directory`. Throws Failure.
  NewCheckpoint(std::string directory, const std::string& id,
                const std::optional<EncryptTo>& encryption = {});
  NewCheckpoint(const NewCheckpoint&) = delete;
  ~NewCheckpoint();

  // `programs`: of all images, in their order. When this returns the checkpoint is in the store, and durable. Throws
  // Failure, also when a shard is not there.
  Manifest complete(const std::string& version, std::vector<Program> programs);

 private:
  void write_file(const std::string& name, const std::string& text);
  void take_away();

  const std::string directory_, id_, path_;
  UniqueFd folder_;
  std::optional<ContentKey> key_;  // nothing: it is not encrypted
  std::string key_sha256_;
  bool is_complete_ = false;
};

}  // namespace ferry::store
