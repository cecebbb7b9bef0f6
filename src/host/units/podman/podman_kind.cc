#include "host/units/podman/podman_kind.h"

#include <fmt/core.h>

#include <filesystem>

#include "base/failure.h"
#include "base/log.h"
#include "host/image/image_room.h"

namespace ferry::host {
namespace {

constexpr std::string_view kPath = "ns:";  // before the path of a network namespace

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string short_id(const std::string& id) {
  return id.substr(0, Podman::kShortId);
}

}  // namespace

PodmanKind::PodmanKind(std::string command, const ThisHost& host)
    : host_(host),
      podman_(std::move(command)),
      notes_(host.state_directory),
      cleaner_(podman_, notes_, host.stopping),
      here_{podman_, notes_, cleaner_, host.stopping} {}

bool PodmanKind::has(const std::string& name) {
  const bool is_pid = name.find_first_not_of("0123456789") == std::string::npos;
  if (is_pid || !podman_.is_installed()) return false;
  try {
    return podman_.find(name).has_value();
  } catch (const Failure& failure) {
    log::debug("{}", failure.what());  // a podman that nobody uses may fail
    return false;
  }
}

// Refuses what podman cannot checkpoint, or could not restore.
std::shared_ptr<Unit> PodmanKind::unit_of(const std::string& host, PodmanContainer container) {
  const auto refuse = [&](const std::string& reason) {
    throw Failure(fmt::format("'{}' was not moved: {}", container.name, reason));
  };
  if (container.status == "paused") {
    refuse(fmt::format("it is paused; let it run to move it: podman unpause {}", container.name));
  }
  if (!container.runs())
    refuse(fmt::format("it does not run on {}: it is {}", host, container.status));
  if (container.removes_itself) {
    refuse(
        "it was started with --rm, and podman would remove it at the checkpoint: nothing could "
        "bring it back; start it without");
  }
  if (!container.pod.empty() || container.network_mode.starts_with("container:")) {
    refuse(
        "it shares a network with other containers, of its pod or by --network container:..., "
        "which stay here");
  }
  return std::make_shared<PodmanUnit>(here_, std::move(container), PodmanNotes::new_token());
}

std::shared_ptr<Unit> PodmanKind::named(const std::string& host, const std::string& name) {
  auto container = podman_.find(name);
  if (!container) throw Failure(fmt::format("podman has no container '{}' on {}", name, host));
  return unit_of(host, std::move(*container));
}

std::shared_ptr<Unit> PodmanKind::of_process(const std::string& host, pid_t pid) {
  const std::string id = Podman::container_of(pid);
  if (id.empty()) return nullptr;
  auto container = podman_.find(id);
  return container ? unit_of(host, std::move(*container)) : nullptr;
}

std::optional<UnitName> PodmanKind::name_of(pid_t pid) {
  const std::string id = Podman::container_of(pid);
  if (id.empty()) return std::nullopt;
  const std::string name = Podman::name_of(pid, id);
  return UnitName{kPodman, name.empty() ? short_id(id) : name, id};
}

// Failures do not name this host: the asking ferryd puts its name before them.
void PodmanKind::check_arrival(const std::string& host, const std::string&,
                               const std::string& details) {
  std::uint64_t bytes = 0;
  const PodmanContainer container = PodmanUnit::parse(details, &bytes);
  cleaner_.await(container.id, container.name);
  if (const auto problem = podman_.unusable(); !problem.empty()) throw Failure(problem);
  for (const auto& name : {container.name, container.id}) {
    if (const auto other = podman_.find(name)) {
      throw Failure(fmt::format("there is a container '{}' already ({}); remove it: podman rm {}",
                                other->name, other->status, other->name));
    }
  }
  if (!podman_.has_image(container.image)) {
    throw Failure(
        fmt::format("there is no image {} with the id {}; take it there: podman save {} | "
                    "ssh {} podman load",
                    container.image_name, short_id(container.image), container.image_name, host));
  }
  for (const auto& network : container.networks) {
    if (!podman_.has_network(network)) {
      throw Failure(
          fmt::format("there is no network '{}'; make it: podman network create", network));
    }
  }
  if (container.network_mode.starts_with(kPath)) {
    const std::string path = container.network_mode.substr(kPath.size());
    if (!exists(path)) throw Failure(fmt::format("there is no network namespace {}", path));
  }
  for (const auto& volume : container.volumes) {
    if (podman_.has_volume(volume)) {
      throw Failure(fmt::format("there is a volume '{}' already; remove it: podman volume rm {}",
                                volume, volume));
    }
  }
  for (const auto& source : container.sources) {
    if (!exists(source)) {
      throw Failure(fmt::format("there is no {}, which '{}' mounts", source, container.name));
    }
  }
  const std::uint64_t needed = bytes + kHeadroom;
  if (const auto free = podman_.free_disk(); free < needed) {
    throw Failure(fmt::format("not enough disk for '{}': {} MiB needed, {} MiB free",
                              container.name, needed >> 20, free >> 20));
  }
}

bool PodmanKind::name_is_free(const std::string& name) {
  return !has(name);
}

std::shared_ptr<Unit> PodmanKind::arrive(const std::string& name, const std::string& details,
                                         const std::string&) {
  std::uint64_t bytes = 0;
  PodmanContainer container = PodmanUnit::parse(details, &bytes);
  if (container.name != name) throw Failure("malformed request");
  const std::string token = PodmanNotes::new_token();
  std::lock_guard lock(mutex_);
  for (const auto& [other, arrival] : notes_.arrivals()) {
    if (arrival.id != container.id && arrival.name != name) continue;
    throw Failure(fmt::format("'{}' arrives there already", arrival.name));
  }
  notes_.arrives(token, {container.id, container.name, container.volumes, {}});
  return std::make_shared<PodmanUnit>(here_, std::move(container), token);
}

// podman:ID:TOKEN
bool PodmanKind::has_made(const std::string& instance) const {
  return instance.starts_with(std::string(kPodman) + ":");
}

std::shared_ptr<Unit> PodmanKind::known(const std::string& name, const std::string& instance) {
  const std::size_t begin = instance.find(':') + 1, end = instance.rfind(':');
  PodmanContainer container;
  container.id = instance.substr(begin, end - begin);
  container.name = name;
  const std::string token = instance.substr(end + 1);
  {
    std::lock_guard lock(mutex_);
    known_.insert(token);
  }
  // An arrival that a ferryd takes up again is committed.
  notes_.forget_arrival(token);
  return std::make_shared<PodmanUnit>(here_, std::move(container), token);
}

void PodmanKind::clear_up_arrivals() {
  for (const auto& [token, arrival] : notes_.arrivals()) cleaner_.remove(token, arrival);
  // A former ferryd has begun to move these, and nothing was stopped by then. podman may be at the
  // checkpoint all the same, which is nobody's move then.
  std::lock_guard lock(mutex_);
  for (const auto& [token, departure] : notes_.departures()) {
    if (known_.contains(token)) continue;
    PodmanContainer container;
    container.id = departure.id;
    container.name = departure.name;
    const auto unit = std::make_shared<PodmanUnit>(here_, std::move(container), token);
    cleaner_.add(departure.id, departure.name, [this, unit, token = token] {
      bool killed = false;
      const std::string error = unit->come_back(host_.limits.restore, &killed);
      if (killed) unit->end_restore();
      if (!error.empty()) log::error("'{}' does not go on here: {}", unit->name(), error);
      notes_.forget_departure(token);
      return true;
    });
  }
}

}  // namespace ferry::host
