#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace nf_chain {

// AES-256-GCM by OpenSSL. The number of a request is its nonce.
class Cipher {
 public:
  static constexpr std::size_t kTag = 16;  // bytes after what is encrypted

  // `key`: 64 hexadecimal digits.
  Cipher(const std::string& key, bool encrypts);
  ~Cipher() { EVP_CIPHER_CTX_free(context_); }
  Cipher(const Cipher&) = delete;
  Cipher& operator=(const Cipher&) = delete;

  // Writes size + kTag bytes.
  void encrypt(std::uint32_t number, const char* plain, std::size_t size, char* encrypted);
  // Writes size - kTag bytes. False where this was not encrypted with the key and the number.
  bool decrypt(std::uint32_t number, const char* encrypted, std::size_t size, char* plain);

 private:
  void begin(std::uint32_t number);
  EVP_CIPHER_CTX* const context_ = EVP_CIPHER_CTX_new();
};

}  // namespace nf_chain
