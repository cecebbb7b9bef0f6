#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace ferry::host {

class Credentials;
class Peer;

// Connections to the ferryds that this one asks again and again. A connection lasts from one
// question to the next, because its handshake costs both sides more than the question. Any thread
// may call.
class KeptPeers {
 public:
  explicit KeptPeers(const Credentials* credentials) : credentials_(credentials) {}

  // The ferryd of `host`, at `ferryd`, as Peer takes them. Throws Failure for an unknown host.
  std::shared_ptr<Peer> get(const std::string& ferryd, const std::string& host);

  // A call of `peer` has failed: the next get() gives another, which resolves the name again and
  // connects at once.
  void drop(const std::shared_ptr<Peer>& peer);

 private:
  using Clock = std::chrono::steady_clock;
  struct Kept {
    std::shared_ptr<Peer> peer;
    Clock::time_point since;
  };

  const Credentials* const credentials_;
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Kept> kept_;  // by ferryd and host
};

}  // namespace ferry::host
