#include "store/checkpoint.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "store/files.h"

namespace ferry::store {
namespace {

constexpr std::size_t kMostManifest = 64 << 20;  // bytes

std::string read_manifest(const UniqueFd& folder, const std::string& path) {
  const UniqueFd file = open_file(folder, path, kManifest);
  std::string text;
  std::vector<std::byte> piece(64 << 10);
  while (const std::size_t read = read_some(file, piece, path)) {
    text.append(reinterpret_cast<const char*>(piece.data()), read);
    if (text.size() > kMostManifest)
      throw Failure(printable(path) + " is damaged: it is too large");
  }
  return text;
}

}  // namespace

Checkpoint::Checkpoint(const std::string& path) : path_(path), folder_(open_folder(path)) {
  const std::string file = path + "/" + kManifest;
  manifest_ = parse_manifest(read_manifest(folder_, file), file);
  if (const auto name = std::filesystem::path(path).filename().string(); name != manifest_.id) {
    throw Failure(fmt::format("{} is of the checkpoint {}", printable(file), manifest_.id));
  }
}

// A lock of bytes, which NFS has too; the kernel takes it away with the last descriptor of this opening.
void Checkpoint::lock() {
  const std::string file = path_ + "/" + kManifest;
  lock_ = UniqueFd(::openat(folder_.get(), kManifest, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!lock_) throw cannot("cannot write " + printable(file));
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(lock_.get(), F_OFD_SETLK, &whole) == 0) return;
  if (errno == EAGAIN || errno == EACCES) {
    throw Failure(fmt::format("checkpoint {} is being restarted already", manifest_.id));
  }
  throw cannot("cannot lock " + printable(file));
}

void Checkpoint::read_image(std::size_t program, const TakesPiece& take) const {
  store::read_image(folder_, path_, manifest_.programs.at(program), take);
}

void Checkpoint::verify() const {
  std::set<std::string> known{kManifest};
  for (std::size_t i = 0; i < manifest_.programs.size(); ++i) {
    read_image(i, [](std::size_t, std::span<const std::byte>) {});
    for (const auto& shard : manifest_.programs[i].shards) known.insert(shard.file);
  }
  for (const auto& name : names_in(path_)) {
    // NFS keeps files under such names that somebody has open when they are deleted.
    if (!known.contains(name) && !name.starts_with(".nfs")) {
      throw Failure(printable(path_ + "/" + name) + " does not belong to the checkpoint");
    }
  }
}

}  // namespace ferry::store
