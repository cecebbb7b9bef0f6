#include "store/sealed_stream.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/failure.h"

namespace ferry::store {
namespace {

constexpr std::string_view kMagic = "FERRYAE1";
constexpr std::size_t kSalt = 32, kHeader = kMagic.size() + kSalt;
constexpr std::size_t kChunk = 64 << 10;  // of content
constexpr std::size_t kTag = 16, kNonce = 12;

const unsigned char* bytes_at(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* bytes_at(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}

void need(int done) {
  if (done != 1) throw std::bad_alloc();
}

std::string fresh_header() {
  std::string salt(kSalt, '\0');
  if (::RAND_bytes(reinterpret_cast<unsigned char*>(salt.data()), kSalt) != 1) {
    throw Failure("the system gives no random bytes");
  }
  return std::string(kMagic) + salt;
}

}  // namespace

bool begins_sealed(std::span<const std::byte> begin) {
  return begin.size() >= kMagic.size() &&
         std::string_view(reinterpret_cast<const char*>(begin.data()), kMagic.size()) == kMagic;
}

ChunkCipher::ChunkCipher(const ContentKey& key, std::string_view place, std::string header,
                         bool is_writing)
    : header_(std::move(header)), cipher_(::EVP_CIPHER_CTX_new(), ::EVP_CIPHER_CTX_free) {
  if (cipher_ == nullptr) throw std::bad_alloc();
  const ContentKey own = key.derived("ferry shard " + std::string(place),
                                     std::string_view(header_).substr(kMagic.size()));
  need(::EVP_CipherInit_ex(cipher_.get(), ::EVP_aes_256_gcm(), nullptr,
                           reinterpret_cast<const unsigned char*>(own.bytes().data()), nullptr,
                           is_writing ? 1 : 0));
}

void ChunkCipher::begin(bool is_last) {
  std::array<unsigned char, kNonce> nonce{};
  for (std::size_t i = 0; i < 8; ++i) {
    nonce[kNonce - 2 - i] = static_cast<unsigned char>(number_ >> (8 * i));
  }
  nonce[kNonce - 1] = is_last ? 1 : 0;
  ++number_;
  need(::EVP_CipherInit_ex(cipher_.get(), nullptr, nullptr, nullptr, nonce.data(), -1));
  int length = 0;
  need(::EVP_CipherUpdate(cipher_.get(), nullptr, &length,
                          reinterpret_cast<const unsigned char*>(header_.data()), kHeader));
}

void ChunkCipher::seal(std::span<const std::byte> content, bool is_last,
                       std::vector<std::byte>* sealed) {
  begin(is_last);
  sealed->resize(content.size() + kTag);
  int length = 0, rest = 0;
  need(::EVP_CipherUpdate(cipher_.get(), bytes_at(sealed->data()), &length,
                          bytes_at(content.data()), static_cast<int>(content.size())));
  need(::EVP_CipherFinal_ex(cipher_.get(), bytes_at(sealed->data()) + length, &rest));
  need(::EVP_CIPHER_CTX_ctrl(cipher_.get(), EVP_CTRL_AEAD_GET_TAG, kTag,
                             sealed->data() + content.size()));
}

bool ChunkCipher::open(std::span<const std::byte> sealed, bool is_last,
                       std::vector<std::byte>* content) {
  begin(is_last);
  const auto body = sealed.first(sealed.size() - kTag);
  std::array<std::byte, kTag> tag;
  std::copy_n(sealed.last(kTag).begin(), kTag, tag.begin());
  content->resize(body.size());
  int length = 0, rest = 0;
  need(::EVP_CipherUpdate(cipher_.get(), bytes_at(content->data()), &length, bytes_at(body.data()),
                          static_cast<int>(body.size())));
  need(::EVP_CIPHER_CTX_ctrl(cipher_.get(), EVP_CTRL_AEAD_SET_TAG, kTag, tag.data()));
  return ::EVP_CipherFinal_ex(cipher_.get(), bytes_at(content->data()) + length, &rest) == 1;
}

Sealer::Sealer(const ContentKey& key, std::string_view place, TakesBytes take)
    : Sealer(key, place, std::move(take), fresh_header()) {}

Sealer::Sealer(const ContentKey& key, std::string_view place, TakesBytes take, std::string header)
    : take_(std::move(take)), cipher_(key, place, header, true) {
  content_.reserve(kChunk);
  take_(std::as_bytes(std::span(header)));
}

void Sealer::add(std::span<const std::byte> content) {
  while (!content.empty()) {
    // A full one may be the last.
    if (content_.size() == kChunk) write(false);
    const auto piece = content.first(std::min(content.size(), kChunk - content_.size()));
    content_.insert(content_.end(), piece.begin(), piece.end());
    content = content.subspan(piece.size());
  }
}

void Sealer::end() {
  write(true);
}

void Sealer::write(bool is_last) {
  cipher_.seal(content_, is_last, &sealed_);
  content_.clear();
  take_(sealed_);
}

Opener::Opener(const ContentKey& key, std::string place, std::string path, std::uint64_t bytes)
    : key_(key), place_(std::move(place)), path_(std::move(path)), left_(bytes) {}

void Opener::add(std::span<const std::byte> sealed, const TakesBytes& take) {
  while (!sealed.empty()) {
    const std::uint64_t whole =
        std::min<std::uint64_t>(left_, cipher_ == nullptr ? kHeader : kChunk + kTag);
    if (whole == 0) fail("there is more behind its end");
    const auto piece = sealed.first(std::min<std::uint64_t>(sealed.size(), whole - part_.size()));
    part_.insert(part_.end(), piece.begin(), piece.end());
    sealed = sealed.subspan(piece.size());
    if (part_.size() < whole) return;
    left_ -= whole;
    open(left_ == 0, take);
    part_.clear();
  }
}

void Opener::open(bool is_last, const TakesBytes& take) {
  if (cipher_ == nullptr) {
    std::string header(reinterpret_cast<const char*>(part_.data()), part_.size());
    if (header.size() != kHeader || !header.starts_with(kMagic)) fail("it is not encrypted");
    cipher_ = std::make_unique<ChunkCipher>(key_, place_, std::move(header), false);
    return;
  }
  if (part_.size() < kTag || !cipher_->open(part_, is_last, &content_)) {
    fail("it is not what was encrypted there");
  }
  has_ended_ = is_last;
  take(content_);
}

void Opener::end() {
  if (!has_ended_) fail("its end is missing");
}

void Opener::fail(const char* how) const {
  throw Failure(printable(path_) + " is damaged: " + how);
}

}  // namespace ferry::store
