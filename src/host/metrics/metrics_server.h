#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/unique_fd.h"

// Serves the page of metrics on one listening socket. A client has a limited time for its request and the answer, and
// a thread that serves it; when kMostClients are being served, further ones are turned away.
namespace ferry::host {

class Credentials;

class MetricsServer {
 public:
  using Page = std::function<std::string()>;
  static constexpr std::size_t kMostClients = 8;

  // `credentials`: for TLS on a TCP socket, where a client has to show the certificate of a host or of a scraper;
  // null: there is no TLS. `limit`: how long a client may take.
  MetricsServer(UniqueFd listener, const Credentials* credentials, Page page,
                std::chrono::milliseconds limit = std::chrono::seconds(5));
  ~MetricsServer();

 private:
  void accept_loop();
  void serve(UniqueFd socket) const;

  const UniqueFd listener_;
  const Credentials* const credentials_;
  const Page page_;
  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t serving_ = 0;
  bool stopping_ = false;
  std::thread acceptor_;
};

// Makes a listening UNIX socket in the place of what a former ferryd has left there. Root may connect, and members of
// `group`. Throws Failure.
UniqueFd listen_unix(const std::string& path, std::optional<gid_t> group);

// The id of a group, by its name or number. Throws Failure.
gid_t group_of(const std::string& name);

}  // namespace ferry::host
