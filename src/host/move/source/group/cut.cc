#include "host/move/source/group/cut.h"

#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <utility>

#include "base/failure.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kLook{20};    // between looks whether the group is given up
constexpr std::chrono::seconds kFreezeLimit{25};  // CRIU's plugin waits for 30

// Throws Failure when a file that several programs write to has become longer while all were frozen.
void need_same_lengths(const std::vector<Cut::Part>& parts) {
  std::map<std::string, std::uint64_t> lengths;
  for (const auto& part : parts) {
    for (const auto& file : part.written) {
      const auto [found, is_new] = lengths.emplace(file.path, file.bytes);
      if (is_new || found->second == file.bytes) continue;
      throw Failure(
          printable(file.path) +
          " is written by a program that is not in the checkpoint; name it there as well");
    }
  }
}

}  // namespace

std::string no_checkpoint(const std::string& program, const std::string& device) {
  return fmt::format(
      "'{}' uses {}, a device of the kernel: only programs with Ferry's own devices have "
      "checkpoints",
      program, printable(device));
}

void Cut::meet(Meeting& meeting, std::size_t program, const Owner::Call& owner,
               const NeedOpen& need_open) {
  std::unique_lock lock(mutex_);
  const bool is_last = meeting.there.insert(program).second && meeting.there.size() == programs_;
  if (is_last) {
    lock.unlock();
    if (owner) owner(need_open);
    lock.lock();
    meeting.is_over = true;
    changed_.notify_all();
  }
  while (!changed_.wait_for(lock, kLook, [&] { return meeting.is_over; })) {
    lock.unlock();
    need_open();
    lock.lock();
  }
}

void Cut::check(std::size_t program, const NeedOpen& need_open) {
  meet(checked_, program, owner_.checked, need_open);
}

void Cut::freeze(std::size_t program, const NeedOpen& need_open) {
  const auto until = std::chrono::steady_clock::now() + kFreezeLimit;
  meet(frozen_, program, owner_.frozen, [&] {
    need_open();
    if (std::chrono::steady_clock::now() < until) return;
    throw Failure(fmt::format("not all programs of the checkpoint stand still after {} s",
                              kFreezeLimit.count()));
  });
}

void Cut::join(std::size_t program, Part part, const NeedOpen& need_open) {
  need_open();
  std::unique_lock lock(mutex_);
  if (!is_over_) parts_.insert_or_assign(program, std::move(part));
  if (!is_over_ && has_all()) fill(lock);
  while (!changed_.wait_for(lock, kLook, [this] { return is_over_; })) {
    lock.unlock();
    std::string failure;
    try {
      need_open();
    } catch (const std::exception& thrown) {
      failure = thrown.what();
    }
    lock.lock();
    // Whether the cut is full or given up is decided with the lock: for all programs in the same way.
    if (!failure.empty() && !has_all() && !is_over_) end(failure);
  }
  if (!failure_.empty()) throw Failure(failure_);
}

void Cut::fill(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  std::string failure;
  try {
    need_same_lengths(parts());
    if (owner_.dumped) owner_.dumped();
  } catch (const std::exception& thrown) {
    failure = thrown.what();
  }
  lock.lock();
  end(failure);
}

void Cut::end(const std::string& failure) {
  failure_ = failure;
  is_over_ = true;
  changed_.notify_all();
}

bool Cut::is_full() const {
  std::lock_guard lock(mutex_);
  return has_all() && !is_over_;
}

bool Cut::is_taken() const {
  std::lock_guard lock(mutex_);
  return is_over_ && failure_.empty();
}

std::vector<Cut::Part> Cut::parts() const {
  std::lock_guard lock(mutex_);
  std::vector<Part> parts;
  for (const auto& [program, part] : parts_) parts.push_back(part);
  return parts;
}

}  // namespace ferry::host
