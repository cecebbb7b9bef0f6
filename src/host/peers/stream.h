#pragma once

#include <openssl/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/unique_fd.h"

namespace ferry::host {

class Credentials;

// A host that has answered nothing for so long while something is asked of it, or an image is on its
// way there, is taken for gone: it has no power, or no network leads there.
inline constexpr std::chrono::milliseconds kHostSilence{10'000};

// A TCP connection between ferryds, inside TLS 1.3 when this host has credentials. Blocking; the
// socket's own timeouts hold. The process ignores SIGPIPE.
class Stream {
 public:
  // For the side that connected. `host`: the name that the other side's certificate must have.
  // Without credentials there is no TLS. `protocol`: ALPN, or empty. Throws Failure that says why
  // the other side is refused; when the other side refuses this one, receive() tells.
  static Stream to_server(UniqueFd socket, const Credentials* credentials, const std::string& host,
                          const std::string& protocol = {});
  // For the side that accepted; the other side's certificate is that of such a client of the CA's.
  // Throws Failure.
  enum class Clients { kHosts, kHostsAndScrapers };
  static Stream to_client(UniqueFd socket, const Credentials* credentials,
                          Clients clients = Clients::kHosts);

  // Name in the other's certificate; empty without TLS.
  const std::string& peer() const { return peer_; }
  int socket() const { return socket_.get(); }
  std::uint64_t received() const { return received_; }  // bytes, so far

  // Move all bytes, or give errno: ETIMEDOUT, EPIPE at the end of the stream, EACCES when the other
  // side refuses this host's certificate, EPROTO when it breaks TLS. `more`: the next bytes follow
  // at once.
  int send(const void* data, std::size_t size, bool more = false);
  int receive(void* data, std::size_t size);
  // Waits for the first bytes, and gives how many came.
  int receive_some(void* data, std::size_t size, std::size_t* received);

 private:
  struct Free {
    void operator()(SSL* ssl) const;
  };

  explicit Stream(UniqueFd socket) : socket_(std::move(socket)) {}
  void start(const Credentials& credentials);
  void take_peer();
  int error_of(int result) const;
  int receive_part(void* data, std::size_t size, int flags, std::size_t* received);

  UniqueFd socket_;
  std::unique_ptr<SSL, Free> ssl_;
  std::string peer_;
  std::uint64_t received_ = 0;
};

}  // namespace ferry::host
