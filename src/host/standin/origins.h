#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/limits.h"
#include "host/directory/directory.h"
#include "host/standin/stand_in_host.h"

namespace ferry::host {

// The QPN slots of RNICs that were opened on this host and have left it. As long as such an RNIC lives anywhere, its
// stand-in holds the slot and tells the way: nobody else is ever given a (GID, QPN) by which some peer may know the
// RNIC. The directory tells where the RNIC goes and when it ends.
class Origins {
 public:
  Origins(StandInHost& stand_ins, Directory& directory,
          std::chrono::milliseconds lost_limit = Limits().origin);
  ~Origins();

  // Takes over a committed stand-in. `held` is kept as long as the stand-in is; `moved_on` gets the
  // places that come after `place`, and must not call this object.
  void keep(StandInId stand_in, const Place& place, std::shared_ptr<void> held,
            std::function<void(const Place&)> moved_on = {});
  // Where the RNICs are now that were opened at this address and have left.
  std::vector<Place> kept(const port::Address& address) const;
  std::set<port::Address> addresses() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    StandInId stand_in = 0;
    Place place;
    std::shared_ptr<void> held;
    std::function<void(const Place&)> moved_on;
    bool ended = false;
    Clock::time_point lost = Clock::time_point::max();  // since when the directory has no place
  };

  void heard(const port::Endpoint& origin, const std::optional<Place>& place);
  void clear_up();

  StandInHost& stand_ins_;
  Directory& directory_;
  const std::chrono::milliseconds lost_limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<port::Endpoint, Entry> entries_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ferry::host
