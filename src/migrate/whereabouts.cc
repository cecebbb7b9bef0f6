#include "migrate/whereabouts.h"

#include <poll.h>

#include <algorithm>

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 forgets that C++ includes it
}

#include "migrate/failure.h"
#include "migrate/log.h"
#include "migrate/places.h"

namespace ferry::migrate {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{200};
constexpr milliseconds kStatus{2000};  // that a process may take to answer
constexpr std::size_t kMaxQuestions = 4096;

std::vector<device::Slot> slots_of(const agent::StatusReply& status) {
  std::vector<device::Slot> slots;
  for (const auto& context : status.contexts) {
    slots.insert(slots.end(), context.places.begin(), context.places.end());
  }
  return slots;
}

bool has_ended(const UniqueFd& pidfd) {
  pollfd end{pidfd.get(), POLLIN, 0};
  return !pidfd || ::poll(&end, 1, 0) > 0;
}

}  // namespace

Whereabouts::Whereabouts(Host& host)
    : host_(host), looker_([this] { look(); }), finder_([this] { find(); }) {}

Whereabouts::~Whereabouts() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  looker_.join();
  finder_.join();
}

void Whereabouts::registered(pid_t pid) {
  std::lock_guard lock(mutex_);
  registered_.push_back(pid);
  changed_.notify_all();
}

void Whereabouts::arrived(const std::vector<device::Slot>& slots) {
  for (const Place& place : places_of(slots, host_.name, host_.address)) {
    host_.directory->put(place);
  }
}

void Whereabouts::ended(const std::vector<device::Slot>& slots) {
  for (const Place& place : places_of(slots, host_.name, host_.address)) {
    host_.directory->remove(place);
  }
}

void Whereabouts::left(const std::vector<pid_t>& pids, const std::vector<Place>& next) {
  {
    std::lock_guard lock(mutex_);
    for (const pid_t pid : pids) residents_.erase(pid);
  }
  for (const Place& place : next) host_.directory->left(place);
}

void Whereabouts::learn(pid_t pid) {
  UniqueFd pidfd(::pidfd_open(pid, 0));
  std::vector<Place> places;
  try {
    places = places_of(slots_of(host_.control->status(pid, kStatus)), host_.name, host_.address);
  } catch (const Failure&) {
    return;  // it has ended, or is about to move and registers again
  }
  if (places.empty()) return;
  for (const Place& place : places) host_.directory->put(place);
  std::lock_guard lock(mutex_);
  residents_[pid] = {std::move(pidfd), std::move(places)};
}

void Whereabouts::look() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait_for(lock, kLookEvery, [this] { return stopping_ || !registered_.empty(); });
    while (!registered_.empty() && !stopping_) {
      const pid_t pid = registered_.front();
      registered_.pop_front();
      lock.unlock();
      learn(pid);
      lock.lock();
    }
    std::vector<Place> ended;
    std::erase_if(residents_, [&](const auto& entry) {
      if (!has_ended(entry.second.pidfd)) return false;
      ended.insert(ended.end(), entry.second.places.begin(), entry.second.places.end());
      return true;
    });
    for (const Place& place : ended) host_.directory->remove(place);
  }
}

void Whereabouts::locate(pid_t pid, const agent::Locate& question) {
  std::lock_guard lock(mutex_);
  for (const auto& name : question.names) {
    const std::pair entry(pid, name);
    if (questions_.size() >= kMaxQuestions) break;
    if (std::find(questions_.begin(), questions_.end(), entry) == questions_.end()) {
      questions_.push_back(entry);
    }
  }
  changed_.notify_all();
}

// Everybody who asks for the same gets the same answer.
void Whereabouts::find() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !questions_.empty(); });
    if (stopping_) return;
    const port::Endpoint name = questions_.front().second;
    lock.unlock();
    std::optional<Place> place;
    try {
      place = host_.directory->lookup(name);
    } catch (const Failure& failure) {
      log::warn("cannot look for {}: {}", origin_text(name), failure.what());
    }
    lock.lock();
    std::vector<pid_t> askers;
    std::erase_if(questions_, [&](const auto& question) {
      if (question.second != name) return false;
      askers.push_back(question.first);
      return true;
    });
    if (!place) continue;
    lock.unlock();
    for (const pid_t pid : askers) {
      host_.control->located(pid, {{{name, place->location, place->epoch}}});
    }
    lock.lock();
  }
}

std::vector<Place> Whereabouts::listeners(const port::Address& address, std::uint64_t service) {
  std::vector<Place> found;
  for (const auto& process : host_.control->processes()) {
    try {
      const auto status = host_.control->status(process.pid, kStatus);
      const bool listens =
          std::any_of(status.services.begin(), status.services.end(), [&](const auto& name) {
            return name.service == service &&
                   (name.address == port::Address{} || name.address == address);
          });
      if (!listens) continue;
      for (const auto& place : places_of(slots_of(status), host_.name, host_.address)) {
        if (place.origin.address == address) found.push_back(place);
      }
    } catch (const Failure&) {
      // One that does not answer now is asked again with the next request.
    }
  }
  return found;
}

}  // namespace ferry::migrate
