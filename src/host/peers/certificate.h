#pragma once

#include <openssl/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

// X.509 certificates of hosts, of scrapers, and of the CA that vouches for them (RFC 5280), made and
// read with OpenSSL. Keys are ECDSA on P-256. Texts are PEM.
//
// What a certificate is for is its extended key usage. A host's has that of TLS servers and of TLS
// clients, for which OpenSSL, and so gRPC, looks by itself. A scraper, which reads metrics, has one
// of ours in place of them: whoever does not ask for that one refuses it.
namespace ferry::host {

struct OpensslFree {
  void operator()(X509* certificate) const;
  void operator()(EVP_PKEY* key) const;
};
using Certificate = std::unique_ptr<X509, OpensslFree>;
using PrivateKey = std::unique_ptr<EVP_PKEY, OpensslFree>;

// The subject of a certificate.
struct Identity {
  std::string name;                // common name: what the host's ferryd calls itself
  std::vector<std::string> names;  // by which others may call it (subjectAltName), name included
  std::vector<std::string> addresses;  // numeric: where it calls from and is called; none: any

  // True when a host that users call so, by name or numeric address, may show this certificate.
  bool covers(const std::string& host) const;
};

struct KeyAndCertificate {
  std::string key, certificate;  // PEM
};

// Throw Failure when the text holds none.
Certificate parse_certificate(const std::string& pem);
PrivateKey parse_key(const std::string& pem);

Identity identity_of(X509* certificate);
std::chrono::system_clock::time_point end_of(X509* certificate);  // notAfter
// "", or why `certificate` is not valid now as one of this CA's.
std::string problem_with(X509* certificate, X509* ca);

bool is_scraper(X509* certificate);

using Days = std::chrono::duration<long, std::ratio<86400>>;
// Throw Failure. A certificate is valid from an hour ago, for clocks that differ; `valid` below 0
// makes one that has expired.
KeyAndCertificate make_ca(const std::string& name, Days valid);
KeyAndCertificate make_host_certificate(const KeyAndCertificate& ca, const Identity& identity,
                                        Days valid);
KeyAndCertificate make_scraper_certificate(const KeyAndCertificate& ca, const std::string& name,
                                           Days valid);

// "" when there is nothing in OpenSSL's queue of errors; empties it.
std::string openssl_error();

}  // namespace ferry::host
