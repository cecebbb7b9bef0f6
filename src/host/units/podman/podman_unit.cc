#include "host/units/podman/podman_unit.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/failure.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "host/image/image_room.h"
#include "host/proc/network_namespace.h"
#include "host/proc/process_tree.h"
#include "host/units/host_network.h"
#include "host/units/obstacles.h"

namespace ferry::host {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kArchive[] = "archive.tar";  // its name in the image
constexpr milliseconds kPause{100};         // between looks
constexpr seconds kExitLimit{10};           // for podman to see that a container has ended
constexpr std::size_t kPiece = 1 << 20;
// podman gives up a container that is not restored after 240 s, and ends it.
constexpr seconds kPatience{180};

// Processes that `podman exec` has started are not in the tree of the container: they would not
// move along. One that is over soon, a health check, is no obstacle.
std::string exec_session(const PodmanContainer& container) {
  constexpr milliseconds kSecondLook{500};
  const auto strangers = [&] {
    std::set<pid_t> found;
    for (const pid_t pid : Podman::processes_of(container.id)) found.insert(pid);
    for (const pid_t pid : process_tree(container.pid)) found.erase(pid);
    std::erase_if(found, [](pid_t pid) { return !is_alive(pid); });
    return found;
  };
  const auto first = strangers();
  if (first.empty()) return {};
  std::this_thread::sleep_for(kSecondLook);
  for (const pid_t pid : strangers()) {
    if (!first.contains(pid)) continue;
    return fmt::format(
        "process {} ({}) was started in it by podman exec, and would not move along; let it end",
        pid, program_name(pid).value_or("?"));
  }
  return {};
}

// Opens without waiting for a writer.
UniqueFd open_fifo(const std::string& path) {
  UniqueFd fifo(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (fifo) ::fcntl(fifo.get(), F_SETPIPE_SZ, static_cast<int>(kPiece));
  return fifo;
}

}  // namespace

PodmanUnit::PodmanUnit(const PodmanHere& here, PodmanContainer container, std::string token)
    : Unit(container.name, container.pid),
      here_(here),
      container_(std::move(container)),
      token_(std::move(token)),
      netns_(container_.pid != 0 ? network_of(container_.pid) : std::string()) {}

std::string PodmanUnit::details() const {
  return json_text({{"id", container_.id},
                    {"name", container_.name},
                    {"image", container_.image},
                    {"image_name", container_.image_name},
                    {"sources", container_.sources},
                    {"networks", container_.networks},
                    {"volumes", container_.volumes},
                    {"network_mode", container_.network_mode},
                    {"resident_bytes", resident_bytes_of_tree(container_.pid)}});
}

PodmanContainer PodmanUnit::parse(const std::string& details, std::uint64_t* resident_bytes) {
  const json parsed = json_or_discarded(details);
  try {
    PodmanContainer container;
    container.id = parsed.at("id");
    container.name = parsed.at("name");
    container.image = parsed.at("image");
    container.image_name = parsed.at("image_name");
    container.sources = parsed.at("sources");
    container.networks = parsed.at("networks");
    container.volumes = parsed.at("volumes");
    container.network_mode = parsed.at("network_mode");
    *resident_bytes = parsed.at("resident_bytes");
    if (container.id.empty() || container.name.empty()) throw Failure("malformed request");
    return container;
  } catch (const json::exception&) {
    throw Failure("malformed request");
  }
}

std::string PodmanUnit::instance() const {
  return fmt::format("{}:{}:{}", kPodman, container_.id, token_);
}

// --- on the source

std::string PodmanUnit::without_rdma(const std::string&) const {
  return fmt::format(
      "'{}' was not moved: no process in it uses an RDMA device of Ferry's; plain `podman "
      "container "
      "checkpoint --export` and `restore --import` will do",
      name());
}

void PodmanUnit::want(const Extras& extras) {
  if (!extras.rootfs && extras.stdio.empty()) return;
  throw Failure(fmt::format("'{}' {}", name(), kOnlyRunc));
}

void PodmanUnit::need_movable() const {
  if (const auto problem = here_.podman.unusable(); !problem.empty()) throw Failure(problem);
  if (const auto obstacle = find_obstacle(root(), OuterStreams::kRuntimes); !obstacle.empty()) {
    throw Failure(obstacle);
  }
  if (const auto obstacle = exec_session(container_); !obstacle.empty()) throw Failure(obstacle);
  if (netns_.empty()) {
    if (const auto obstacle = obstacle_on_host_network(root()); !obstacle.empty()) {
      throw Failure(obstacle);
    }
  }
  const std::uint64_t needed = resident_bytes_of_tree(root()) + kHeadroom;
  if (const auto free = here_.podman.free_disk(); free < needed) {
    throw Failure(fmt::format("not enough disk for its checkpoint: {} MiB needed, {} MiB free",
                              needed >> 20, free >> 20));
  }
}

void PodmanUnit::leave() const {
  here_.notes.leaves(token_, {container_.id, name()});
  const std::string fifo = here_.notes.fifo(token_);
  if (::mkfifo(fifo.c_str(), 0600) == 0) return;
  const int error = errno;
  here_.notes.forget_departure(token_);
  throw Failure(fmt::format("cannot make {}: {}", fifo, error_text(error)));
}

std::string PodmanUnit::dump(CriuRunner&, CriuRunner::Dump dump, std::atomic<pid_t>* podman) const {
  auto checkpoint = std::async(std::launch::async, [&] {
    return here_.podman.checkpoint(container_, here_.notes.fifo(token_), podman);
  });
  const std::string broken = give_away(dump, checkpoint);
  const std::string error = checkpoint.get();
  if (!error.empty()) return fmt::format("podman container checkpoint: {}", error);
  if (!broken.empty()) return broken;
  switch (dump.written()) {
    case 0: return {};
    case EAGAIN: return "this ferryd is ending";
    default: return "the move was given up";
  }
}

// Sends what podman writes, as it is written. podman waits for its reader: so all is read, whatever
// becomes of the transfer. Gives an empty string, or what failed.
std::string PodmanUnit::give_away(const CriuRunner::Dump& dump,
                                  std::future<std::string>& podman) const {
  const UniqueFd fifo = open_fifo(here_.notes.fifo(token_));
  std::string broken = fifo ? std::string() : error_text(errno);
  std::vector<std::byte> piece(kPiece);
  std::size_t filled = 0;
  const auto send = [&] {
    if (filled == 0) return;
    try {
      if (broken.empty()) dump.send(kArchive, {piece.data(), filled});
    } catch (const Failure& failure) {
      broken = failure.what();
    }
    filled = 0;
  };
  for (bool open = bool(fifo); open;) {
    pollfd readable{fifo.get(), POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(kPause.count())) == 0) {
      // A podman that fails early has never opened the FIFO.
      open = podman.wait_for(seconds(0)) != std::future_status::ready;
      continue;
    }
    const ssize_t size = ::read(fifo.get(), piece.data() + filled, piece.size() - filled);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (size < 0 && broken.empty()) broken = error_text(errno);
    if (size <= 0) open = false;
    if (size > 0) filled += static_cast<std::size_t>(size);
    if (filled == piece.size()) send();
  }
  send();
  return broken;
}

void PodmanUnit::left() const {
  // It may have come back since, when a former ferryd has removed it already.
  if (!here_.notes.has_to_leave(token_)) return;
  std::string error;
  try {
    const auto container = here_.podman.find(container_.id);
    error = here_.podman.remove(container_.id, false);
    for (const auto& volume : container ? container->volumes : std::vector<std::string>()) {
      const std::string problem = here_.podman.remove_volume(volume);
      if (error.empty()) error = problem;
    }
  } catch (const Failure& failure) {
    error = failure.what();
  }
  here_.notes.forget_departure(token_);
  if (error.empty()) return;
  log::error("'{}' has moved, and podman cannot remove it here: {}", name(), error);
}

// A podman that a former ferryd started may still be at the checkpoint: it waits for a reader of
// what it writes. False: this ferryd ends.
bool PodmanUnit::await_checkpoint() const {
  const std::string path = here_.notes.fifo(token_);
  const UniqueFd fifo = open_fifo(path);
  std::vector<std::byte> piece(kPiece);
  while (Podman::is_at_work(path)) {
    if (here_.stopping) return false;
    pollfd readable{fifo.get(), POLLIN, 0};
    ::poll(&readable, 1, static_cast<int>(kPause.count()));
    while (fifo && ::read(fifo.get(), piece.data(), piece.size()) > 0) continue;
  }
  return true;
}

// The container may never have stopped, or may go on after a dump that failed.
std::string PodmanUnit::come_back(milliseconds limit, bool* killed) const {
  *killed = false;
  try {
    if (!await_checkpoint()) return "this ferryd is ending";
    const auto deadline = std::chrono::steady_clock::now() + kExitLimit;
    auto now = here_.podman.find(container_.id);
    // podman hears a little later that the container's processes are gone.
    while (now && now->runs() && !is_alive(now->pid) &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kPause);
      now = here_.podman.find(container_.id);
    }
    if (!now) return "podman has it no more";
    const std::string error =
        now->runs() ? std::string() : here_.podman.restore(*now, limit, killed);
    if (error.empty()) here_.notes.forget_departure(token_);
    return error;
  } catch (const Failure& failure) {
    return failure.what();
  }
}

void PodmanUnit::end_restore() const {
  here_.podman.end_restore(container_.id);
}

// --- on the destination

std::string PodmanUnit::restore(CriuRunner&, CriuRunner::Restore restore,
                                std::atomic<pid_t>* podman) const {
  const std::string archive = restore.images + "/" + kArchive;
  try {
    here_.notes.arrives(token_, {container_.id, name(), container_.volumes, archive});
  } catch (const Failure& failure) {
    return failure.what();
  }
  return here_.podman.import(archive, podman);
}

milliseconds PodmanUnit::patience() const {
  return kPatience;
}

// The source has nothing on record under this token.
void PodmanUnit::publish() const {
  here_.notes.forget_arrival(token_);
}

void PodmanUnit::forget() const {
  for (const auto& [token, arrival] : here_.notes.arrivals()) {
    if (token != token_) continue;
    here_.cleaner.remove(token, arrival);
    here_.cleaner.await(arrival.id, arrival.name);
  }
}

}  // namespace ferry::host
