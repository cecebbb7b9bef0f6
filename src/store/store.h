#pragma once

#include <optional>
#include <string>
#include <vector>

#include "store/checkpoint.h"
#include "store/manifest.h"

// Checkpoints in a directory, a folder each, which has the checkpoint's id as its name. The directory may be on any
// file system where a folder can be renamed; what else is in it is left alone. All throw Failure.
namespace ferry::store {

// Where a checkpoint is while it is written.
std::string partial_path(const std::string& directory, const std::string& id);

class Store {
 public:
  explicit Store(std::string directory) : directory_(std::move(directory)) {}

  struct Entry {
    std::string id;
    std::optional<Manifest> manifest;  // nothing: why not is in `problem`
    std::string problem;
    bool is_partial = false;
  };
  // All of them, the latest last; behind it those without a manifest that can be read, which may be being written.
  std::vector<Entry> list() const;

  Checkpoint open(const std::string& id) const;
  // Its id. Throws Failure also when one cannot be read, which may be the latest.
  std::string latest() const;
  // At once for all readers: what is left when this ends early is no checkpoint. It may be a partial one.
  void remove(const std::string& id) const;

 private:
  const std::string directory_;
};

}  // namespace ferry::store
