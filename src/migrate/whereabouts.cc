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
constexpr milliseconds kListeners{
    500};  // that processes may take to answer: who asks waits for 1 s
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
  host_.control->describe(pid, [this, pid](const agent::StatusReply& reply) { learn(pid, reply); });
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

// In the thread of the process's connection.
void Whereabouts::learn(pid_t pid, const agent::StatusReply& status) {
  UniqueFd pidfd(::pidfd_open(pid, 0));
  auto places = places_of(slots_of(status), host_.name, host_.address);
  if (places.empty()) return;
  for (const Place& place : places) host_.directory->put(place);
  std::lock_guard lock(mutex_);
  residents_[pid] = {std::move(pidfd), std::move(places)};
}

void Whereabouts::look() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLookEvery, [this] { return stopping_; })) {
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
  // One that does not answer now is asked again with the next request.
  for (const auto& [pid, status] : host_.control->statuses(kListeners)) {
    const bool listens =
        std::any_of(status.services.begin(), status.services.end(), [&](const auto& name) {
          return name.service == service &&
                 (name.address == port::Address{} || name.address == address);
        });
    if (!listens) continue;
    for (const auto& place : places_of(slots_of(status), host_.name, host_.address)) {
      if (place.origin.address == address) found.push_back(place);
    }
  }
  return found;
}

}  // namespace ferry::migrate
