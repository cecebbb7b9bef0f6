#include "store/image_writer.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/failure.h"
#include "store/checkpoint.h"
#include "store/files.h"
#include "store/sealed_stream.h"

namespace ferry::store {
namespace {

constexpr int kLevel = 1;  // faster than a disk

}  // namespace

ImageWriter::ImageWriter(const UniqueFd& folder, std::string path, std::string prefix,
                         std::uint64_t shard_bytes, const std::optional<Seal>& seal)
    : folder_(folder),
      path_(std::move(path)),
      prefix_(std::move(prefix)),
      shard_bytes_(shard_bytes),
      seal_(seal),
      zstd_(::ZSTD_createCCtx(), ::ZSTD_freeCCtx),
      buffer_(::ZSTD_CStreamOutSize()) {
  if (zstd_ == nullptr) throw std::bad_alloc();
  ::ZSTD_CCtx_setParameter(zstd_.get(), ZSTD_c_compressionLevel, kLevel);
  ::ZSTD_CCtx_setParameter(zstd_.get(), ZSTD_c_checksumFlag, 1);
}

ImageWriter::~ImageWriter() = default;

void ImageWriter::begin_file(const std::string& name, mode_t mode) {
  if (!is_plain_name(name))
    throw Failure("the image has a file of the name '" + printable(name) + "'");
  files_.push_back({name, mode, 0});
}

void ImageWriter::write(std::span<const std::byte> content) {
  files_.back().bytes += content.size();
  while (!content.empty()) {
    if (!file_) begin_shard();
    Shard& shard = shards_.back();
    const auto piece =
        content.first(std::min<std::uint64_t>(content.size(), shard_bytes_ - shard.content));
    compress(piece, false);
    shard.content += piece.size();
    content = content.subspan(piece.size());
    if (shard.content == shard_bytes_) end_shard();
  }
}

bool ImageWriter::link_file(const std::string& name, const Checkpoint& from, std::size_t program,
                            std::size_t file) {
  const Program& there = from.manifest().programs.at(program);
  const auto shards = shards_of(there, file);
  if (!shards || !from.is_sealed_with(seal_)) return false;
  end_shard();
  const std::size_t known = shards_.size();
  for (std::size_t i = shards->first; i < shards->second; ++i) {
    const std::string linked = name_of_next();
    if (!from.link_shard(there.shards[i], folder_, linked)) {
      for (; shards_.size() > known; shards_.pop_back()) {
        ::unlinkat(folder_.get(), shards_.back().file.c_str(), 0);
      }
      return false;
    }
    Shard& shard = shards_.emplace_back(there.shards[i]);
    if (shard.from.empty()) shard.from = from.manifest().id;
    if (seal_ && shard.as.empty()) shard.as = shard.file;
    shard.file = linked;
  }
  begin_file(name, there.files[file].mode);
  files_.back().bytes = there.files[file].bytes;
  return true;
}

void ImageWriter::end(Program* program) {
  end_shard();
  program->files = std::move(files_);
  program->shards = std::move(shards_);
}

std::string ImageWriter::name_of_next() const {
  return fmt::format("{}-{:06}.zst{}", prefix_, shards_.size(), seal_ ? ".enc" : "");
}

void ImageWriter::begin_shard() {
  const std::string name = name_of_next();
  file_ = make_file(folder_, path_ + "/" + name, name);
  digest_ = std::make_unique<Digest>();
  shards_.push_back({name, 0, 0, {}, {}, {}});
  if (!seal_) return;
  sealer_ = std::make_unique<Sealer>(seal_->key, Seal::place(seal_->id, name),
                                     [this](std::span<const std::byte> bytes) { store(bytes); });
}

void ImageWriter::compress(std::span<const std::byte> content, bool is_end) {
  const std::string path = path_ + "/" + shards_.back().file;
  ZSTD_inBuffer in{content.data(), content.size(), 0};
  for (std::size_t left = 1; in.pos < in.size || (is_end && left != 0);) {
    ZSTD_outBuffer out{buffer_.data(), buffer_.size(), 0};
    left = ::ZSTD_compressStream2(zstd_.get(), &out, &in, is_end ? ZSTD_e_end : ZSTD_e_continue);
    if (::ZSTD_isError(left) != 0) {
      throw Failure(
          fmt::format("cannot compress {}: {}", printable(path), ::ZSTD_getErrorName(left)));
    }
    const auto compressed = std::span(std::as_const(buffer_)).first(out.pos);
    if (sealer_) {
      sealer_->add(compressed);
    } else {
      store(compressed);
    }
  }
}

void ImageWriter::store(std::span<const std::byte> bytes) {
  Shard& shard = shards_.back();
  digest_->add(bytes);
  write_all(file_, bytes, path_ + "/" + shard.file);
  shard.stored += bytes.size();
}

void ImageWriter::end_shard() {
  if (!file_) return;
  compress({}, true);
  if (sealer_) sealer_->end();
  sealer_.reset();
  Shard& shard = shards_.back();
  sync(file_, path_ + "/" + shard.file);
  shard.sha256 = digest_->text();
  file_.reset();
}

}  // namespace ferry::store
