#include "store/content_key.h"

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <algorithm>
#include <memory>
#include <new>
#include <span>

#include "base/failure.h"

namespace ferry::store {
namespace {

OSSL_PARAM octets(const char* name, std::string_view bytes) {
  return ::OSSL_PARAM_construct_octet_string(name, const_cast<char*>(bytes.data()), bytes.size());
}

}  // namespace

ContentKey ContentKey::random() {
  ContentKey key;
  if (::RAND_priv_bytes(reinterpret_cast<unsigned char*>(key.bytes_.data()), kBytes) != 1) {
    throw Failure("the system gives no random bytes");
  }
  return key;
}

ContentKey::ContentKey(std::string_view bytes) {
  if (bytes.size() != kBytes) throw Failure("a content key has another length");
  std::copy(bytes.begin(), bytes.end(), bytes_.begin());
}

ContentKey::~ContentKey() {
  ::OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

void wipe(std::string* text) {
  ::OPENSSL_cleanse(text->data(), text->size());
  text->clear();
}

bool ContentKey::operator==(const ContentKey& other) const {
  return ::CRYPTO_memcmp(bytes_.data(), other.bytes_.data(), kBytes) == 0;
}

std::string_view ContentKey::bytes() const {
  return {bytes_.data(), bytes_.size()};
}

ContentKey ContentKey::derived(std::string_view purpose, std::string_view salt) const {
  const std::unique_ptr<EVP_KDF, void (*)(EVP_KDF*)> kdf(::EVP_KDF_fetch(nullptr, "HKDF", nullptr),
                                                         ::EVP_KDF_free);
  const std::unique_ptr<EVP_KDF_CTX, void (*)(EVP_KDF_CTX*)> context(::EVP_KDF_CTX_new(kdf.get()),
                                                                     ::EVP_KDF_CTX_free);
  char digest[] = "SHA256";
  const std::array parameters{
      ::OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      octets(OSSL_KDF_PARAM_KEY, bytes()), octets(OSSL_KDF_PARAM_INFO, purpose),
      salt.empty() ? ::OSSL_PARAM_construct_end() : octets(OSSL_KDF_PARAM_SALT, salt),
      ::OSSL_PARAM_construct_end()};
  ContentKey key;
  if (context == nullptr ||
      ::EVP_KDF_derive(context.get(), reinterpret_cast<unsigned char*>(key.bytes_.data()), kBytes,
                       parameters.data()) != 1) {
    throw std::bad_alloc();
  }
  return key;
}

std::string ContentKey::mac(std::string_view text) const {
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
  unsigned length = 0;
  if (::HMAC(::EVP_sha256(), bytes_.data(), kBytes,
             reinterpret_cast<const unsigned char*>(text.data()), text.size(), sum.data(),
             &length) == nullptr) {
    throw std::bad_alloc();
  }
  return fmt::format("{:02x}", fmt::join(std::span(sum).first(length), ""));
}

bool ContentKey::has_made(std::string_view given, std::string_view text) const {
  const std::string right = mac(text);
  return given.size() == right.size() &&
         ::CRYPTO_memcmp(given.data(), right.data(), right.size()) == 0;
}

}  // namespace ferry::store
