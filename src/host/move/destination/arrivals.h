#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host/move/destination/arrival.h"

namespace ferry::host {

class Directory;
class KeptPeers;
class Carrier;
class Units;

// The programs that arrive on this host, or have arrived and are watched.
class Arrivals {
 public:
  Arrivals(const ThisHost& host, const Units& units, DecisionLog& decisions, Directory& directory,
           Whereabouts& whereabouts, KeptPeers& peers, Carrier& carrier, const ImageRoom& room,
           ImageReceiver* images, CriuRunner& criu, Accounts& accounts);

  // `from`: the source's name in its certificate. Throws Failure.
  std::shared_ptr<Arrival> prepare(const v1::PrepareRequest& request, const std::string& from);
  // As prepare(), for a program from storage: whoever restarts it here decides how that ends, and no other ferryd.
  std::shared_ptr<Arrival> prepare_restart(const v1::PrepareRequest& request);
  // An arrival that is committed already: by a former ferryd, or as the restore of a checkpoint.
  std::shared_ptr<Arrival> take_up(std::uint64_t move_id, const Held& held);

  std::shared_ptr<Arrival> find(std::uint64_t move_id) const;  // null: none
  std::vector<std::shared_ptr<Arrival>> all() const;
  // How the program of an arrival that is over has ended, for as long as there are not too many later ones; nothing:
  // it has not, or nobody knows.
  std::optional<Ending> ending(std::uint64_t move_id) const;
  // Where images come in; 0: no other host can be reached.
  std::uint16_t image_port() const { return images_ == nullptr ? 0 : images_->port(); }
  // Tells its arrival of a process to which a former ferryd may have given its sockets.
  void registered(pid_t pid) const;

  // Forgets arrivals that are over, and lets the others do what is due.
  void keep_house();

 private:
  class Coming;
  std::shared_ptr<Arrival> add(const v1::PrepareRequest& request, const std::string& from,
                               std::optional<ArrivalMachine::Time> patience);
  void forget_ended();
  void forget_over();
  // With the mutex: the arrival is forgotten.
  void keep_ending(const Arrival& arrival);

  const ThisHost& host_;
  const Units& units_;
  DecisionLog& decisions_;
  Directory& directory_;
  Whereabouts& whereabouts_;
  KeptPeers& peers_;
  Carrier& carrier_;
  const ImageRoom& room_;
  ImageReceiver* const images_;  // null: no other host can be reached
  CriuRunner& criu_;
  Accounts& accounts_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Arrival>> arrivals_;
  std::deque<std::pair<std::uint64_t, Ending>>
      endings_;  // of those that are forgotten, the latest last
  std::set<std::uint64_t> coming_;
  std::map<std::uint64_t, std::weak_ptr<ArrivalGroup>> groups_;
  std::chrono::steady_clock::time_point asked_;  // when forget_ended() last asked; only the
                                                 // housekeeper uses it
};

}  // namespace ferry::host
