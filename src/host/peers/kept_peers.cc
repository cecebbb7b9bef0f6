#include "host/peers/kept_peers.h"

#include "host/peers/peer.h"

namespace ferry::host {
namespace {

// Certificates are checked when a connection is made: no connection outlives its certificate by
// more.
constexpr std::chrono::minutes kLongest{10};

}  // namespace

std::shared_ptr<Peer> KeptPeers::get(const std::string& ferryd, const std::string& host) {
  const auto now = Clock::now();
  {
    std::lock_guard lock(mutex_);
    std::erase_if(kept_, [&](const auto& entry) { return now - entry.second.since > kLongest; });
    const auto found = kept_.find({ferryd, host});
    if (found != kept_.end()) return found->second.peer;
  }
  // Without the lock, for a name may take its time.
  auto peer = std::make_shared<Peer>(ferryd, credentials_, host);
  std::lock_guard lock(mutex_);
  return kept_.try_emplace({ferryd, host}, Kept{std::move(peer), now}).first->second.peer;
}

void KeptPeers::drop(const std::shared_ptr<Peer>& peer) {
  std::lock_guard lock(mutex_);
  std::erase_if(kept_, [&](const auto& entry) { return entry.second.peer == peer; });
}

}  // namespace ferry::host
