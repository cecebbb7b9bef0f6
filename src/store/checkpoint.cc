#include "store/checkpoint.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "store/files.h"

namespace ferry::store {
namespace {

constexpr std::size_t kMost = 64 << 20;    // bytes of a file that is read as a whole
constexpr std::size_t kMostKey = 1 << 20;  // of kKeyFile: each recipient in it may be tried

std::string read_whole(const UniqueFd& folder, const std::string& path, const std::string& name,
                       std::size_t most = kMost) {
  const UniqueFd file = open_file(folder, path, name);
  std::string text;
  std::vector<std::byte> piece(64 << 10);
  while (const std::size_t read = read_some(file, piece, path)) {
    text.append(reinterpret_cast<const char*>(piece.data()), read);
    if (text.size() > most) throw Failure(printable(path) + " is damaged: it is too large");
  }
  return text;
}

}  // namespace

Checkpoint::Checkpoint(const std::string& path) : path_(path), folder_(open_folder(path)) {
  const std::string file = path + "/" + kManifest;
  manifest_ = parse_manifest(read_whole(folder_, file, kManifest), file);
  if (const auto name = std::filesystem::path(path).filename().string(); name != manifest_.id) {
    throw Failure(fmt::format("{} is of the checkpoint {}", printable(file), manifest_.id));
  }
}

void Checkpoint::need_encrypted() const {
  if (manifest_.encryption) return;
  throw Failure(printable(path_) +
                " is not encrypted, but a key was given: whoever may write "
                "there can have put it in the place of one that was");
}

ContentKey Checkpoint::content_key(const PrivateKey& key) const {
  need_encrypted();
  need_digest(folder_, path_, kKeyFile, manifest_.encryption->key_sha256);
  const std::string file = path_ + "/" + kKeyFile;
  return key.unwrap(read_whole(folder_, file, kKeyFile, kMostKey), file);
}

void Checkpoint::unlock(const ContentKey& key) {
  need_encrypted();
  if (!manifest_.is_of(key)) {
    throw Failure(printable(path_ + "/" + kManifest) +
                  " is damaged: it was written without the checkpoint's key");
  }
  seal_ = {key, manifest_.id};
}

bool Checkpoint::is_sealed_with(const std::optional<Seal>& seal) const {
  if (!seal || !seal_) return !seal && !manifest_.encryption;
  return seal->key == seal_->key;
}

void Checkpoint::need_readable() const {
  if (!manifest_.encryption || seal_) return;
  throw Failure(printable(path_) + " is encrypted: give the private key with --key");
}

// A lock of bytes, which NFS has too; the kernel takes it away with the last descriptor of this opening.
bool Checkpoint::lock() {
  const std::string file = path_ + "/" + kManifest;
  lock_ = UniqueFd(::openat(folder_.get(), kManifest, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!lock_ && errno == EROFS) return false;
  if (!lock_) throw cannot("cannot write " + printable(file));
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(lock_.get(), F_OFD_SETLK, &whole) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) {
    throw Failure(fmt::format("checkpoint {} is being restarted already", manifest_.id));
  }
  if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP) return false;
  throw cannot("cannot lock " + printable(file));
}

std::vector<std::string> Checkpoint::hosts_of_latest_restart() const {
  const std::string name = manifest_.id + kRestarted;
  const UniqueFd folder = open_folder(std::filesystem::path(path_).parent_path());
  if (::faccessat(folder.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT)
    return {};
  const std::string text = read_whole(folder, path_ + kRestarted, name);
  std::vector<std::string> hosts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) hosts.push_back(line);
  return hosts;
}

void Checkpoint::note_restart(const std::vector<std::string>& hosts) const {
  std::string text;
  for (const auto& host : hosts) text += host + "\n";
  const std::string name = manifest_.id + kRestarted, fresh = name + ".new";
  const std::string path = path_ + kRestarted, fresh_path = path + ".new";
  const UniqueFd folder = open_folder(std::filesystem::path(path_).parent_path());
  ::unlinkat(folder.get(), fresh.c_str(), 0);
  const UniqueFd file = make_file(folder, fresh_path, fresh);
  write_all(file, std::as_bytes(std::span(text)), fresh_path);
  sync(file, fresh_path);
  if (::renameat(folder.get(), fresh.c_str(), folder.get(), name.c_str()) != 0) {
    throw cannot("cannot write " + printable(path));
  }
  sync(folder, path);
}

void Checkpoint::read_image(std::size_t program, const TakesPiece& take) const {
  need_readable();
  store::read_image(folder_, path_, manifest_.programs.at(program), seal_, take);
}

void Checkpoint::read_file(
    std::size_t program, std::size_t file,
    const std::function<void(std::span<const std::byte> piece)>& take) const {
  need_readable();
  const Program& whole = manifest_.programs.at(program);
  const auto shards = shards_of(whole, file);
  if (!shards) {
    throw Failure(fmt::format("{} of '{}' has no shards of its own", whole.files.at(file).name,
                              printable(whole.name)));
  }
  Program part;
  part.files.push_back(whole.files[file]);
  const auto first = whole.shards.begin();
  part.shards.assign(first + static_cast<std::ptrdiff_t>(shards->first),
                     first + static_cast<std::ptrdiff_t>(shards->second));
  store::read_image(folder_, path_, part, seal_,
                    [&](std::size_t, std::span<const std::byte> piece) { take(piece); });
}

bool Checkpoint::link_shard(const Shard& shard, const UniqueFd& folder,
                            const std::string& name) const {
  try {
    need_digest(folder_, path_, shard.file, shard.sha256);
  } catch (const Failure&) {
    return false;
  }
  if (::linkat(folder_.get(), shard.file.c_str(), folder.get(), name.c_str(), 0) == 0) return true;
  // NFS may say that the name is there already, which an answer that was lost has made.
  ::unlinkat(folder.get(), name.c_str(), 0);
  return false;
}

void Checkpoint::verify() const {
  std::set<std::string> known{kManifest};
  if (manifest_.encryption) {
    need_digest(folder_, path_, kKeyFile, manifest_.encryption->key_sha256);
    known.insert(kKeyFile);
  }
  const bool is_readable = !manifest_.encryption || seal_;
  for (std::size_t i = 0; i < manifest_.programs.size(); ++i) {
    if (is_readable) read_image(i, [](std::size_t, std::span<const std::byte>) {});
    for (const auto& shard : manifest_.programs[i].shards) {
      if (!is_readable) need_digest(folder_, path_, shard.file, shard.sha256);
      known.insert(shard.file);
    }
  }
  for (const auto& name : names_in(path_)) {
    // NFS keeps files under such names that somebody has open when they are deleted.
    if (!known.contains(name) && !name.starts_with(".nfs")) {
      throw Failure(printable(path_ + "/" + name) + " does not belong to the checkpoint");
    }
  }
}

}  // namespace ferry::store
