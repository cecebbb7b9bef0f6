#include "cipher.h"

#include <cstdlib>
#include <cstring>

#include "../carriers/failure.h"

namespace nf_chain {
namespace {

unsigned char* bytes(char* at) {
  return reinterpret_cast<unsigned char*>(at);
}
const unsigned char* bytes(const char* at) {
  return reinterpret_cast<const unsigned char*>(at);
}
void require(int result) {
  if (result != 1) carriers::give_up_plainly("OpenSSL refuses AES-256-GCM");
}

}  // namespace

Cipher::Cipher(const std::string& key, bool encrypts) {
  unsigned char raw[32];
  if (key.size() != 2 * sizeof raw ||
      key.find_first_not_of("0123456789abcdef") != std::string::npos) {
    carriers::give_up_plainly("--key is 64 hexadecimal digits");
  }
  for (std::size_t at = 0; at < sizeof raw; ++at) {
    raw[at] = static_cast<unsigned char>(std::strtoul(key.substr(2 * at, 2).c_str(), nullptr, 16));
  }
  require(EVP_CipherInit_ex(context_, EVP_aes_256_gcm(), nullptr, raw, nullptr, encrypts));
}

void Cipher::encrypt(std::uint32_t number, const char* plain, std::size_t size, char* encrypted) {
  int written = 0;
  begin(number);
  require(EVP_EncryptUpdate(context_, bytes(encrypted), &written, bytes(plain),
                            static_cast<int>(size)));
  require(EVP_EncryptFinal_ex(context_, bytes(encrypted) + written, &written));
  require(EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_GCM_GET_TAG, kTag, encrypted + size));
}

bool Cipher::decrypt(std::uint32_t number, const char* encrypted, std::size_t size, char* plain) {
  if (size < kTag) return false;
  int written = 0;
  char tag[kTag];
  std::memcpy(tag, encrypted + size - kTag, kTag);
  begin(number);
  require(EVP_DecryptUpdate(context_, bytes(plain), &written, bytes(encrypted),
                            static_cast<int>(size - kTag)));
  require(EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_GCM_SET_TAG, kTag, tag));
  return EVP_DecryptFinal_ex(context_, bytes(plain) + written, &written) == 1;
}

void Cipher::begin(std::uint32_t number) {
  unsigned char nonce[12]{};
  std::memcpy(nonce, &number, sizeof number);
  require(EVP_CipherInit_ex(context_, nullptr, nullptr, nullptr, nonce, -1));
}

}  // namespace nf_chain
