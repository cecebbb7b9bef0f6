#pragma once

#include <openssl/types.h>

#include <chrono>
#include <memory>
#include <string>

#include "host/peers/certificate.h"

namespace grpc {
class ChannelCredentials;
class ServerContext;
class ServerCredentials;
}  // namespace grpc

// What this host shows to the ferryds of other hosts, and whom it believes: TLS with certificates
// on both sides, over gRPC and for images. A directory holds
//
//   ca.pem     the CA's certificate
//   host.pem   this host's
//   host.key   its private key: 0600
namespace ferry::host {

inline constexpr char kTlsDirectory[] = "/etc/ferry/tls";
inline constexpr char kCaFile[] = "ca.pem", kCertificateFile[] = "host.pem",
                      kKeyFile[] = "host.key";

class Credentials {
 public:
  // Throw Failure: something is missing, unreadable, expired, or does not fit together; a key that
  // others may read.
  static Credentials load(const std::string& directory);
  Credentials(const std::string& ca, const std::string& certificate, const std::string& key);

  // True when the directory has a host's certificate.
  static bool exist(const std::string& directory);

  const Identity& identity() const { return identity_; }
  std::chrono::system_clock::time_point end() const { return end_; }

  std::shared_ptr<grpc::ChannelCredentials> channel() const;
  std::shared_ptr<grpc::ServerCredentials> server() const;
  const std::string& certificate() const { return certificate_; }  // PEM
  // A signature of this host's key: ECDSA over SHA-256, in DER. Throws Failure.
  std::string sign(const std::string& text) const;
  // Throws Failure unless the holder of `certificate` (PEM), which has to be one of this CA's for `host` (a name or
  // an address), has signed the text.
  void verify(const std::string& text, const std::string& signature, const std::string& certificate,
              const std::string& host) const;
  // TLS 1.3 for both roles, each demanding the other's certificate.
  SSL_CTX* context() const { return context_.get(); }

 private:
  std::string ca_, certificate_, key_;
  Identity identity_;
  std::chrono::system_clock::time_point end_;
  std::shared_ptr<SSL_CTX> context_;
};

// The caller of a call from another ferryd, by its certificate.
struct Caller {
  std::string name;     // of the host; empty: nobody asked for certificates (--insecure)
  std::string address;  // numeric
  Identity identity;
};
// Throws Failure when the certificate is not for the address that the call comes from.
Caller caller_of(const grpc::ServerContext& context);

}  // namespace ferry::host
