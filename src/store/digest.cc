#include "store/digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>

namespace ferry::store {

Digest::Digest() : sum_(::EVP_MD_CTX_new(), ::EVP_MD_CTX_free) {
  if (sum_ == nullptr || ::EVP_DigestInit_ex(sum_.get(), ::EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
}

void Digest::add(std::span<const std::byte> bytes) {
  ::EVP_DigestUpdate(sum_.get(), bytes.data(), bytes.size());
}

std::string Digest::text() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned length = 0;
  ::EVP_DigestFinal_ex(sum_.get(), bytes.data(), &length);
  return fmt::format("{:02x}", fmt::join(std::span(bytes).first(length), ""));
}

ShortDigest short_digest_of(std::span<const std::byte> bytes) {
  std::array<std::byte, 32> whole{};
  if (::EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(whole.data()),
                   nullptr, ::EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
  ShortDigest digest;
  std::copy_n(whole.begin(), digest.size(), digest.begin());
  return digest;
}

std::string digest_of(std::string_view text) {
  Digest digest;
  digest.add(std::as_bytes(std::span(text)));
  return digest.text();
}

}  // namespace ferry::store
