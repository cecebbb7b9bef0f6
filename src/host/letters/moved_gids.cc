#include "host/letters/moved_gids.h"

#include <cstring>
#include <iterator>
#include <utility>

#include "base/failure.h"
#include "base/parallel.h"
#include "ferry.pb.h"
#include "host/control/control_server.h"
#include "host/peers/kept_peers.h"
#include "host/peers/peer.h"
#include "host/peers/this_host.h"
#include "host/standin/residents.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kLookEvery{500};      // at the programs of this host
constexpr seconds kTellEvery{2};             // a ferryd that may have been started anew
constexpr milliseconds kReplyLimit{2000};    // of another ferryd, with the first handshake
constexpr milliseconds kShortLimit{100};     // while a program stands still
constexpr std::chrono::minutes kSilent{15};  // until what a ferryd has told counts no more
constexpr std::size_t kMostGids = 4096;      // of a ferryd, and of all

void put(const std::set<port::Address>& gids, auto* message) {
  for (const auto& gid : gids) message->add_gids(gid.bytes.data(), gid.bytes.size());
}

// Throws Failure.
std::set<port::Address> gids_in(const auto& message) {
  if (static_cast<std::size_t>(message.gids_size()) > kMostGids)
    throw Failure("too many GIDs in a message between ferryds");
  std::set<port::Address> gids;
  for (const auto& text : message.gids()) {
    port::Address gid;
    if (text.size() != gid.bytes.size()) {
      throw Failure("malformed GID in a message between ferryds");
    }
    std::memcpy(gid.bytes.data(), text.data(), text.size());
    gids.insert(gid);
  }
  return gids;
}

agent::MovedGids message_of(const std::set<port::Address>& gids) {
  return {{gids.begin(), gids.end()}};
}

}  // namespace

MovedGids::MovedGids(const ThisHost& host, ControlServer& control, const Carrier& carrier,
                     const Residents& residents, KeptPeers& peers, HasDevices has_devices)
    : host_(host),
      control_(control),
      carrier_(carrier),
      residents_(residents),
      peers_(peers),
      has_devices_(std::move(has_devices)),
      thread_([this] { look(); }) {}

MovedGids::~MovedGids() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

// A name without a QPN is a GID that a program has brought.
MovedGids::Gids MovedGids::own() const {
  Gids gids;
  for (const auto& resident : residents_.all()) {
    for (const auto& name : resident.names) {
      if (name.qpn == 0) gids.insert(name.gid);
    }
  }
  return gids;
}

void MovedGids::look() {
  for (;;) {
    if (has_devices_()) exchange(Whom::kAll);
    forget_silent();
    spread();
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kLookEvery, [this] { return stopping_; })) return;
  }
}

void MovedGids::exchange(Whom whom) {
  if (host_.address.empty()) return;
  const Gids gids = own();
  std::vector<Carrier::Ferryd> due;
  {
    std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    for (const Carrier::Ferryd& ferryd : carrier_.known()) {
      const Other& other = others_[ferryd.address];
      if (whom == Whom::kThoseThatAnswered && !other.answers) continue;
      const bool is_news =
          other.told != gids && (other.answers || whom == Whom::kThoseThatAnswered);
      if (is_news || now - other.told_at >= kTellEvery) due.push_back(ferryd);
    }
  }
  const milliseconds limit = whom == Whom::kAll ? kReplyLimit : kShortLimit;
  in_parallel(due, [&](const Carrier::Ferryd& ferryd) { tell(ferryd, gids, limit); });
}

void MovedGids::tell(const Carrier::Ferryd& ferryd, const Gids& gids, milliseconds limit) {
  v1::MovedGidsRequest request;
  v1::MovedGidsReply reply;
  request.set_host(host_.name);
  request.set_ferryd(host_.address);
  put(gids, &request);
  Gids theirs;
  bool answers = false;
  try {
    const auto peer = peers_.get(ferryd.address, ferryd.host);
    const grpc::Status status = peer->try_call(request, &reply, limit);
    if (!status.ok() && status.error_code() != grpc::DEADLINE_EXCEEDED) peers_.drop(peer);
    answers = status.ok();
    if (answers) theirs = gids_in(reply);
  } catch (const std::exception&) {
    answers = false;  // the name does not resolve, or the answer is malformed
  }
  std::lock_guard lock(mutex_);
  Other& other = others_[ferryd.address];
  other.told_at = Clock::now();
  other.answers = answers;
  if (!answers) return;
  other.told = gids;
  other.theirs = std::move(theirs);
  other.heard_at = other.told_at;
}

void MovedGids::forget_silent() {
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (auto& [address, other] : others_) {
    if (now - other.heard_at > kSilent) other.theirs.clear();
  }
}

void MovedGids::spread() {
  std::lock_guard spreading(spreading_);
  Gids all = own();
  {
    std::lock_guard lock(mutex_);
    for (const auto& [address, other] : others_)
      all.insert(other.theirs.begin(), other.theirs.end());
    while (all.size() > kMostGids) all.erase(std::prev(all.end()));
    if (all == known_) return;
    known_ = all;
  }
  for (const auto& process : control_.processes())
    control_.moved_gids(process.pid, message_of(all));
}

void MovedGids::arrived() {
  exchange(Whom::kThoseThatAnswered);
  spread();
}

void MovedGids::registered(pid_t pid) {
  std::lock_guard spreading(spreading_);
  Gids known;
  {
    std::lock_guard lock(mutex_);
    known = known_;
  }
  if (!known.empty()) control_.moved_gids(pid, message_of(known));
}

v1::MovedGidsReply MovedGids::receive(const v1::MovedGidsRequest& request) {
  Gids gids = gids_in(request);
  if (!request.ferryd().empty()) {
    std::lock_guard lock(mutex_);
    Other& other = others_[request.ferryd()];
    other.theirs = std::move(gids);
    other.heard_at = Clock::now();
  }
  spread();
  v1::MovedGidsReply reply;
  put(own(), &reply);
  return reply;
}

}  // namespace ferry::host
