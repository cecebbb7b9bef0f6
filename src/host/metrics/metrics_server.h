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

// Serves the page of metrics on one listening socket. Whoever connects has a time for all that is
// said, and few do so at once: more are turned away, and nobody else waits for them.
namespace ferry::host {

class Credentials;

class MetricsServer {
 public:
  using Page = std::function<std::string()>;
  static constexpr std::size_t kMostClients = 8;

  // `credentials`: of a TCP socket, inside TLS; who connects has to show the certificate of a host
  // or of a scraper. null: there is no TLS. `limit`: for a client.
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

// A listening UNIX socket in the place of what a former ferryd has left there. Root may connect,
// and members of `group`. Throws Failure.
UniqueFd listen_unix(const std::string& path, std::optional<gid_t> group);

// The id of a group, by its name or number. Throws Failure.
gid_t group_of(const std::string& name);

}  // namespace ferry::host
