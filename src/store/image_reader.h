#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "base/unique_fd.h"
#include "store/manifest.h"

namespace ferry::store {

// Gets the contents of the files, in their order and in pieces; an empty file is one empty piece. `file` is the index
// of the file.
using TakesPiece = std::function<void(std::size_t file, std::span<const std::byte> piece)>;

// Reads the image of a program from its shards in `folder`, which is open at `path`. The pieces are of use only after
// the return: whether a shard is as it was written is known at its end. Throws Failure, which names the shard.
void read_image(const UniqueFd& folder, const std::string& path, const Program& program,
                const TakesPiece& take);

}  // namespace ferry::store
