#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "store/image_reader.h"
#include "store/manifest.h"
#include "store/recipients.h"

namespace ferry::store {

// A complete checkpoint, to be read: its folder stays open, so that all that is read is of one checkpoint.
class Checkpoint {
 public:
  // Reads the manifest. Throws Failure.
  explicit Checkpoint(const std::string& path);

  const Manifest& manifest() const { return manifest_; }

  // Of an encrypted one. Throws Failure, and WrongKey.
  ContentKey content_key(const PrivateKey& key) const;
  // The content of an encrypted one can be read after that. Throws Failure: it is not encrypted, or its manifest was
  // written by somebody who does not have the key.
  void unlock(const ContentKey& key);
  // Throws Failure: it is encrypted, and not unlocked.
  void need_readable() const;
  // True as well when neither is encrypted.
  bool is_sealed_with(const std::optional<Seal>& seal) const;

  // Throws Failure when another restart of it is under way, on whichever host; until this is destroyed, there is none.
  // False: its file system has no locks, or cannot be written.
  bool lock();

  // The hosts where its latest restart has put programs, as that has noted them in a file beside the folder. These
  // throw Failure.
  std::vector<std::string> hosts_of_latest_restart() const;
  void note_restart(const std::vector<std::string>& hosts) const;
  // As the function of the same name.
  void read_image(std::size_t program, const TakesPiece& take) const;
  // One file of an image, which has shards of its own. Throws Failure.
  void read_file(std::size_t program, std::size_t file,
                 const std::function<void(std::span<const std::byte> piece)>& take) const;
  // Gives a shard of this checkpoint one more name, in another folder of its file system. False: that cannot be, or the
  // shard is not as it was written.
  bool link_shard(const Shard& shard, const UniqueFd& folder, const std::string& name) const;
  // Reads every byte. Throws Failure, which names the first file that is not as it was written. Of an encrypted one
  // that is not unlocked the digests of the files are all that is compared.
  void verify() const;

 private:
  void need_encrypted() const;

  std::string path_;
  UniqueFd folder_;
  UniqueFd lock_;
  Manifest manifest_;
  std::optional<Seal> seal_;  // once it is unlocked
};

}  // namespace ferry::store
