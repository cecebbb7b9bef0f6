#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "host/directory/directory.h"

namespace ferry::host {

class KeptPeers;

// The directory of a few hosts, without a service: each ferryd knows the RNICs that are on its
// host, that have left it and that have ended on it, and asks the others for the rest.
class HostsDirectory : public Directory {
 public:
  // `hosts`: names by address:port.
  HostsDirectory(std::string self, const Credentials* credentials,
                 std::map<std::string, std::string> hosts);
  ~HostsDirectory() override;

  std::optional<Place> lookup(const port::Endpoint& origin) override;
  void put(const Place& place) override;
  void renew(const Place& place) override;
  void remove(const Place& place) override;
  void left(const Place& next) override;
  void watch(const port::Endpoint& origin, Watcher watcher) override;
  void unwatch(const port::Endpoint& origin) override;
  std::optional<Place> told(const port::Endpoint& origin) const override;
  void met(const std::string& ferryd, const std::string& host) override;
  std::map<std::string, std::string> hosts() const override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Known {
    Place place;
    Clock::time_point since;
  };
  struct Watched {
    Watcher call;
    std::optional<Place> last;
    bool told = false;
  };
  // The answers of all hosts, or those until one host says that the RNIC is on it.
  struct Answers {
    std::vector<Place> places;
    std::optional<Place> living;  // what the host of that place tells itself
    bool asked = false, heard = false;
  };
  // The latest place that anybody tells, also of an RNIC that has ended.
  std::optional<Place> latest(const port::Endpoint& origin);
  Answers ask(const port::Endpoint& origin);
  void take(const Place& place);
  void learn(const Place& place);
  void forget_old();
  void look();

  const std::string self_;
  const std::shared_ptr<KeptPeers> peers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<port::Endpoint, Known> known_;
  std::map<std::string, std::string> hosts_;
  bool stopping_ = false;

  std::mutex watching_;  // held while watchers are called
  std::map<port::Endpoint, Watched> watched_;
  std::thread thread_;
};

}  // namespace ferry::host
