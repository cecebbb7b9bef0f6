#include "host/move/source/group/cut.h"

#include <chrono>
#include <exception>
#include <utility>

#include "base/failure.h"

namespace ferry::host {
namespace {

constexpr std::chrono::milliseconds kLook{20};  // between looks whether the group is given up

}  // namespace

void Cut::join(std::size_t program, Part part, const std::function<void()>& need_open) {
  std::unique_lock lock(mutex_);
  parts_.insert_or_assign(program, std::move(part));
  if (parts_.size() == programs_) {
    lock.unlock();
    std::string failure;
    try {
      if (finish_) finish_(parts());
    } catch (const std::exception& thrown) {
      failure = thrown.what();
    }
    lock.lock();
    failure_ = failure;
    is_over_ = true;
    changed_.notify_all();
  }
  while (!changed_.wait_for(lock, kLook, [this] { return is_over_; })) {
    if (parts_.size() == programs_) continue;
    lock.unlock();
    need_open();
    lock.lock();
  }
  if (!failure_.empty()) throw Failure(failure_);
}

bool Cut::is_full() const {
  std::lock_guard lock(mutex_);
  return parts_.size() == programs_;
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
