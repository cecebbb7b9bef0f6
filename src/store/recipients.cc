#include "store/recipients.h"

#include <fmt/core.h>
#include <openssl/bio.h>
#include <openssl/cms.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <set>

#include "store/digest.h"

namespace ferry::store {
namespace {

constexpr int kLeastRsa = 2048;      // bits
constexpr int kLeastSecurity = 112;  // bits, which RSA with so many has

struct Free {
  void operator()(BIO* bio) const { ::BIO_free_all(bio); }
  void operator()(CMS_ContentInfo* cms) const { ::CMS_ContentInfo_free(cms); }
};
using Bio = std::unique_ptr<BIO, Free>;
using Cms = std::unique_ptr<CMS_ContentInfo, Free>;

// No passphrase is asked for.
int no_passphrase(char*, int, int, void* was_asked) {
  *static_cast<bool*>(was_asked) = true;
  return -1;
}

Bio bio_of(std::string_view text) {
  return Bio(::BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string text_in(BIO* bio) {
  char* bytes = nullptr;
  const long size = ::BIO_get_mem_data(bio, &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

bool is_rsa(X509* certificate) {
  return ::EVP_PKEY_get_base_id(::X509_get0_pubkey(certificate)) == EVP_PKEY_RSA;
}

void need_usable(X509* certificate, const std::string& name) {
  if (::X509_cmp_current_time(::X509_get0_notAfter(certificate)) <= 0) {
    throw Failure(name + " has expired: give a certificate that is good");
  }
  if (::X509_cmp_current_time(::X509_get0_notBefore(certificate)) > 0) {
    throw Failure(name + " is not good yet: give a certificate that is, or set the clock");
  }
  EVP_PKEY* const key = ::X509_get0_pubkey(certificate);
  const bool is_known =
      key != nullptr && (is_rsa(certificate) || ::EVP_PKEY_get_base_id(key) == EVP_PKEY_EC);
  if (!is_known) {
    throw Failure(name + " has a key to which nothing can be encrypted: use one with RSA or EC");
  }
  if (is_rsa(certificate) && ::EVP_PKEY_get_bits(key) < kLeastRsa) {
    throw Failure(fmt::format("{} has an RSA key of {} bits: use one with {} or more", name,
                              ::EVP_PKEY_get_bits(key), kLeastRsa));
  }
  if (::EVP_PKEY_get_security_bits(key) < kLeastSecurity) {
    throw Failure(name + " has a key on a curve that is too short: use P-256 or a longer one");
  }
  const auto wanted = is_rsa(certificate) ? X509v3_KU_KEY_ENCIPHERMENT : X509v3_KU_KEY_AGREEMENT;
  if ((::X509_get_key_usage(certificate) & static_cast<std::uint32_t>(wanted)) == 0) {
    throw Failure(fmt::format("{} is not made for encryption: its key usage lacks {}", name,
                              is_rsa(certificate) ? "keyEncipherment" : "keyAgreement"));
  }
}

// SHA-256 in place of the SHA-1 that CMS has by default, and OAEP in place of PKCS #1 v1.5.
bool add_to(CMS_ContentInfo* cms, X509* certificate) {
  CMS_RecipientInfo* const one = ::CMS_add1_recipient_cert(cms, certificate, CMS_KEY_PARAM);
  EVP_PKEY_CTX* const context = one == nullptr ? nullptr : ::CMS_RecipientInfo_get0_pkey_ctx(one);
  if (context == nullptr) return false;
  if (!is_rsa(certificate)) return ::EVP_PKEY_CTX_set_ecdh_kdf_md(context, ::EVP_sha256()) == 1;
  return ::EVP_PKEY_CTX_set_rsa_padding(context, RSA_PKCS1_OAEP_PADDING) == 1 &&
         ::EVP_PKEY_CTX_set_rsa_oaep_md(context, ::EVP_sha256()) == 1;
}

std::string der_of(X509* certificate) {
  unsigned char* bytes = nullptr;
  const int size = ::i2d_X509(certificate, &bytes);
  if (size < 0) throw std::bad_alloc();
  std::string text(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  ::OPENSSL_free(bytes);
  return text;
}

}  // namespace

void Recipients::add(std::string_view pem, const std::string& name) {
  const std::string file = printable(name);
  const Bio bio = bio_of(pem);
  bool was_asked = false;
  std::shared_ptr<X509> certificate(
      ::PEM_read_bio_X509(bio.get(), nullptr, no_passphrase, &was_asked), ::X509_free);
  ::ERR_clear_error();
  if (certificate == nullptr) throw Failure(file + " is no certificate in PEM");
  need_usable(certificate.get(), file);
  certificates_.push_back(std::move(certificate));
}

std::vector<std::string> Recipients::pems() const {
  std::vector<std::string> pems;
  for (const auto& certificate : certificates_) {
    const Bio bio(::BIO_new(::BIO_s_mem()));
    if (::PEM_write_bio_X509(bio.get(), certificate.get()) != 1) throw std::bad_alloc();
    pems.push_back(text_in(bio.get()));
  }
  return pems;
}

std::string Recipients::digest() const {
  std::set<std::string> digests;
  for (const auto& certificate : certificates_)
    digests.insert(digest_of(der_of(certificate.get())));
  std::string all;
  for (const auto& digest : digests) all += digest;
  return digest_of(all);
}

std::string Recipients::wrap(const ContentKey& key) const {
  if (certificates_.empty())
    throw Failure("a checkpoint is encrypted for somebody: give a certificate");
  const Cms cms(::CMS_encrypt(nullptr, nullptr, ::EVP_aes_256_gcm(), CMS_BINARY | CMS_PARTIAL));
  if (cms == nullptr) throw std::bad_alloc();
  const bool is_known =
      std::all_of(certificates_.begin(), certificates_.end(),
                  [&](const auto& each) { return add_to(cms.get(), each.get()); });
  const Bio content = bio_of(key.bytes()), out(::BIO_new(::BIO_s_mem()));
  const bool is_done = is_known &&
                       ::CMS_final(cms.get(), content.get(), nullptr, CMS_BINARY) == 1 &&
                       ::i2d_CMS_bio(out.get(), cms.get()) == 1;
  ::ERR_clear_error();
  if (!is_done) throw Failure("OpenSSL cannot encrypt to the certificates: use others");
  return text_in(out.get());
}

PrivateKey::PrivateKey(std::string_view pem, const std::string& name) : name_(printable(name)) {
  const Bio bio = bio_of(pem);
  bool was_asked = false;
  key_.reset(::PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, &was_asked),
             ::EVP_PKEY_free);
  ::ERR_clear_error();
  if (was_asked) {
    throw Failure(fmt::format(
        "{0} has a passphrase: write the key without one where nobody else reads it (openssl pkey "
        "-in {0} -out FILE)",
        name_));
  }
  if (key_ == nullptr) throw Failure(name_ + " is no private key in PEM");
}

ContentKey PrivateKey::unwrap(std::string_view wrapped, const std::string& path) const {
  const Bio in = bio_of(wrapped);
  const Cms cms(::d2i_CMS_bio(in.get(), nullptr));
  const Bio out(::BIO_new(::BIO_s_secmem()));
  const bool is_enveloped = cms != nullptr && ::OBJ_obj2nid(::CMS_get0_type(cms.get())) ==
                                                  NID_id_smime_ct_authEnvelopedData;
  const bool is_open = is_enveloped && ::CMS_decrypt(cms.get(), key_.get(), nullptr, nullptr,
                                                     out.get(), CMS_BINARY) == 1;
  ::ERR_clear_error();
  if (!is_enveloped) throw Failure(printable(path) + " is damaged: it is no wrapped key");
  if (!is_open) {
    throw WrongKey(fmt::format("{} does not open {}: the checkpoint is encrypted for others", name_,
                               printable(path)));
  }
  char* bytes = nullptr;
  const long size = ::BIO_get_mem_data(out.get(), &bytes);
  if (size != static_cast<long>(ContentKey::kBytes)) {
    throw Failure(printable(path) + " is damaged: what is wrapped in it is no content key");
  }
  return ContentKey({bytes, static_cast<std::size_t>(size)});
}

}  // namespace ferry::store
