#include "host/peers/certificate.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>

#include "base/failure.h"

namespace ferry::host {
namespace {

constexpr long kSkew = 24 * 3600;     // seconds; a clock that is set to local time is 14 h off
constexpr std::size_t kSerial = 16;   // bytes; RFC 5280, 4.1.2.2 allows 20
constexpr std::size_t kMaxName = 64;  // characters of a common name: RFC 5280, A.1
constexpr char kHostUsage[] = "serverAuth,clientAuth";
// An OID made from a UUID, which needs no registration (ITU-T X.667).
constexpr char kScraperUsage[] = "2.25.166549456915524051632232847704295146862";

struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
  void operator()(EXTENDED_KEY_USAGE* usage) const { EXTENDED_KEY_USAGE_free(usage); }
  void operator()(X509_STORE* store) const { X509_STORE_free(store); }
  void operator()(X509_STORE_CTX* context) const { X509_STORE_CTX_free(context); }
};
using Bio = std::unique_ptr<BIO, BioFree>;

[[noreturn]] void fail(const std::string& what) {
  const std::string why = openssl_error();
  throw Failure(why.empty() ? what : what + ": " + why);
}

void need(bool done, const char* what) {
  if (!done) fail(fmt::format("cannot make a certificate ({})", what));
}

Bio reader(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string text_of(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  return std::string(bytes, static_cast<std::size_t>(size));
}

// The numeric address in its usual form, or "" for what is none.
std::string canonical_address(const std::string& text) {
  std::array<unsigned char, 16> bytes{};
  std::array<char, INET6_ADDRSTRLEN> out{};
  for (const int family : {AF_INET, AF_INET6}) {
    if (::inet_pton(family, text.c_str(), bytes.data()) == 1) {
      return ::inet_ntop(family, bytes.data(), out.data(), out.size());
    }
  }
  return {};
}

void add_extension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  need(extension != nullptr, value.c_str());
  const int added = X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
  need(added == 1, value.c_str());
}

// In OpenSSL's notation, in which a comma begins another name.
std::string subject_alternative_names(const Identity& identity) {
  std::string value;
  const auto add = [&](const char* kind, const std::string& text) {
    const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':';
    });
    if (!plain) throw Failure(fmt::format("'{}' is no name of a host", printable(text)));
    if (!value.empty()) value += ",";
    value += kind + text;
  };
  for (const auto& name : identity.names) {
    if (canonical_address(name).empty()) add("DNS:", name);
  }
  for (const auto& address : identity.addresses) add("IP:", address);
  return value;
}

// A certificate that lacks its extensions and its signature.
Certificate blank(const std::string& name, EVP_PKEY* key, Days valid) {
  if (name.empty() || name.size() > kMaxName) {
    throw Failure(
        fmt::format("'{}' is no name for a certificate (1 to {} characters)", name, kMaxName));
  }
  Certificate certificate(X509_new());
  need(certificate != nullptr, "memory");
  need(X509_set_version(certificate.get(), X509_VERSION_3) == 1, "version");
  std::array<unsigned char, kSerial> serial;
  need(RAND_bytes(serial.data(), serial.size()) == 1, "random bytes");
  serial[0] = (serial[0] & 0x7F) | 0x40;  // positive, and never shorter
  BIGNUM* number = BN_bin2bn(serial.data(), serial.size(), nullptr);
  need(number != nullptr &&
           BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate.get())) != nullptr,
       "serial number");
  BN_free(number);
  const long seconds = std::chrono::seconds(valid).count();
  need(X509_gmtime_adj(X509_getm_notBefore(certificate.get()), std::min(0L, seconds) - kSkew) !=
               nullptr &&
           X509_gmtime_adj(X509_getm_notAfter(certificate.get()), seconds) != nullptr,
       "time");
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  need(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                                  reinterpret_cast<const unsigned char*>(name.data()),
                                  static_cast<int>(name.size()), -1, 0) == 1,
       "name");
  need(X509_set_pubkey(certificate.get(), key) == 1, "key");
  return certificate;
}

KeyAndCertificate sign(X509* certificate, EVP_PKEY* key, EVP_PKEY* signer) {
  need(X509_sign(certificate, signer, EVP_sha256()) > 0, "signature");
  const Bio key_text(BIO_new(BIO_s_mem())), certificate_text(BIO_new(BIO_s_mem()));
  need(PEM_write_bio_PrivateKey(key_text.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1 &&
           PEM_write_bio_X509(certificate_text.get(), certificate) == 1,
       "PEM");
  return {text_of(key_text.get()), text_of(certificate_text.get())};
}

PrivateKey new_key() {
  PrivateKey key(EVP_EC_gen("P-256"));
  need(key != nullptr, "key");
  return key;
}

KeyAndCertificate issue(const KeyAndCertificate& ca, const Identity& identity, const char* usage,
                        Days valid) {
  const Certificate issuer = parse_certificate(ca.certificate);
  const PrivateKey signer = parse_key(ca.key);
  const PrivateKey key = new_key();
  const Certificate certificate = blank(identity.name, key.get(), valid);
  X509* self = certificate.get();
  need(X509_set_issuer_name(self, X509_get_subject_name(issuer.get())) == 1, "issuer");
  add_extension(self, issuer.get(), NID_basic_constraints, "critical,CA:FALSE");
  add_extension(self, issuer.get(), NID_key_usage, "critical,digitalSignature");
  add_extension(self, issuer.get(), NID_ext_key_usage, usage);
  add_extension(self, issuer.get(), NID_subject_key_identifier, "hash");
  add_extension(self, issuer.get(), NID_authority_key_identifier, "keyid");
  add_extension(self, issuer.get(), NID_subject_alt_name, subject_alternative_names(identity));
  return sign(self, key.get(), signer.get());
}

}  // namespace

void OpensslFree::operator()(X509* certificate) const {
  X509_free(certificate);
}

void OpensslFree::operator()(EVP_PKEY* key) const {
  EVP_PKEY_free(key);
}

bool Identity::covers(const std::string& host) const {
  if (const std::string address = canonical_address(host); !address.empty()) {
    return std::count(addresses.begin(), addresses.end(), address) > 0;
  }
  const auto same = [&](const std::string& candidate) {
    return std::equal(candidate.begin(), candidate.end(), host.begin(), host.end(),
                      [](char a, char b) {
                        const auto lower = [](char c) {
                          return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
                        };
                        return lower(a) == lower(b);
                      });
  };
  return std::any_of(names.begin(), names.end(), same);
}

std::string openssl_error() {
  const unsigned long first = ERR_get_error();
  ERR_clear_error();
  if (first == 0) return {};
  const char* reason = ERR_reason_error_string(first);
  return reason != nullptr ? reason : fmt::format("OpenSSL error {:#x}", first);
}

Certificate parse_certificate(const std::string& pem) {
  Certificate certificate(PEM_read_bio_X509(reader(pem).get(), nullptr, nullptr, nullptr));
  if (!certificate) fail("there is no certificate");
  return certificate;
}

PrivateKey parse_key(const std::string& pem) {
  // A key behind a passphrase would make OpenSSL ask for it on the terminal.
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  PrivateKey key(PEM_read_bio_PrivateKey(reader(pem).get(), nullptr, no_passphrase, nullptr));
  if (!key) fail("there is no private key");
  return key;
}

Identity identity_of(X509* certificate) {
  Identity identity;
  X509_NAME* subject = X509_get_subject_name(certificate);
  if (const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1); at >= 0) {
    unsigned char* text = nullptr;
    const int size =
        ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    if (size >= 0) {
      identity.name =
          printable(std::string(reinterpret_cast<char*>(text), static_cast<std::size_t>(size)));
      OPENSSL_free(text);
    }
  }
  const std::unique_ptr<GENERAL_NAMES, BioFree> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  const int count = names ? sk_GENERAL_NAME_num(names.get()) : 0;
  for (int i = 0; i < count; ++i) {
    const GENERAL_NAME* entry = sk_GENERAL_NAME_value(names.get(), i);
    int kind = 0;
    const auto* value = static_cast<const ASN1_STRING*>(GENERAL_NAME_get0_value(entry, &kind));
    if (kind != GEN_DNS && kind != GEN_IPADD) continue;
    const unsigned char* bytes = ASN1_STRING_get0_data(value);
    const auto size = static_cast<std::size_t>(ASN1_STRING_length(value));
    if (kind == GEN_DNS) {
      identity.names.push_back(printable(std::string(reinterpret_cast<const char*>(bytes), size)));
      continue;
    }
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (size != 4 && size != 16) continue;
    ::inet_ntop(size == 4 ? AF_INET : AF_INET6, bytes, text.data(), text.size());
    identity.addresses.emplace_back(text.data());
  }
  return identity;
}

std::chrono::system_clock::time_point end_of(X509* certificate) {
  std::tm time{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &time) != 1) return {};
  return std::chrono::system_clock::from_time_t(::timegm(&time));
}

std::string problem_with(X509* certificate, X509* ca) {
  const std::unique_ptr<X509_STORE, BioFree> store(X509_STORE_new());
  const std::unique_ptr<X509_STORE_CTX, BioFree> context(X509_STORE_CTX_new());
  if (!store || !context || X509_STORE_add_cert(store.get(), ca) != 1 ||
      X509_STORE_CTX_init(context.get(), store.get(), certificate, nullptr) != 1) {
    return openssl_error();
  }
  if (X509_verify_cert(context.get()) == 1) return {};
  return X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
}

bool is_scraper(X509* certificate) {
  const std::unique_ptr<EXTENDED_KEY_USAGE, BioFree> usage(static_cast<EXTENDED_KEY_USAGE*>(
      X509_get_ext_d2i(certificate, NID_ext_key_usage, nullptr, nullptr)));
  const int count = usage ? sk_ASN1_OBJECT_num(usage.get()) : 0;
  for (int i = 0; i < count; ++i) {
    std::array<char, 80> text{};
    OBJ_obj2txt(text.data(), text.size(), sk_ASN1_OBJECT_value(usage.get(), i), 1);
    if (std::string(text.data()) == kScraperUsage) return true;
  }
  return false;
}

KeyAndCertificate make_ca(const std::string& name, Days valid) {
  const PrivateKey key = new_key();
  const Certificate certificate = blank(name, key.get(), valid);
  X509* self = certificate.get();
  need(X509_set_issuer_name(self, X509_get_subject_name(self)) == 1, "issuer");
  add_extension(self, self, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(self, self, NID_key_usage, "critical,keyCertSign,cRLSign");
  add_extension(self, self, NID_subject_key_identifier, "hash");
  return sign(self, key.get(), key.get());
}

KeyAndCertificate make_host_certificate(const KeyAndCertificate& ca, const Identity& identity,
                                        Days valid) {
  return issue(ca, identity, kHostUsage, valid);
}

KeyAndCertificate make_scraper_certificate(const KeyAndCertificate& ca, const std::string& name,
                                           Days valid) {
  return issue(ca, {name, {name}, {}}, kScraperUsage, valid);
}

}  // namespace ferry::host
