#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/unique_fd.h"
#include "store/content_key.h"
#include "store/manifest.h"

namespace ferry::store {

// Gets the contents of the files, in their order and in pieces; an empty file is one empty piece. `file` is the index
// of the file.
using TakesPiece = std::function<void(std::size_t file, std::span<const std::byte> piece)>;

// With what the shards of an encrypted checkpoint are sealed.
struct Seal {
  ContentKey key;
  std::string id;  // of the checkpoint

  // Where a shard belongs that the checkpoint `id` writes as the file `name`.
  static std::string place(const std::string& id, const std::string& name) {
    return id + "/" + name;
  }
};

// Reads the image of a program from its shards in `folder`, which is open at `path`. The pieces are of use only after
// the return: whether a shard is as it was written is known at its end. Throws Failure, which names the shard.
void read_image(const UniqueFd& folder, const std::string& path, const Program& program,
                const std::optional<Seal>& seal, const TakesPiece& take);
// Reads a file of the folder, which is open at `path`, as it is stored. Throws Failure: its digest is another one.
void need_digest(const UniqueFd& folder, const std::string& path, const std::string& name,
                 const std::string& sha256);

}  // namespace ferry::store
