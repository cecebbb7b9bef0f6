#include "host/standin/whereabouts.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "device/own_names.h"
#include "gsi/local.h"
#include "host/directory/places.h"
#include "host/proc/process_facts.h"
#include "host/proc/process_tree.h"
#include "host/standin/slots.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{200};
constexpr std::size_t kMaxQuestions = 1024;  // that one Asker may have open

// Whether the process has a UNIX socket of one of these abstract names in its network namespace.
bool has_socket_named(pid_t pid, const std::set<std::string>& names) {
  const UnixSockets sockets = unix_sockets(pid);
  std::set<std::string> links;  // in /proc/PID/fd
  for (const auto& [inode, name] : sockets.names) {
    if (name.starts_with('@') && names.contains(name.substr(1))) {
      links.insert(fmt::format("socket:[{}]", inode));
    }
  }
  if (links.empty()) return false;
  const auto descriptors = descriptors_of(pid);
  return std::any_of(descriptors.begin(), descriptors.end(),
                     [&](const Descriptor& each) { return links.contains(each.target); });
}

// The descriptor of any socket in these slots; -1: there is none.
int a_socket_of(const std::vector<ContextSlots>& contexts) {
  for (const auto& context : contexts) {
    for (const auto& slot : context.slots) {
      if (slot.descriptor >= 0) return slot.descriptor;
    }
  }
  return -1;
}

}  // namespace

Whereabouts::Whereabouts(std::string name, std::string ferryd, ControlServer& control,
                         Directory& directory, Residents& residents)
    : name_(std::move(name)),
      ferryd_(std::move(ferryd)),
      control_(control),
      directory_(directory),
      residents_(residents) {
  // Tells the directory again what a former ferryd told it.
  for (const auto& resident : residents_.all()) {
    for (const Place& place : resident.places) directory_.put(place);
  }
  looker_ = std::thread([this] { look(); });
  finder_ = std::thread([this] { find(); });
}

Whereabouts::~Whereabouts() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  looker_.join();
  finder_.join();
}

void Whereabouts::arrived(pid_t pid, const std::vector<ContextSlots>& contexts, bool comes_back) {
  Residents::Resident resident = residents_.of(pid);
  resident.places.clear();
  const auto former = std::exchange(resident.names, {});
  resident.has_fallen_back = false;
  for (const auto& context : contexts) {
    resident.has_fallen_back |= device::is_own_name(context.device_behind);
    for (const auto& name : context.names) {
      // A process that comes back has moved nowhere, and brings no GIDs that it did not have before.
      const bool is_gid = name.qpn == 0;
      if (is_gid && comes_back && std::find(former.begin(), former.end(), name) == former.end())
        continue;
      resident.names.push_back(name);
    }
    for (const Place& place : places_of(context.slots, name_, ferryd_)) {
      directory_.put(place);
      resident.places.push_back(place);
    }
  }
  // All sockets of a process are in one network namespace.
  if (const int socket = a_socket_of(contexts); socket >= 0)
    resident.network = network_of_socket(socket);
  const bool has_come = !resident.places.empty() || !resident.names.empty();
  if (pid != 0 && has_come) residents_.settle(resident);
}

void Whereabouts::restarted(pid_t pid, const std::vector<ContextSlots>& contexts) {
  for (const auto& context : contexts) {
    for (const Place& place : places_of(context.slots, name_, ferryd_)) directory_.renew(place);
  }
  arrived(pid, contexts);
}

void Whereabouts::ended(const std::vector<rnic::Slot>& slots) {
  for (const Place& place : places_of(slots, name_, ferryd_)) {
    directory_.remove(place);
  }
}

void Whereabouts::left(const std::vector<pid_t>& pids, const std::vector<Place>& next) {
  for (const pid_t pid : pids) residents_.forget(pid);
  for (const Place& place : next) directory_.left(place);
}

void Whereabouts::look() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLookEvery, [this] { return stopping_; })) {
    for (const Place& place : residents_.take_ended()) directory_.remove(place);
  }
}

void Whereabouts::locate(pid_t pid, const agent::Locate& question) {
  const auto user = user_of(pid);
  if (!user) return;  // the process has ended
  const Asker asker(*user, *user == 0 ? outermost_pid_namespace(pid) : 0);
  std::lock_guard lock(mutex_);
  for (const auto& name : question.names) {
    auto& questions = questions_[asker];
    const Question entry(pid, name);
    if (questions.size() >= kMaxQuestions) break;
    if (std::find(questions.begin(), questions.end(), entry) == questions.end()) {
      questions.push_back(entry);
    }
  }
  changed_.notify_all();
}

// Called with mutex_ held, when there is a question. Serves the askers in turn.
port::Endpoint Whereabouts::next_question() {
  auto next = questions_.upper_bound(served_);
  if (next == questions_.end()) next = questions_.begin();
  served_ = next->first;
  return next->second.front().second;
}

// Called with mutex_ held. Takes out all who ask for this RNIC: they get the same answer.
std::vector<pid_t> Whereabouts::take_askers(const port::Endpoint& name) {
  std::vector<pid_t> askers;
  for (auto& [asker, questions] : questions_) {
    std::erase_if(questions, [&](const Question& question) {
      if (question.second == name) askers.push_back(question.first);
      return question.second == name;
    });
  }
  std::erase_if(questions_, [](const auto& entry) { return entry.second.empty(); });
  return askers;
}

void Whereabouts::find() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !questions_.empty(); });
    if (stopping_) return;
    const port::Endpoint name = next_question();
    lock.unlock();
    std::optional<Place> place;
    try {
      place = directory_.lookup(name);
    } catch (const Failure& failure) {
      log::warn("cannot look for {}: {}", origin_text(name), failure.what());
    }
    lock.lock();
    const auto askers = take_askers(name);
    if (!place) continue;
    lock.unlock();
    for (const pid_t pid : askers) {
      control_.located(pid, {{{name, place->location, place->epoch}}});
    }
    lock.lock();
  }
}

std::vector<Place> Whereabouts::listeners(const port::Address& address,
                                          std::uint64_t service) const {
  std::vector<Place> found;
  for (const auto& resident : residents_.all()) {
    std::vector<Place> places;
    std::set<std::string> names{gsi::listener_name_any(service),
                                gsi::listener_name(address, service)};
    for (const Place& place : resident.places) {
      if (place.origin.address != address) continue;
      names.insert(gsi::listener_name(place.location.address, service));
      places.push_back(place);
    }
    // In a network namespace of its own a process may take any name.
    if (places.empty() || namespace_inode(resident.pid, "net") != resident.network ||
        !has_socket_named(resident.pid, names)) {
      continue;
    }
    found.insert(found.end(), places.begin(), places.end());
  }
  return found;
}

}  // namespace ferry::host
