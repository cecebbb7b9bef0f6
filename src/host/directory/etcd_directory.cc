#include "host/directory/etcd_directory.h"

#include <fmt/core.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "etcd.grpc.pb.h"
#include "host/directory/places.h"
#include "host/peers/credentials.h"

namespace ferry::host {
namespace {

namespace pb = etcdserverpb;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kPrefix[] = "/ferry/v1/places/";
constexpr milliseconds kCall{500};   // for etcd to answer
constexpr milliseconds kRetry{200};  // after etcd could not be reached
constexpr unsigned kTries = 8;       // of a transaction, when others write first

std::string key_of(const port::Endpoint& origin) {
  return kPrefix + origin_text(origin);
}

// The first key after all that begin with `prefix`.
std::string end_of(std::string prefix) {
  ++prefix.back();
  return prefix;
}

std::optional<port::Endpoint> origin_of(const std::string& key) {
  const std::string prefix = kPrefix;
  return key.starts_with(prefix) ? parse_origin(key.substr(prefix.size())) : std::nullopt;
}

void set_deadline(grpc::ClientContext& context, milliseconds limit) {
  context.set_deadline(std::chrono::system_clock::now() + limit);
}

}  // namespace

EtcdDirectory::EtcdDirectory(std::vector<Endpoint> endpoints, const Credentials* credentials,
                             std::chrono::seconds ttl)
    : endpoints_(std::move(endpoints)), credentials_(credentials), ttl_(ttl) {
  server_ = std::thread([this] { serve(); });
  follower_ = std::thread([this] { follow(); });
}

EtcdDirectory::~EtcdDirectory() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  {
    std::lock_guard lock(stream_);
    if (stream_context_ != nullptr) stream_context_->TryCancel();
  }
  server_.join();
  follower_.join();
}

std::shared_ptr<grpc::Channel> EtcdDirectory::channel() const {
  auto* self = const_cast<EtcdDirectory*>(this);
  std::lock_guard lock(mutex_);
  if (!channel_) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);  // a watch has nothing to say for long
    const auto& [target, name] = endpoints_[endpoint_];
    if (credentials_ != nullptr) arguments.SetSslTargetNameOverride(name);
    self->channel_ = grpc::CreateCustomChannel(
        target,
        credentials_ != nullptr ? credentials_->channel() : grpc::InsecureChannelCredentials(),
        arguments);
  }
  return channel_;
}

// Whoever finds that an endpoint does not answer goes on to the next.
void EtcdDirectory::next_endpoint(const std::shared_ptr<grpc::Channel>& failed) {
  std::lock_guard lock(mutex_);
  if (channel_ != failed) return;
  endpoint_ = (endpoint_ + 1) % endpoints_.size();
  channel_.reset();
}

EtcdDirectory::Found EtcdDirectory::range(const std::string& key, const std::string& end) {
  pb::RangeRequest request;
  request.set_key(key);
  request.set_range_end(end);
  grpc::Status status;
  for (std::size_t tries = 0; tries < endpoints_.size(); ++tries) {
    const auto to = channel();
    grpc::ClientContext context;
    set_deadline(context, kCall);
    pb::RangeResponse reply;
    status = pb::KV::NewStub(to)->Range(&context, request, &reply);
    if (!status.ok()) {
      next_endpoint(to);
      continue;
    }
    Found found;
    found.revision = reply.header().revision();
    for (const auto& kv : reply.kvs()) {
      const auto origin = origin_of(kv.key());
      const auto place = origin ? parse_value(*origin, kv.value()) : std::nullopt;
      if (!place) {
        log::warn("etcd has something under {} that is no place", kv.key());
        continue;
      }
      found.places.push_back(*place);
      found.revisions.push_back(kv.mod_revision());
    }
    return found;
  }
  throw Failure(fmt::format("etcd ({}) does not answer: {}", endpoints_.front().target,
                            one_line(status.error_message())));
}

std::optional<Place> EtcdDirectory::lookup(const port::Endpoint& origin) {
  const Found found = range(key_of(origin), "");
  if (found.places.empty() || found.places.front().ended) return std::nullopt;
  return found.places.front();
}

std::optional<Place> EtcdDirectory::told(const port::Endpoint& origin) const {
  std::lock_guard lock(mutex_);
  const auto found = mine_.find(origin);
  return found == mine_.end() ? std::nullopt : std::optional(found->second.place);
}

void EtcdDirectory::put(const Place& place) {
  std::lock_guard lock(mutex_);
  Mine& mine = mine_[place.origin];
  mine.place = place;
  mine.stored = false;
  wake_.notify_all();
}

void EtcdDirectory::renew(const Place& place) {
  std::lock_guard lock(mutex_);
  mine_[place.origin] = {place, false, true};
  wake_.notify_all();
}

void EtcdDirectory::remove(const Place& place) {
  std::lock_guard lock(mutex_);
  const auto found = mine_.find(place.origin);
  if (found == mine_.end() || found->second.place.epoch > place.epoch) return;
  found->second.place.ended = true;
  found->second.stored = false;
  wake_.notify_all();
}

void EtcdDirectory::left(const Place& next) {
  std::lock_guard lock(mutex_);
  const auto found = mine_.find(next.origin);
  if (found != mine_.end() && found->second.place.epoch < next.epoch) mine_.erase(found);
}

// --- What this host has to say

std::int64_t EtcdDirectory::grant(std::chrono::seconds ttl) {
  const auto to = channel();
  pb::LeaseGrantRequest request;
  request.set_ttl(ttl.count());
  pb::LeaseGrantResponse reply;
  grpc::ClientContext context;
  set_deadline(context, kCall);
  const auto status = pb::Lease::NewStub(to)->LeaseGrant(&context, request, &reply);
  if (!status.ok() || !reply.error().empty()) {
    next_endpoint(to);
    throw Failure(one_line(status.ok() ? reply.error() : status.error_message()));
  }
  return reply.id();
}

// False: the lease has expired, and all that hung on it is gone.
bool EtcdDirectory::keep_lease() {
  const auto to = channel();
  grpc::ClientContext context;
  set_deadline(context, kCall);
  const auto stream = pb::Lease::NewStub(to)->LeaseKeepAlive(&context);
  pb::LeaseKeepAliveRequest request;
  request.set_id(lease_);
  pb::LeaseKeepAliveResponse reply;
  const bool answered = stream->Write(request) && stream->Read(&reply);
  stream->WritesDone();
  if (!answered) {
    next_endpoint(to);
    throw Failure(one_line(stream->Finish().error_message()));
  }
  return reply.ttl() > 0;
}

// False: etcd has a later place. Compares and puts in one transaction.
bool EtcdDirectory::store(const Place& place, bool renews) {
  const std::string key = key_of(place.origin);
  const std::int64_t lease = place.ended ? grant(kEndedTtl) : lease_;
  for (unsigned tries = 0; tries < kTries; ++tries) {
    const Found found = range(key, "");
    std::int64_t revision = 0;
    if (!found.places.empty()) {
      const Place& other = found.places.front();
      const bool is_later =
          other.epoch > place.epoch || (other.epoch == place.epoch && other.ended);
      if (is_later && !renews) return false;
      revision = found.revisions.front();
    } else if (place.ended) {
      return true;  // nobody knows of the RNIC
    }
    pb::TxnRequest request;
    auto* compare = request.add_compare();
    compare->set_result(pb::Compare::EQUAL);
    compare->set_target(pb::Compare::MOD);
    compare->set_key(key);
    compare->set_mod_revision(revision);
    auto* put = request.add_success()->mutable_request_put();
    put->set_key(key);
    put->set_value(value_text(place));
    put->set_lease(lease);
    const auto to = channel();
    pb::TxnResponse reply;
    grpc::ClientContext context;
    set_deadline(context, kCall);
    const auto status = pb::KV::NewStub(to)->Txn(&context, request, &reply);
    if (!status.ok()) {
      next_endpoint(to);
      throw Failure(one_line(status.error_message()));
    }
    if (reply.succeeded()) return true;
  }
  throw Failure("another host writes the same places all the time");
}

void EtcdDirectory::serve() {
  for (;;) {
    std::optional<Place> next;
    bool renews = false, failed = false;
    try {
      {
        std::unique_lock lock(mutex_);
        if (stopping_) return;
        for (const auto& [origin, mine] : mine_) {
          if (mine.stored) continue;
          next = mine.place;
          renews = mine.renews;
        }
      }
      const auto now = Clock::now();
      if (lease_ != 0 && now - kept_ > ttl_ / 3) {
        kept_ = now;
        if (!keep_lease()) {
          lease_ = 0;
          std::lock_guard lock(mutex_);
          for (auto& [origin, mine] : mine_) mine.stored = false;
          continue;
        }
      }
      if (lease_ == 0 && next) {
        lease_ = grant(ttl_);
        kept_ = now;
        std::lock_guard lock(mutex_);
        for (auto& [origin, mine] : mine_) mine.stored = false;
      }
      if (next) {
        if (!store(*next, renews)) {
          log::warn("etcd has a later place of {} than this host", origin_text(next->origin));
        }
        std::lock_guard lock(mutex_);
        const auto found = mine_.find(next->origin);
        if (found != mine_.end() && found->second.place == *next) {
          found->second.stored = true;
          found->second.renews = false;
          if (next->ended) mine_.erase(found);
        }
      }
      complained_ = false;
    } catch (const Failure& failure) {
      failed = true;
      if (!complained_) log::warn("the directory: {}", failure.what());
      complained_ = true;
    }
    std::unique_lock lock(mutex_);
    const auto work = [this] {
      return stopping_ || std::any_of(mine_.begin(), mine_.end(),
                                      [](const auto& entry) { return !entry.second.stored; });
    };
    if (failed) {
      wake_.wait_for(lock, kRetry, [this] { return stopping_; });
    } else {
      wake_.wait_for(lock, milliseconds(ttl_) / 6, work);
    }
    if (lease_ != 0 && std::none_of(mine_.begin(), mine_.end(), [](auto&) { return true; })) {
      lease_ = 0;  // no place hangs on it: it may expire
    }
  }
}

// --- What others say

void EtcdDirectory::watch(const port::Endpoint& origin, Watcher watcher) {
  {
    std::lock_guard lock(watching_);
    watched_[origin] = {std::move(watcher), std::nullopt, false};
  }
  // The follower begins anew, and so tells what is there already.
  fresh_ = true;
  {
    std::lock_guard lock(stream_);
    if (stream_context_ != nullptr) stream_context_->TryCancel();
  }
  std::lock_guard lock(mutex_);
  wake_.notify_all();
}

void EtcdDirectory::unwatch(const port::Endpoint& origin) {
  std::lock_guard lock(watching_);
  watched_.erase(origin);
}

void EtcdDirectory::changed(const port::Endpoint& origin, const std::optional<Place>& place) {
  std::lock_guard lock(watching_);
  const auto found = watched_.find(origin);
  if (found == watched_.end()) return;
  Watched& watched = found->second;
  if (watched.told && watched.last == place) return;
  watched.told = true;
  watched.last = place;
  watched.call(place);
}

// Follows all places in one stream, which begins where a look at all of them ended.
void EtcdDirectory::follow() {
  for (;;) {
    {
      // Without anything to watch there need not be a stream.
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kRetry, [this] { return stopping_ || fresh_; });
      if (stopping_) return;
      std::lock_guard watching(watching_);
      if (watched_.empty()) continue;
    }
    grpc::ClientContext context;
    {
      std::lock_guard lock(stream_);
      stream_context_ = &context;
    }
    fresh_ = false;
    try {
      const Found all = range(kPrefix, end_of(kPrefix));
      std::map<port::Endpoint, Place> places;
      for (const Place& place : all.places) places.emplace(place.origin, place);
      std::vector<port::Endpoint> watched;
      {
        std::lock_guard lock(watching_);
        for (const auto& [origin, entry] : watched_) watched.push_back(origin);
      }
      for (const auto& origin : watched) {
        const auto found = places.find(origin);
        changed(origin, found == places.end() ? std::nullopt : std::optional(found->second));
      }
      const auto to = channel();
      const auto stream = pb::Watch::NewStub(to)->Watch(&context);
      pb::WatchRequest request;
      auto* create = request.mutable_create_request();
      create->set_key(kPrefix);
      create->set_range_end(end_of(kPrefix));
      create->set_start_revision(all.revision + 1);
      pb::WatchResponse response;
      if (stream->Write(request)) {
        while (!fresh_ && stream->Read(&response) && !response.canceled()) {
          for (const auto& event : response.events()) {
            const auto origin = origin_of(event.kv().key());
            if (!origin) continue;
            const bool gone = event.type() == pb::Event::DELETE;
            changed(*origin, gone ? std::nullopt : parse_value(*origin, event.kv().value()));
          }
        }
      }
      context.TryCancel();
      stream->Finish();
      if (!fresh_) next_endpoint(to);
    } catch (const Failure&) {
      // serve() and lookup() say so where it matters; here it is tried again.
    }
    std::lock_guard lock(stream_);
    stream_context_ = nullptr;
  }
}

}  // namespace ferry::host
