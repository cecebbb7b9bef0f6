#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace ferry::store {

// SHA-256, as 64 hexadecimal digits.
class Digest {
 public:
  Digest();
  void add(std::span<const std::byte> bytes);
  std::string text();  // of all that was added; called once

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> sum_;
};

std::string digest_of(std::string_view text);

// The first 128 bits of SHA-256.
using ShortDigest = std::array<std::byte, 16>;
ShortDigest short_digest_of(std::span<const std::byte> bytes);

}  // namespace ferry::store
