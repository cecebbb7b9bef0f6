#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "host/checkpoint/facts.h"
#include "host/checkpoint/restart/host_restart.h"
#include "host/checkpoint/step_bytes.h"
#include "host/peers/messages.h"
#include "host/peers/peer_record.h"
#include "host/proc/addresses.h"
#include "precopy/page_ranges.h"
#include "precopy/pages_file.h"
#include "store/checkpoint.h"

namespace ferry::host {

class Arrival;
class Arrivals;
class Directory;
struct ThisHost;

// Says "'p' still runs on h1, as process 17:" when the program that `facts` are about runs on this host, and nothing
// when it does not. `force`: a program is no other one's successor because it has the name of an RNIC of the other one.
std::string what_runs(const ThisHost& host, const Facts& facts, const Arrivals& arrivals,
                      const Directory& directory, bool force);

// Restores programs of a checkpoint on this host, as arrivals of one group.
class LocalRestart final : public HostRestart {
 public:
  // What a move's destination looks at. Throws Failure.
  using Check = std::function<void(const v1::CheckRequest& request)>;

  // `programs`: of the checkpoint, by their numbers. `hosts`: where programs of it go on. `tell`: is told how much of
  // the images restore() has read. Throws Failure.
  LocalRestart(const ThisHost& host, Arrivals& arrivals, const Directory& directory, Check check,
               store::Checkpoint checkpoint, const std::vector<std::uint32_t>& programs,
               std::vector<PeerRecord> hosts, bool force, TellBytes tell);
  ~LocalRestart() override;

  void check() override;
  std::vector<std::string> restore() override;
  void go_on() override;
  void give_up() override;

 private:
  struct Part {
    std::size_t program;  // its number
    Facts facts;
    std::shared_ptr<Arrival> arrival;
  };

  v1::PrepareRequest prepare_request(std::size_t index, const InterfaceAddresses& here) const;
  void need_wanted() const;
  const std::vector<store::ImageFile>& files_of(const Part& part) const;
  Failure damaged(const Part& part, const std::string& how) const;
  std::map<precopy::Layer, precopy::PageRanges> wanted_pages(const Part& part) const;
  void begin_arrival(std::size_t index, const InterfaceAddresses& here);
  void count(std::uint64_t bytes);
  void send_image(const Part& part);
  void cut_back_files();
  // `failure`, and where the ends of files are that were cut back.
  std::string with_kept_aside(const std::string& failure) const;

  const ThisHost& host_;
  Arrivals& arrivals_;
  const Directory& directory_;
  const Check check_;
  const store::Checkpoint checkpoint_;
  const std::vector<PeerRecord> hosts_;
  std::vector<Part> parts_;
  std::vector<std::string> kept_aside_;
  const bool force_;
  const TellBytes tell_;
  bool is_decided_ = false;
  std::atomic<bool> is_given_up_{false};
  std::mutex mutex_;
  StepBytes read_;  // with the mutex
  std::vector<std::shared_ptr<Arrival>>
      restoring_;  // with the mutex: as long as restore() is under way
};

}  // namespace ferry::host
