#include "store/image_reader.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "store/digest.h"
#include "store/files.h"
#include "store/sealed_stream.h"

namespace ferry::store {
namespace {

// Cuts what comes out of the shards into the contents of the files.
class Cutter {
 public:
  Cutter(const std::vector<ImageFile>& files, const TakesPiece& take) : files_(files), take_(take) {
    pass_empty();
  }

  void add(std::span<const std::byte> content) {
    while (!content.empty()) {
      const auto piece =
          content.first(std::min<std::uint64_t>(content.size(), files_.at(file_).bytes - done_));
      take_(file_, piece);
      done_ += piece.size();
      content = content.subspan(piece.size());
      if (done_ == files_[file_].bytes) {
        ++file_;
        done_ = 0;
        pass_empty();
      }
    }
  }

 private:
  void pass_empty() {
    for (; file_ < files_.size() && files_[file_].bytes == 0; ++file_) take_(file_, {});
  }

  const std::vector<ImageFile>& files_;
  const TakesPiece& take_;
  std::size_t file_ = 0;
  std::uint64_t done_ = 0;  // bytes of this file
};

class ShardReader {
 public:
  ShardReader()
      : zstd_(::ZSTD_createDCtx(), ::ZSTD_freeDCtx),
        in_(::ZSTD_DStreamInSize()),
        out_(::ZSTD_DStreamOutSize()) {
    if (zstd_ == nullptr) throw std::bad_alloc();
  }

  void read(const UniqueFd& folder, const std::string& path, const Shard& shard,
            const std::optional<Seal>& seal, Cutter& cutter) {
    const UniqueFd file = open_file(folder, path, shard.file);
    struct stat facts {};
    if (::fstat(file.get(), &facts) != 0) throw cannot("cannot read " + printable(path));
    const auto size = static_cast<std::uint64_t>(facts.st_size);
    if (size != shard.stored) {
      throw Failure(fmt::format("{} is damaged: it has {} bytes in place of {}", printable(path),
                                size, shard.stored));
    }
    const auto damaged = [&](const char* how) {
      return Failure(printable(path) + " is damaged: " + how);
    };
    std::uint64_t content = 0;
    std::size_t left = 1;  // 0: the frame has ended
    ::ZSTD_DCtx_reset(zstd_.get(), ZSTD_reset_session_only);
    const auto decompress = [&](std::span<const std::byte> piece) {
      // What could not be written at once is written before more is read.
      ZSTD_inBuffer in{piece.data(), piece.size(), 0};
      for (bool is_full = false; in.pos < in.size || is_full;) {
        if (left == 0) throw damaged("there is more behind its end");
        ZSTD_outBuffer out{out_.data(), out_.size(), 0};
        left = ::ZSTD_decompressStream(zstd_.get(), &out, &in);
        if (::ZSTD_isError(left) != 0) throw damaged(::ZSTD_getErrorName(left));
        is_full = left != 0 && out.pos == out.size;
        if (out.pos > shard.content - content) throw damaged("it has more than it had");
        content += out.pos;
        cutter.add(std::span(std::as_const(out_)).first(out.pos));
      }
    };
    std::optional<Opener> opener;
    if (seal) {
      opener.emplace(seal->key,
                     Seal::place(shard.from.empty() ? seal->id : shard.from,
                                 shard.as.empty() ? shard.file : shard.as),
                     path, size);
    }
    Digest digest;
    while (const std::size_t read = read_some(file, in_, path)) {
      const auto piece = std::span(std::as_const(in_)).first(read);
      digest.add(piece);
      if (opener) {
        opener->add(piece, decompress);
      } else {
        decompress(piece);
      }
    }
    if (opener) opener->end();
    if (left != 0 || content != shard.content) throw damaged("its end is missing");
    if (digest.text() != shard.sha256) throw damaged("its digest is another one");
  }

 private:
  const std::unique_ptr<ZSTD_DCtx_s, std::size_t (*)(ZSTD_DCtx_s*)> zstd_;
  std::vector<std::byte> in_, out_;
};

}  // namespace

void read_image(const UniqueFd& folder, const std::string& path, const Program& program,
                const std::optional<Seal>& seal, const TakesPiece& take) {
  Cutter cutter(program.files, take);
  ShardReader reader;
  for (const auto& shard : program.shards)
    reader.read(folder, path + "/" + shard.file, shard, seal, cutter);
}

void need_digest(const UniqueFd& folder, const std::string& path, const std::string& name,
                 const std::string& sha256) {
  const std::string where = path + "/" + name;
  const UniqueFd file = open_file(folder, where, name);
  Digest digest;
  std::vector<std::byte> piece(1 << 20);
  while (const std::size_t read = read_some(file, piece, where)) {
    digest.add(std::span(std::as_const(piece)).first(read));
  }
  if (digest.text() != sha256) {
    throw Failure(printable(where) + " is damaged: its digest is another one");
  }
}

}  // namespace ferry::store
