#include "host/podman/podman_arrival.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "base/failure.h"
#include "base/log.h"
#include "ferry.pb.h"
#include "host/peers/peer_record.h"
#include "host/peers/this_host.h"
#include "host/proc/silence.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kLook{2};    // between looks whether the container goes on
constexpr std::chrono::seconds kDoubt{3};        // for a source to decide before it is asked
constexpr std::chrono::seconds kAnswerLimit{8};  // less than the asking ferryd waits
constexpr std::chrono::milliseconds kLookEvery{100};
constexpr std::chrono::seconds kRetryEvery{2};  // between attempts to remove it

PodmanNote note_of(const v1::PrepareRequest& request, const std::string& from) {
  const auto& podman = request.podman();
  return {podman.id(),
          podman.name(),
          from + "@" + request.source(),
          {podman.volumes().begin(), podman.volumes().end()}};
}

}  // namespace

PodmanArrival::PodmanArrival(const ThisHost& host, DecisionLog& decisions, const ImageRoom& room,
                             ImageReceiver* images, Custody& custody, const Podman& podman,
                             Taken taken, const v1::PrepareRequest& request,
                             const std::string& from)
    : host_(host),
      decisions_(decisions),
      images_(images),
      custody_(custody),
      podman_(podman),
      taken_(std::move(taken)),
      move_id_(request.move_id()),
      note_(note_of(request, from)),
      from_(from),
      source_(request.source()),
      folder_(room.folder_of(move_id_)),
      archive_(folder_ + "/" + kPodmanArchive) {
  decisions_.note(Journal::podman(move_id_, Side::kDestination, note_));
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) throw Failure(fmt::format("cannot make {}: {}", folder_, error.message()));
  std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, error);
  token_ = images_->expect(folder_, room.available(), from);
}

PodmanArrival::PodmanArrival(const ThisHost& host, DecisionLog& decisions, const ImageRoom& room,
                             ImageReceiver* images, Custody& custody, const Podman& podman,
                             Taken taken, std::uint64_t move_id, const PodmanNote& note)
    : host_(host),
      decisions_(decisions),
      images_(images),
      custody_(custody),
      podman_(podman),
      taken_(std::move(taken)),
      move_id_(move_id),
      note_(note),
      from_(parse_peer(note.peer).name),
      source_(parse_peer(note.peer).address),
      folder_(room.folder_of(move_id_)),
      archive_(folder_ + "/" + kPodmanArchive),
      state_(State::kClearing) {
  clearer_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    clear(lock);
  });
}

PodmanArrival::~PodmanArrival() {
  if (clearer_.joinable()) clearer_.join();
}

std::uint64_t PodmanArrival::restore(std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  images_->wait(token_, static_cast<int>(std::min(limit, host_.limits.transfer).count()));
  std::unique_lock lock(mutex_);
  if (state_ != State::kWaiting) throw Failure("the move was aborted");
  state_ = State::kRestoring;
  lock.unlock();
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
  const std::string error = podman_.import(
      archive_, std::clamp(left, std::chrono::milliseconds(1), host_.limits.restore));
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  lock.lock();
  state_ = State::kRestored;
  since_ = Clock::now();
  changed_.notify_all();
  // The processes may run, and may have taken the checkpoint, also when podman failed or was
  // killed: nothing of them is removed until the source, which calls the checkpoint back first,
  // says so.
  if (!error.empty()) throw Failure(fmt::format("cannot restore '{}': {}", note_.name, error));
  const auto most = since_ + host_.limits.resume;
  while (state_ == State::kRestored || state_ == State::kTaken) {
    lock.unlock();
    if (const auto arrival = taken_(move_id_)) {
      for (const auto& event : arrival->account()) {
        if (!event.has_resumed()) continue;
        look();
        return event.resumed().rdma_ns();
      }
    }
    lock.lock();
    if (Clock::now() > most) {
      throw Failure(fmt::format("'{}' was restored and does not go on", note_.name));
    }
    changed_.wait_for(lock, kLook);
  }
  throw Failure("the move was aborted");
}

void PodmanArrival::look() {
  const bool is_taken = taken_(move_id_) != nullptr;
  std::lock_guard lock(mutex_);
  if (!is_taken || state_ != State::kRestored) return;
  state_ = State::kTaken;
  images_->cancel(token_);
  report_failure([&] { decisions_.note(Journal::podman_is_clear(move_id_, Side::kDestination)); });
}

Answer PodmanArrival::abort() {
  look();
  std::unique_lock lock(mutex_);
  heard_ = Clock::now();
  if (state_ == State::kTaken) return Answer::kCommitted;
  // podman cannot be stopped in the middle: what it restores gets nothing from its source any more.
  changed_.wait_for(lock, kAnswerLimit,
                    [this] { return state_ != State::kRestoring && state_ != State::kClearing; });
  if (state_ == State::kWaiting || state_ == State::kRestored) {
    log::info("'{}' does not arrive: its source gave up", note_.name);
    clear(lock);
  }
  return state_ == State::kGone ? Answer::kAborted : Answer::kUnknown;
}

// Nothing of the arrival is left when this returns, unless this ferryd ends.
void PodmanArrival::clear(std::unique_lock<std::mutex>& lock) {
  state_ = State::kClearing;
  lock.unlock();
  custody_.give_up(move_id_);
  if (token_ != ImageToken{}) images_->cancel(token_);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  // A podman that a former ferryd started may be about to make the container.
  while (Podman::is_at_work(archive_) && !host_.stopping) std::this_thread::sleep_for(kLookEvery);
  bool clear = false;
  while (!clear && !host_.stopping) {
    const std::string error = remove();
    clear = error.empty();
    if (clear) break;
    log::error("'{}' does not arrive, and podman cannot remove it: {}", note_.name, error);
    for (auto until = Clock::now() + kRetryEvery; Clock::now() < until && !host_.stopping;) {
      std::this_thread::sleep_for(kLookEvery);
    }
  }
  if (clear) decisions_.forget(move_id_, Side::kDestination);
  lock.lock();
  if (clear) state_ = State::kGone;
  changed_.notify_all();
}

// The container may have run here, with TCP connections that go on at its source.
std::string PodmanArrival::remove() {
  try {
    if (const auto restored = podman_.find(note_.id); restored && restored->runs()) {
      silence(restored->pid);
    } else {
      podman_.end_restore(note_.id);
    }
  } catch (const Failure& failure) {
    return failure.what();
  }
  std::string error = podman_.remove(note_.id, true);
  for (const auto& volume : note_.volumes) {
    const std::string problem = podman_.remove_volume(volume);
    if (error.empty()) error = problem;
  }
  return error;
}

void PodmanArrival::await_clear() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kAnswerLimit, [this] { return state_ != State::kClearing; });
}

void PodmanArrival::source_is_at_work() {
  std::lock_guard lock(mutex_);
  heard_ = Clock::now();
}

void PodmanArrival::source_is_silent() {
  std::unique_lock lock(mutex_);
  const bool give_up = Clock::now() - heard_ > host_.limits.source;
  // What was restored may have taken the checkpoint: only the source knows.
  if (!give_up || state_ != State::kWaiting) return;
  log::info("'{}' does not arrive: there is no sign of its source", note_.name);
  clear(lock);
}

bool PodmanArrival::waits_long() const {
  std::lock_guard lock(mutex_);
  const bool waits = state_ == State::kWaiting || state_ == State::kRestored;
  return waits && Clock::now() - since_ > kDoubt;
}

bool PodmanArrival::in_doubt() const {
  std::lock_guard lock(mutex_);
  return state_ == State::kRestored && Clock::now() - since_ > kDoubt;
}

bool PodmanArrival::is_over() const {
  std::lock_guard lock(mutex_);
  return state_ == State::kTaken || state_ == State::kGone;
}

}  // namespace ferry::host
