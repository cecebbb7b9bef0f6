#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "host/directory/directory.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace ferry::host {

// The directory of a cluster, in etcd (v3). The places that a ferryd puts there hang on a lease
// that it keeps alive: they go when the ferryd is gone, and the next ferryd of its host puts them
// again. That an RNIC has ended is told for kEndedTtl.
//
//   key    /ferry/v1/places/ADDRESS/SLOT    the origin (places.h)
//   value  JSON                             the place
class EtcdDirectory : public Directory {
 public:
  static constexpr std::chrono::seconds kEndedTtl{900};

  struct Endpoint {
    std::string target;  // numeric address:port
    std::string name;    // that its certificate must have
  };

  // The endpoints are tried in turn, inside TLS when there are credentials, which outlive this
  // object. Does not wait for etcd.
  explicit EtcdDirectory(std::vector<Endpoint> endpoints, const Credentials* credentials,
                         std::chrono::seconds ttl);
  ~EtcdDirectory() override;

  std::optional<Place> lookup(const port::Endpoint& origin) override;
  void put(const Place& place) override;
  void renew(const Place& place) override;
  void remove(const Place& place) override;
  void left(const Place& next) override;
  void watch(const port::Endpoint& origin, Watcher watcher) override;
  void unwatch(const port::Endpoint& origin) override;
  std::optional<Place> told(const port::Endpoint& origin) const override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Mine {
    Place place;
    bool stored = false;  // etcd has it as it is, under the present lease
    bool renews = false;  // it is true whatever etcd has
  };
  struct Found {
    std::vector<Place> places;
    std::vector<std::int64_t> revisions;  // one for each of them
    std::int64_t revision = 0;            // of the answer
  };
  struct Watched {
    Watcher call;
    std::optional<Place> last;
    bool told = false;
  };

  std::shared_ptr<grpc::Channel> channel() const;
  void next_endpoint(const std::shared_ptr<grpc::Channel>& failed);
  Found range(const std::string& key, const std::string& end);
  void serve();
  bool keep_lease();
  std::int64_t grant(std::chrono::seconds ttl);
  bool store(const Place& place, bool renews);
  void follow();
  void resynchronize();
  void changed(const port::Endpoint& origin, const std::optional<Place>& place);

  const std::vector<Endpoint> endpoints_;
  const Credentials* const credentials_;
  const std::chrono::seconds ttl_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::size_t endpoint_ = 0;
  std::shared_ptr<grpc::Channel> channel_;
  std::map<port::Endpoint, Mine> mine_;
  std::int64_t lease_ = 0;  // used by the serving thread only
  Clock::time_point kept_{};
  bool stopping_ = false;
  bool complained_ = false;

  std::mutex watching_;  // held while watchers are called
  std::map<port::Endpoint, Watched> watched_;
  std::atomic<bool> fresh_{false};  // somebody who has not been told yet watches
  std::mutex stream_;
  grpc::ClientContext* stream_context_ = nullptr;

  std::thread server_, follower_;
};

}  // namespace ferry::host
