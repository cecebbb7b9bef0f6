#include "host/peers/stream.h"

#include <fmt/core.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/failure.h"
#include "host/peers/credentials.h"

namespace ferry::host {
namespace {

// Alerts (RFC 8446, 6.2) with which the other side refuses this host's certificate.
bool is_refusal(unsigned long error) {
  switch (ERR_GET_REASON(error)) {
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN: return true;
    default: return false;
  }
}

// OpenSSL asks these two about what it objects to in the certificate of a client.
bool is_about_scraper(X509_STORE_CTX* context) {
  return X509_STORE_CTX_get_error(context) == X509_V_ERR_INVALID_PURPOSE &&
         X509_STORE_CTX_get_error_depth(context) == 0 &&
         is_scraper(X509_STORE_CTX_get_current_cert(context));
}

int refuse_scrapers(int is_good, X509_STORE_CTX* context) {
  if (is_good == 1 || !is_about_scraper(context)) return is_good;
  X509_STORE_CTX_set_error(context, X509_V_ERR_CERT_REJECTED);
  return 0;
}

int allow_scrapers(int is_good, X509_STORE_CTX* context) {
  if (is_good == 1 || !is_about_scraper(context)) return is_good;
  X509_STORE_CTX_set_error(context, X509_V_OK);
  return 1;
}

// Why a handshake that the other side began has failed.
std::string refusal_of_client(SSL* ssl) {
  const long verdict = SSL_get_verify_result(ssl);
  const std::string reason = openssl_error();
  if (verdict == X509_V_ERR_CERT_REJECTED) {
    return "it shows the certificate of a scraper, which is for metrics only";
  }
  if (verdict != X509_V_OK) return X509_verify_cert_error_string(verdict);
  return reason.empty() ? "it closed the connection" : reason;
}

// Why a handshake that this side began has failed.
std::string refusal_of(SSL* ssl, const std::string& host) {
  const long verdict = SSL_get_verify_result(ssl);
  if (verdict != X509_V_OK) {
    return fmt::format(
        "refused: the certificate of {} is not of this host's CA ({}); join both to one: ferry "
        "host add",
        host, X509_verify_cert_error_string(verdict));
  }
  const unsigned long error = ERR_peek_error();
  if (ERR_GET_REASON(error) == SSL_R_WRONG_VERSION_NUMBER ||
      ERR_GET_REASON(error) == SSL_R_UNEXPECTED_MESSAGE) {
    return fmt::format("{} does not speak TLS; was its ferryd started with --insecure?", host);
  }
  const std::string reason = openssl_error();
  return fmt::format("{} breaks off the TLS handshake ({})", host,
                     reason.empty() ? "it closed the connection" : reason);
}

}  // namespace

void Stream::Free::operator()(SSL* ssl) const {
  SSL_free(ssl);
}

void Stream::start(const Credentials& credentials) {
  ssl_.reset(SSL_new(credentials.context()));
  if (!ssl_ || SSL_set_fd(ssl_.get(), socket_.get()) != 1) {
    throw Failure("cannot start TLS: " + openssl_error());
  }
}

void Stream::take_peer() {
  const Certificate shown(SSL_get1_peer_certificate(ssl_.get()));
  if (shown) peer_ = identity_of(shown.get()).name;
}

Stream Stream::to_server(UniqueFd socket, const Credentials* credentials, const std::string& host,
                         const std::string& protocol) {
  Stream stream(std::move(socket));
  if (credentials == nullptr) return stream;
  stream.start(*credentials);
  SSL* ssl = stream.ssl_.get();
  if (!protocol.empty()) {
    const std::string list = static_cast<char>(protocol.size()) + protocol;
    SSL_set_alpn_protos(ssl, reinterpret_cast<const unsigned char*>(list.data()),
                        static_cast<unsigned>(list.size()));
  }
  ERR_clear_error();
  if (SSL_connect(ssl) != 1) throw Failure(refusal_of(ssl, host));
  stream.take_peer();
  const Certificate shown(SSL_get1_peer_certificate(ssl));
  if (X509_check_ip_asc(shown.get(), host.c_str(), 0) != 1 &&
      X509_check_host(shown.get(), host.c_str(), host.size(), X509_CHECK_FLAG_NO_WILDCARDS,
                      nullptr) != 1) {
    throw Failure(fmt::format(
        "refused: {} shows the certificate of {}, which is not for '{}'; make one that is, on the "
        "CA's host: ferry host add {} --also {}",
        host, stream.peer_, host, stream.peer_, host));
  }
  return stream;
}

Stream Stream::to_client(UniqueFd socket, const Credentials* credentials, Clients clients) {
  Stream stream(std::move(socket));
  if (credentials == nullptr) return stream;
  stream.start(*credentials);
  SSL* ssl = stream.ssl_.get();
  SSL_set_verify(ssl, SSL_get_verify_mode(ssl),
                 clients == Clients::kHosts ? refuse_scrapers : allow_scrapers);
  ERR_clear_error();
  if (SSL_accept(ssl) != 1) throw Failure(refusal_of_client(ssl));
  stream.take_peer();
  return stream;
}

// The errno of an operation that has not moved a byte.
int Stream::error_of(int result) const {
  const int system_error = errno;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_ZERO_RETURN: return EPIPE;
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:  // a socket with a limit on waiting is not waited for again
      return system_error == EINTR ? EINTR : ETIMEDOUT;
    case SSL_ERROR_SYSCALL: return system_error != 0 ? system_error : EPIPE;
    default: break;
  }
  const unsigned long error = ERR_peek_error();
  ERR_clear_error();
  if (is_refusal(error)) return EACCES;
  return ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING ? EPIPE : EPROTO;
}

int Stream::send(const void* data, std::size_t size, bool more) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    std::size_t sent = 0;
    if (ssl_) {
      ERR_clear_error();
      errno = 0;
      if (const int result = SSL_write_ex(ssl_.get(), bytes, size, &sent); result != 1) {
        if (const int error = error_of(result); error != EINTR) return error;
        continue;
      }
    } else {
      const ssize_t result =
          ::send(socket_.get(), bytes, size, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
      if (result < 0 && errno == EINTR) continue;
      if (result < 0) return errno == EAGAIN ? ETIMEDOUT : errno;
      sent = static_cast<std::size_t>(result);
    }
    bytes += sent;
    size -= sent;
  }
  return 0;
}

int Stream::receive_part(void* data, std::size_t size, int flags, std::size_t* received) {
  for (;;) {
    if (ssl_) {
      ERR_clear_error();
      errno = 0;
      if (const int result = SSL_read_ex(ssl_.get(), data, size, received); result != 1) {
        if (const int error = error_of(result); error != EINTR) return error;
        continue;
      }
    } else {
      const ssize_t result = ::recv(socket_.get(), data, size, flags);
      if (result < 0 && errno == EINTR) continue;
      if (result < 0) return errno == EAGAIN ? ETIMEDOUT : errno;
      if (result == 0) return EPIPE;
      *received = static_cast<std::size_t>(result);
    }
    received_ += *received;
    return 0;
  }
}

int Stream::receive(void* data, std::size_t size) {
  char* bytes = static_cast<char*>(data);
  while (size > 0) {
    std::size_t received = 0;
    if (const int error = receive_part(bytes, size, MSG_WAITALL, &received)) return error;
    bytes += received;
    size -= received;
  }
  return 0;
}

int Stream::receive_some(void* data, std::size_t size, std::size_t* received) {
  return receive_part(data, size, 0, received);
}

}  // namespace ferry::host
