#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "store/digest.h"
#include "store/image_reader.h"
#include "store/manifest.h"

struct ZSTD_CCtx_s;

namespace ferry::store {

class Checkpoint;
class Sealer;

// Writes the image of a program into shards, as it comes: nothing is kept in memory but a buffer. One thread; the
// images of several programs may be written at the same time.
class ImageWriter {
 public:
  // `folder` is open at `path`. `prefix`: with which the names of the shards begin. `seal`: of an encrypted checkpoint.
  ImageWriter(const UniqueFd& folder, std::string path, std::string prefix,
              std::uint64_t shard_bytes, const std::optional<Seal>& seal);
  ImageWriter(const ImageWriter&) = delete;
  ~ImageWriter();

  // Throw Failure. After that the checkpoint cannot be completed.
  void begin_file(const std::string& name, mode_t mode);
  void write(std::span<const std::byte> content);  // of the file that was begun last
  // What follows is in other shards than what was written so far.
  void end_shard();
  // Adds a file of the image of a program in another checkpoint of this store, without a copy: its shards get one more
  // name each. False: the file has no shards of its own, or they cannot be linked, or are encrypted in another way than
  // those of this one; then nothing is added.
  bool link_file(const std::string& name, const Checkpoint& from, std::size_t program,
                 std::size_t file);
  // All is there, and durable but for the folder: notes the files and shards of the image in *program.
  void end(Program* program);

 private:
  std::string name_of_next() const;
  void begin_shard();
  void compress(std::span<const std::byte> content, bool is_end);
  void store(std::span<const std::byte> bytes);  // in the file of the shard

  const UniqueFd& folder_;
  const std::string path_, prefix_;
  const std::uint64_t shard_bytes_;
  const std::optional<Seal>& seal_;
  const std::unique_ptr<ZSTD_CCtx_s, std::size_t (*)(ZSTD_CCtx_s*)> zstd_;
  std::vector<std::byte> buffer_;
  std::vector<ImageFile> files_;
  std::vector<Shard> shards_;
  UniqueFd file_;  // of the shard that is being written
  std::unique_ptr<Digest> digest_;
  std::unique_ptr<Sealer> sealer_;  // nothing: it is not encrypted
};

}  // namespace ferry::store
