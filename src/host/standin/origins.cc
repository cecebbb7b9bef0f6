#include "host/standin/origins.h"

#include "base/failure.h"
#include "base/log.h"
#include "host/directory/places.h"
#include "port/slot.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{200};

}  // namespace

Origins::Origins(StandInHost& stand_ins, Directory& directory, std::chrono::milliseconds lost_limit)
    : stand_ins_(stand_ins), directory_(directory), lost_limit_(lost_limit) {
  thread_ = std::thread([this] { clear_up(); });
}

Origins::~Origins() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
  for (const auto& [origin, entry] : entries_) {
    directory_.unwatch(origin);
    stand_ins_.remove(entry.stand_in);
  }
}

void Origins::keep(StandInId stand_in, const Place& place, std::shared_ptr<void> held,
                   std::function<void(const Place&)> moved_on) {
  std::shared_ptr<void> before;  // released after the lock
  {
    std::lock_guard lock(mutex_);
    Entry& entry = entries_[place.origin];
    if (entry.stand_in != 0) stand_ins_.remove(entry.stand_in);
    before = std::move(entry.held);
    entry = {
        stand_in, place, std::move(held), std::move(moved_on), false, Clock::time_point::max()};
  }
  directory_.watch(place.origin,
                   [this, origin = place.origin](const auto& news) { heard(origin, news); });
}

void Origins::heard(const port::Endpoint& origin, const std::optional<Place>& place) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(origin);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  if (!place) {
    // The destination may not have told the directory yet, or its ferryd is being restarted.
    if (entry.lost == Clock::time_point::max()) entry.lost = Clock::now();
    return;
  }
  if (place->epoch < entry.place.epoch) return;
  entry.lost = Clock::time_point::max();
  const bool is_news = !place->ended && *place != entry.place;
  entry.place = *place;
  if (is_news && entry.moved_on) entry.moved_on(*place);
  entry.ended = place->ended;
  if (entry.ended) {
    changed_.notify_all();
  } else {
    stand_ins_.committed(entry.stand_in, place->location,
                         port::slot_of_udp_port(place->location.udp_port), place->epoch);
  }
}

std::vector<Place> Origins::kept(const port::Address& address) const {
  std::lock_guard lock(mutex_);
  std::vector<Place> places;
  for (const auto& [origin, entry] : entries_) {
    if (origin.address == address && !entry.ended) places.push_back(entry.place);
  }
  return places;
}

std::set<port::Address> Origins::addresses() const {
  std::lock_guard lock(mutex_);
  std::set<port::Address> all;
  for (const auto& [origin, entry] : entries_) all.insert(origin.address);
  return all;
}

void Origins::clear_up() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait_for(lock, kBetweenLooks);
    std::vector<Entry> over;
    std::erase_if(entries_, [&](const auto& item) {
      const Entry& entry = item.second;
      const bool is_lost =
          entry.lost != Clock::time_point::max() && Clock::now() - entry.lost > lost_limit_;
      if (!entry.ended && !is_lost) return false;
      over.push_back(entry);
      return true;
    });
    if (over.empty()) continue;
    // Without mutex_, because the directory calls heard() with a lock of its own.
    lock.unlock();
    for (Entry& entry : over) {
      log::info("the RNIC opened as {} {}: its slot is free", origin_text(entry.place.origin),
                entry.ended ? "has ended" : "is lost");
      directory_.unwatch(entry.place.origin);
      stand_ins_.remove(entry.stand_in);
    }
    over.clear();  // frees what `held` holds: networks are taken down here
    lock.lock();
  }
}

}  // namespace ferry::host
