#include "host/units/podman/podman_cleaner.h"

#include <algorithm>
#include <chrono>

#include "base/failure.h"
#include "base/log.h"
#include "host/proc/silence.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kPodmanGlance{50};  // between looks at a podman that is at work
constexpr std::chrono::seconds kRetryEvery{2};
constexpr std::chrono::seconds kAnswerLimit{8};  // less than an asking ferryd waits

}  // namespace

PodmanCleaner::PodmanCleaner(const Podman& podman, const PodmanNotes& notes,
                             const std::atomic<bool>& stopping)
    : podman_(podman), notes_(notes), stopping_(stopping), thread_([this] { run(); }) {}

PodmanCleaner::~PodmanCleaner() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void PodmanCleaner::remove(const std::string& token, const PodmanArrival& arrival) {
  add(arrival.id, arrival.name, [=, this] { return remove_arrival(token, arrival); });
}

void PodmanCleaner::add(const std::string& id, const std::string& name,
                        std::function<bool()> work) {
  std::lock_guard lock(mutex_);
  tasks_.push_back({id, name, std::move(work)});
  changed_.notify_all();
}

void PodmanCleaner::await(const std::string& id, const std::string& name) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kAnswerLimit, [&] {
    return std::none_of(tasks_.begin(), tasks_.end(),
                        [&](const Task& task) { return task.id == id || task.name == name; });
  });
}

void PodmanCleaner::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
    if (ends_ || stopping_) return;  // the next ferryd goes on
    Task task = tasks_.front();
    lock.unlock();
    const bool is_done = task.work();
    lock.lock();
    tasks_.pop_front();
    if (!is_done) tasks_.push_back(std::move(task));
    changed_.notify_all();
    if (!is_done) changed_.wait_for(lock, kRetryEvery, [this] { return ends_; });
  }
}

bool PodmanCleaner::remove_arrival(const std::string& token, const PodmanArrival& arrival) const {
  // A podman that a former ferryd started may be about to make the container.
  while (!arrival.archive.empty() && Podman::is_at_work(arrival.archive)) {
    if (stopping_) return false;
    std::this_thread::sleep_for(kPodmanGlance);
  }
  const std::string error = remove_container(arrival);
  if (!error.empty()) {
    log::error("'{}' does not arrive, and podman cannot remove it: {}", arrival.name, error);
    return false;
  }
  notes_.forget_arrival(token);
  return true;
}

// The container may be there, stopped, with TCP connections that go on at its source.
std::string PodmanCleaner::remove_container(const PodmanArrival& arrival) const {
  try {
    if (const auto restored = podman_.find(arrival.id); restored && restored->runs()) {
      silence(restored->pid);
    } else {
      podman_.end_restore(arrival.id);
    }
  } catch (const Failure& failure) {
    return failure.what();
  }
  std::string error = podman_.remove(arrival.id, true);
  for (const auto& volume : arrival.volumes) {
    const std::string problem = podman_.remove_volume(volume);
    if (error.empty()) error = problem;
  }
  return error;
}

}  // namespace ferry::host
