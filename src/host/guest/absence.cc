#include "host/guest/absence.h"

#include <fmt/core.h>

#include <utility>

#include "base/log.h"

namespace ferry::host {
namespace {

std::vector<v1::GuestProgram> report_of(const Detachment& detachment) {
  std::vector<v1::GuestProgram> programs;
  for (const auto& program : detachment.programs()) {
    auto& added = programs.emplace_back();
    added.set_pid(program->root());
    added.set_name(program->name());
    added.set_stood_still_ms(program->stood_still_ms().value_or(0));
  }
  return programs;
}

}  // namespace

Absence::Absence(std::shared_ptr<Detachment> detachment, std::unique_ptr<Timeline> timeline,
                 std::chrono::milliseconds limit)
    : timeline_(std::move(timeline)),
      detachment_(std::move(detachment)),
      programs_(report_of(*detachment_)) {
  thread_ = std::thread([this, limit] { run(limit); });
}

Absence::~Absence() {
  may_end();
  come_back();
  thread_.join();
}

void Absence::may_end() {
  std::lock_guard lock(mutex_);
  may_end_ = true;
  changed_.notify_all();
}

void Absence::come_back() {
  std::lock_guard lock(mutex_);
  is_asked_ = true;
  changed_.notify_all();
}

void Absence::run(std::chrono::milliseconds limit) {
  {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [this] { return is_asked_; })) {
      log::warn("programs come back to {} unasked: the host's ferryd is silent for too long",
                detachment_->device_names());
    }
    changed_.wait(lock, [this] { return may_end_; });
  }
  report_failure([this] {
    detachment_->enter([this](const std::string& why) {
      std::lock_guard lock(mutex_);
      waiting_ = why;
      changed_.notify_all();
    });
  });
  auto programs = report_of(*detachment_);
  for (const auto& program : detachment_->programs()) {
    if (const auto entered = program->entering()) {
      timeline_->add({fmt::format("'{}' ({})", program->name(), program->root()),
                      "opens its devices and makes its objects", entered->first, entered->second});
    }
  }
  detachment_.reset();  // from now on the programs may move
  std::lock_guard lock(mutex_);
  programs_ = std::move(programs);
  is_over_ = true;
  changed_.notify_all();
}

bool Absence::await(std::string* waiting, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return is_over_ || waiting_ != *waiting; });
  *waiting = waiting_;
  return is_over_;
}

bool Absence::is_over() const {
  std::lock_guard lock(mutex_);
  return is_over_;
}

std::vector<v1::GuestProgram> Absence::programs() const {
  std::lock_guard lock(mutex_);
  return programs_;
}

}  // namespace ferry::host
