#include "host/standin/residents.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 forgets that C++ includes it
}

#include "base/failure.h"
#include "base/json_text.h"
#include "base/log.h"
#include "host/directory/places.h"
#include "host/journal/decision_log.h"
#include "host/proc/process_tree.h"
#include "port/address_text.h"

namespace ferry::host {

using nlohmann::json;

Residents::Residents(std::string path) : path_(std::move(path)) {
  load();
  std::lock_guard lock(mutex_);
  save();  // makes the file before any move, so that it is no leftover of a move
}

// The file is empty when there are no residents; else
// {"boot":7,"residents":[{"pid":4711,"started":815,"network":4026531840,
//                         "places":[{"origin":"10.0.0.1/0","place":"{...}"}],
//                         "names":[{"gid":"10.0.0.1","qpn":17}],"fallen_back":false}]}
void Residents::load() {
  std::ifstream file(path_);
  if (!file || file.peek() == std::ifstream::traits_type::eof()) return;
  try {
    const json all = json_of(file);
    if (all.at("boot").get<std::uint64_t>() != stamp_now().boot) return;
    for (const auto& each : all.at("residents")) {
      Entry entry;
      Resident& resident = entry.resident;
      resident.pid = each.at("pid").get<pid_t>();
      resident.network = each.at("network").get<std::uint64_t>();
      entry.started = each.at("started").get<std::uint64_t>();
      entry.process.reset(::pidfd_open(resident.pid, 0));
      if (!entry.process || start_time(resident.pid) != entry.started) continue;
      for (const auto& place : each.at("places")) {
        const auto origin = parse_origin(place.at("origin").get<std::string>());
        if (!origin) continue;
        const auto parsed = parse_value(*origin, place.at("place").get<std::string>());
        if (parsed) resident.places.push_back(*parsed);
      }
      for (const auto& name : each.value("names", json::array())) {
        const auto gid = port::parse_address(name.at("gid").get<std::string>());
        if (gid) resident.names.push_back({*gid, name.at("qpn").get<std::uint32_t>()});
      }
      resident.has_fallen_back = each.value("fallen_back", false);
      entries_[resident.pid] = std::move(entry);
    }
  } catch (const json::exception& error) {
    log::warn("{} is damaged, and ignored: {}", path_, error.what());
  }
}

// Called with mutex_ held. Readers find the old file or the new one.
void Residents::save() const {
  json residents = json::array();
  for (const auto& [pid, entry] : entries_) {
    json places = json::array();
    for (const Place& place : entry.resident.places) {
      places.push_back({{"origin", origin_text(place.origin)}, {"place", value_text(place)}});
    }
    json names = json::array();
    for (const auto& name : entry.resident.names) {
      names.push_back({{"gid", to_string(name.gid)}, {"qpn", name.qpn}});
    }
    residents.push_back({{"pid", pid},
                         {"started", entry.started},
                         {"network", entry.resident.network},
                         {"places", std::move(places)},
                         {"names", std::move(names)},
                         {"fallen_back", entry.resident.has_fallen_back}});
  }
  std::string text;  // empty: takes no room of a disk that is full
  if (!residents.empty()) {
    text = json_text({{"boot", stamp_now().boot}, {"residents", std::move(residents)}}) + "\n";
  }
  const std::string next = path_ + ".new";
  const UniqueFd file(
      ::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::rename(next.c_str(), path_.c_str()) == 0) {
    return;
  }
  log::warn("cannot write {}: {}", path_, error_text(errno));
}

bool Residents::enter(const Resident& resident) {
  Entry entry{resident, start_time(resident.pid), UniqueFd(::pidfd_open(resident.pid, 0))};
  if (!entry.process) return false;  // the process has ended
  Entry& known = entries_[resident.pid];
  const bool is_news = known.started != entry.started || known.resident != resident;
  known = std::move(entry);
  return is_news;
}

void Residents::settle(const Resident& resident) {
  std::lock_guard lock(mutex_);
  if (enter(resident)) save();
}

void Residents::know(const std::map<pid_t, std::set<device::Letter::End>>& names) {
  std::lock_guard lock(mutex_);
  bool is_news = false;
  for (const auto& [pid, of_process] : names) {
    const auto found = entries_.find(pid);
    const bool is_there = found != entries_.end() && !has_ended(found->second.process);
    Resident resident = is_there ? found->second.resident : Resident{pid, 0, {}};
    std::set<device::Letter::End> fresh = of_process;
    for (const auto& known : resident.names) fresh.erase(known);
    if (fresh.empty()) continue;
    resident.names.insert(resident.names.end(), fresh.begin(), fresh.end());
    is_news |= enter(resident);
  }
  if (is_news) save();
}

void Residents::forget(pid_t pid) {
  std::lock_guard lock(mutex_);
  if (entries_.erase(pid) > 0) save();
}

Residents::Resident Residents::of(pid_t pid) const {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(pid);
  if (found == entries_.end() || has_ended(found->second.process)) return {pid, 0, {}};
  return found->second.resident;
}

std::vector<Residents::Resident> Residents::all() const {
  std::lock_guard lock(mutex_);
  std::vector<Resident> all;
  for (const auto& [pid, entry] : entries_) {
    if (!has_ended(entry.process)) all.push_back(entry.resident);
  }
  return all;
}

std::set<pid_t> Residents::who_had(const std::set<device::Letter::End>& names) const {
  std::lock_guard lock(mutex_);
  std::set<pid_t> processes;
  for (const auto& [pid, entry] : entries_) {
    const auto& of_process = entry.resident.names;
    if (std::any_of(of_process.begin(), of_process.end(),
                    [&](const auto& name) { return names.contains(name); }) &&
        !has_ended(entry.process))
      processes.insert(pid);
  }
  return processes;
}

std::vector<Place> Residents::take_ended() {
  std::lock_guard lock(mutex_);
  std::vector<Place> ended;
  const auto erased = std::erase_if(entries_, [&](const auto& each) {
    const Entry& entry = each.second;
    if (!has_ended(entry.process)) return false;
    ended.insert(ended.end(), entry.resident.places.begin(), entry.resident.places.end());
    return true;
  });
  if (erased > 0) save();
  return ended;
}

}  // namespace ferry::host
