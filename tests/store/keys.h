#pragma once

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

namespace ferry::store::test {

struct KeyPair {
  std::string certificate, key;  // PEM
};

inline std::string pem_of(const auto& write) {
  const std::unique_ptr<BIO, int (*)(BIO*)> out(::BIO_new(::BIO_s_mem()), ::BIO_free);
  write(out.get());
  char* bytes = nullptr;
  const long size = ::BIO_get_mem_data(out.get(), &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

struct Made {
  long from = -60, until = 3600;  // seconds from now, when the certificate is good
  std::string usage;              // of its key, in OpenSSL's words; empty: any
  std::string passphrase;         // of the key; empty: none
};

// A certificate that its own key has signed. Takes `key` over.
inline KeyPair pair_of(EVP_PKEY* key, const Made& made = {}) {
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> owned(key, ::EVP_PKEY_free);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(::X509_new(), ::X509_free);
  ::X509_set_version(certificate.get(), X509_VERSION_3);
  static long serial = 0;
  ::ASN1_INTEGER_set(::X509_get_serialNumber(certificate.get()), ++serial);
  ::X509_gmtime_adj(::X509_getm_notBefore(certificate.get()), made.from);
  ::X509_gmtime_adj(::X509_getm_notAfter(certificate.get()), made.until);
  ::X509_NAME_add_entry_by_txt(::X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("keeper"), -1, -1, 0);
  ::X509_set_issuer_name(certificate.get(), ::X509_get_subject_name(certificate.get()));
  ::X509_set_pubkey(certificate.get(), key);
  if (!made.usage.empty()) {
    X509_EXTENSION* const usage =
        ::X509V3_EXT_conf_nid(nullptr, nullptr, NID_key_usage, made.usage.c_str());
    ::X509_add_ext(certificate.get(), usage, -1);
    ::X509_EXTENSION_free(usage);
  }
  const bool signs_by_itself = ::EVP_PKEY_get_base_id(key) == EVP_PKEY_ED25519;
  ::X509_sign(certificate.get(), key, signs_by_itself ? nullptr : ::EVP_sha256());
  const auto* const passphrase =
      made.passphrase.empty() ? nullptr
                              : reinterpret_cast<const unsigned char*>(made.passphrase.data());
  return {pem_of([&](BIO* out) { ::PEM_write_bio_X509(out, certificate.get()); }),
          pem_of([&](BIO* out) {
            ::PEM_write_bio_PrivateKey(
                out, key, passphrase == nullptr ? nullptr : ::EVP_aes_256_cbc(), passphrase,
                static_cast<int>(made.passphrase.size()), nullptr, nullptr);
          })};
}

inline KeyPair rsa(unsigned bits = 2048, const Made& made = {}) {
  return pair_of(::EVP_RSA_gen(bits), made);
}
inline KeyPair ec(const Made& made = {}, const char* curve = "P-256") {
  return pair_of(::EVP_EC_gen(curve), made);
}

}  // namespace ferry::store::test
