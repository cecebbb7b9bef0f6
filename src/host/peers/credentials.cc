#include "host/peers/credentials.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <grpcpp/grpcpp.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/failure.h"
#include "base/net.h"

namespace ferry::host {
namespace {

// The first is the fastest on processors with AES instructions.
constexpr char kCiphers[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

std::string read(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) {
    throw Failure(fmt::format("cannot read {}: {}; make it with: ferry ca init, or ferry host join",
                              path, error_text(errno)));
  }
  return text.str();
}

using Signing = std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)>;

void need_private(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return;  // read() says why
  if ((status.st_mode & 077) != 0 || (status.st_uid != 0 && status.st_uid != ::geteuid())) {
    throw Failure(fmt::format(
        "{} can be read by others; take that away: chmod 600 {}, and make it root's", path, path));
  }
}

}  // namespace

bool Credentials::exist(const std::string& directory) {
  std::error_code ignored;
  return std::filesystem::exists(directory + "/" + kCertificateFile, ignored);
}

Credentials Credentials::load(const std::string& directory) {
  const std::string key = directory + "/" + kKeyFile;
  need_private(key);
  try {
    return {read(directory + "/" + kCaFile), read(directory + "/" + kCertificateFile), read(key)};
  } catch (const Failure& failure) {
    throw Failure(fmt::format("the certificates in {}: {}", directory, failure.what()));
  }
}

Credentials::Credentials(const std::string& ca, const std::string& certificate,
                         const std::string& key)
    : ca_(ca), certificate_(certificate), key_(key) {
  const Certificate issuer = parse_certificate(ca), own = parse_certificate(certificate);
  const PrivateKey private_key = parse_key(key);
  identity_ = identity_of(own.get());
  end_ = end_of(own.get());
  if (const std::string problem = problem_with(own.get(), issuer.get()); !problem.empty()) {
    throw Failure(
        fmt::format("the certificate of {} is not good ({}); make another: ferry host "
                    "add {}, on the CA's host",
                    identity_.name, problem, identity_.name));
  }
  if (is_scraper(own.get())) {
    throw Failure(
        fmt::format("the certificate of {} is a scraper's, for metrics only; make that "
                    "of a host: ferry host add, on the CA's host",
                    identity_.name));
  }
  context_.reset(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  SSL_CTX* context = context_.get();
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, kCiphers) != 1 ||
      SSL_CTX_use_certificate(context, own.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context, private_key.get()) != 1 ||
      SSL_CTX_check_private_key(context) != 1 ||
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context), issuer.get()) != 1) {
    throw Failure(fmt::format("the key and the certificate of {} do not go together ({})",
                              identity_.name, openssl_error()));
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_num_tickets(context, 0);  // nobody comes back to a session
  SSL_CTX_set_mode(context, SSL_MODE_AUTO_RETRY);
}

std::shared_ptr<grpc::ChannelCredentials> Credentials::channel() const {
  return grpc::SslCredentials(
      {.pem_root_certs = ca_, .pem_private_key = key_, .pem_cert_chain = certificate_});
}

std::shared_ptr<grpc::ServerCredentials> Credentials::server() const {
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = ca_;
  options.pem_key_cert_pairs.push_back({key_, certificate_});
  return grpc::SslServerCredentials(options);
}

std::string Credentials::sign(const std::string& text) const {
  const PrivateKey key = parse_key(key_);
  const Signing signing(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  std::size_t size = 0;
  std::vector<unsigned char> signature;
  if (EVP_DigestSignInit(signing.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1 &&
      EVP_DigestSign(signing.get(), nullptr, &size, bytes, text.size()) == 1) {
    signature.resize(size);
    if (EVP_DigestSign(signing.get(), signature.data(), &size, bytes, text.size()) == 1)
      return {signature.begin(), signature.begin() + static_cast<std::ptrdiff_t>(size)};
  }
  throw Failure(fmt::format("the key of {} does not sign ({})", identity_.name, openssl_error()));
}

void Credentials::verify(const std::string& text, const std::string& signature,
                         const std::string& certificate, const std::string& host) const {
  const Certificate signer = parse_certificate(certificate), ca = parse_certificate(ca_);
  std::string problem = problem_with(signer.get(), ca.get());
  if (problem.empty() && is_scraper(signer.get())) problem = "it is a scraper's";
  if (problem.empty() && !identity_of(signer.get()).covers(host)) problem = "it is another host's";
  if (!problem.empty()) {
    throw Failure(fmt::format("refused: the certificate under a signature of {} is not good ({})",
                              host, problem));
  }
  const Signing signing(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (EVP_DigestVerifyInit(signing.get(), nullptr, EVP_sha256(), nullptr,
                           X509_get0_pubkey(signer.get())) != 1 ||
      EVP_DigestVerify(signing.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                       signature.size(), reinterpret_cast<const unsigned char*>(text.data()),
                       text.size()) != 1) {
    openssl_error();
    throw Failure(fmt::format("refused: a signature is not of {}", host));
  }
}

Caller caller_of(const grpc::ServerContext& context) {
  Caller caller;
  caller.address = address_of_peer(context.peer());
  const auto values = context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (values.empty()) return caller;
  caller.identity = identity_of(
      parse_certificate(std::string(values.front().data(), values.front().size())).get());
  caller.name = caller.identity.name;
  if (!caller.identity.addresses.empty() && !caller.identity.covers(caller.address)) {
    throw Failure(
        fmt::format("refused: the certificate of {} is not for {}, from where it calls; make "
                    "another, on the CA's host: "
                    "ferry host add {} --also {}",
                    caller.name, caller.address, caller.name, caller.address));
  }
  return caller;
}

}  // namespace ferry::host
