#include "host/directory/hosts_directory.h"

#include <algorithm>

#include "base/failure.h"
#include "base/log.h"
#include "ferry.pb.h"
#include "host/directory/places.h"
#include "host/peers/kept_peers.h"
#include "host/peers/peer.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAnswer{400};     // for a host to answer
constexpr milliseconds kLookEvery{500};  // at the places that are watched
// How long it is told that an RNIC has left or ended: for longer than anybody may ask for it.
constexpr std::chrono::minutes kRemembered{15};

}  // namespace

HostsDirectory::HostsDirectory(std::string self, const Credentials* credentials,
                               std::map<std::string, std::string> hosts)
    : self_(std::move(self)),
      peers_(std::make_shared<KeptPeers>(credentials)),
      hosts_(std::move(hosts)) {
  hosts_.erase(self_);
  thread_ = std::thread([this] { look(); });
}

HostsDirectory::~HostsDirectory() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void HostsDirectory::met(const std::string& ferryd, const std::string& host) {
  std::lock_guard lock(mutex_);
  if (ferryd != self_ && !ferryd.empty()) hosts_.emplace(ferryd, host);
}

std::map<std::string, std::string> HostsDirectory::hosts() const {
  std::lock_guard lock(mutex_);
  return hosts_;
}

void HostsDirectory::take(const Place& place) {
  std::lock_guard lock(mutex_);
  Known& known = known_[place.origin];
  const bool older =
      place.epoch < known.place.epoch || (place.epoch == known.place.epoch && known.place.ended);
  if (!older) known = {place, Clock::now()};
}

// Takes what others tell if it is news: else they would tell it to each other for ever. The ferryd
// at that place is asked from now on: it may be the only one that hears of the next place.
void HostsDirectory::learn(const Place& place) {
  if (!place.ended) met(place.ferryd, place.host);
  if (told(place.origin) != place) take(place);
}

void HostsDirectory::put(const Place& place) {
  take(place);
}

void HostsDirectory::renew(const Place& place) {
  std::lock_guard lock(mutex_);
  known_[place.origin] = {place, Clock::now()};
}

void HostsDirectory::left(const Place& next) {
  met(next.ferryd, next.host);
  take(next);
}

void HostsDirectory::remove(const Place& place) {
  std::lock_guard lock(mutex_);
  const auto found = known_.find(place.origin);
  if (found == known_.end() || found->second.place.epoch > place.epoch) return;
  found->second.place.ended = true;
  found->second.since = Clock::now();
}

std::optional<Place> HostsDirectory::told(const port::Endpoint& origin) const {
  std::lock_guard lock(mutex_);
  const auto found = known_.find(origin);
  return found == known_.end() ? std::nullopt : std::optional(found->second.place);
}

void HostsDirectory::forget_old() {
  const auto now = Clock::now();
  std::lock_guard lock(mutex_);
  std::erase_if(known_, [&](const auto& entry) {
    const bool is_here = entry.second.place.ferryd == self_ && !entry.second.place.ended;
    return !is_here && now - entry.second.since > kRemembered;
  });
}

HostsDirectory::Answers HostsDirectory::ask(const port::Endpoint& origin) {
  // Threads that wait for a host which is not there are left behind: what they share lives on.
  struct Round {
    std::mutex mutex;
    std::condition_variable changed;
    Answers answers;
    std::size_t waiting = 0;
    bool enough = false;
  };
  std::map<std::string, std::string> hosts;
  {
    std::lock_guard lock(mutex_);
    hosts = hosts_;
  }
  const auto round = std::make_shared<Round>();
  round->waiting = hosts.size();
  round->answers.asked = !hosts.empty();
  for (const auto& [ferryd, host] : hosts) {
    std::thread([round, ferryd = ferryd, host = host, origin, peers = peers_] {
      v1::LocateReply reply;
      bool heard = false;
      try {
        v1::LocateRequest request;
        to_message(origin, request.mutable_origin());
        const auto peer = peers->get(ferryd, host);
        heard = peer->try_call(request, &reply, kAnswer).ok();
        if (!heard) peers->drop(peer);
      } catch (const std::exception&) {
        // The name does not resolve now: one host less.
      }
      std::lock_guard lock(round->mutex);
      --round->waiting;
      round->answers.heard |= heard;
      if (const auto place = from_message(reply.place())) {
        round->answers.places.push_back(*place);
        if (place->host == reply.host() && !place->ended) {
          round->answers.living = *place;
          round->enough = true;
        }
      }
      round->changed.notify_all();
    }).detach();
  }
  std::unique_lock lock(round->mutex);
  round->changed.wait_for(lock, kAnswer + milliseconds(100),
                          [&] { return round->waiting == 0 || round->enough; });
  return round->answers;
}

std::optional<Place> HostsDirectory::latest(const port::Endpoint& origin) {
  const auto known = told(origin);
  if (known && known->ferryd == self_ && !known->ended) return known;
  Answers answers = ask(origin);
  if (answers.asked && !answers.heard && !known) throw Failure("no other ferryd answers");
  std::vector<Place>& places = answers.places;
  if (known) places.push_back(*known);
  const auto latest = std::max_element(places.begin(), places.end(), [](auto& a, auto& b) {
    return a.epoch != b.epoch ? a.epoch < b.epoch : a.ended < b.ended;
  });
  if (latest == places.end() || latest->origin != origin) return std::nullopt;
  // It may have ended somewhere else and been restarted from the same checkpoint, which has its epoch.
  const auto& living = answers.living;
  if (latest->ended && living && living->origin == origin && living->epoch == latest->epoch) {
    return living;
  }
  return *latest;
}

std::optional<Place> HostsDirectory::lookup(const port::Endpoint& origin) {
  const auto place = latest(origin);
  return place && !place->ended ? place : std::nullopt;
}

// --- Watching

void HostsDirectory::watch(const port::Endpoint& origin, Watcher watcher) {
  std::lock_guard lock(watching_);
  watched_[origin] = {std::move(watcher), std::nullopt, false};
}

void HostsDirectory::unwatch(const port::Endpoint& origin) {
  std::lock_guard lock(watching_);
  watched_.erase(origin);
}

// Asks all hosts for the RNICs that are watched.
void HostsDirectory::look() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, kLookEvery, [this] { return stopping_; })) return;
    }
    forget_old();
    std::vector<port::Endpoint> origins;
    {
      std::lock_guard lock(watching_);
      for (const auto& [origin, watched] : watched_) origins.push_back(origin);
    }
    for (const auto& origin : origins) {
      std::optional<Place> place;
      try {
        place = latest(origin);
      } catch (const Failure&) {
      }
      if (place) learn(*place);
      std::lock_guard lock(watching_);
      const auto found = watched_.find(origin);
      if (found == watched_.end()) continue;
      Watched& watched = found->second;
      if (watched.told && watched.last == place) continue;
      watched.told = true;
      watched.last = place;
      watched.call(place);
    }
  }
}

}  // namespace ferry::host
