#include "host/journal/decision_log.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/failure.h"
#include "base/log.h"

namespace ferry::host {
namespace {

std::chrono::nanoseconds read_clock(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

bool sync_folder(const std::string& path) {
  const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return folder && ::fsync(folder.get()) == 0;
}

std::uint64_t new_move_id() {
  std::uint64_t id = 0;
  while (id == 0) {
    if (::getrandom(&id, sizeof id, 0) != sizeof id) throw Failure("cannot get random bytes");
  }
  return id;
}

Stamp stamp_now() {
  static const std::uint64_t boot = [] {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    std::erase(id, '-');
    return std::strtoull(id.substr(0, 16).c_str(), nullptr, 16);
  }();
  return {boot, read_clock(CLOCK_BOOTTIME), read_clock(CLOCK_REALTIME)};
}

DecisionLog::DecisionLog(const std::string& directory, SyncFolder sync)
    : directory_(directory), path_(directory + "/decisions"), sync_folder_(std::move(sync)) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    throw Failure(
        fmt::format("cannot make {}: {}; give a writable --state-dir", directory, error.message()));
  }
  std::ifstream in(path_);
  std::size_t damaged = 0, of_others = 0;
  for (std::string line; std::getline(in, line);) {
    torn_ = in.eof();  // no newline at its end
    size_ += line.size() + 1;
    const auto taken = journal_.take(line);
    damaged += taken == Journal::Taken::kNo;
    of_others += taken == Journal::Taken::kOtherVersion;
  }
  if (damaged > 0) {
    log::warn("{} lines of {} are torn or damaged, and ignored", damaged, path_);
  }
  if (of_others > 0) {
    log::warn("{} notes in {} are of another version of Ferry: what they tell of is not held",
              of_others, path_);
  }
  file_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file_) throw Failure(fmt::format("cannot open {}: {}", path_, error_text(errno)));
  if (::fchmod(file_.get(), 0600) != 0 || !sync_folder_(directory)) {
    throw Failure(fmt::format("cannot sync {}: {}", directory, error_text(errno)));
  }
}

void DecisionLog::record(Side side, const Record& record) {
  std::string error;
  if (write(side, record, &error) != Written::kDurable) throw Failure(error);
}

Written DecisionLog::write(Side side, const Record& record, std::string* error) {
  std::lock_guard lock(mutex_);
  for (const auto move : record.moves) {
    const auto* entry = journal_.find(move, side);
    if (entry == nullptr || entry->decision() != Decision::kConfirmed ||
        record.decision == Decision::kConfirmed) {
      continue;
    }
    *error = fmt::format("the destination of move {:016x} has confirmed it: '{}' is there", move,
                         entry->record->program);
    return Written::kNot;
  }
  const std::string line = Journal::decision(side, record);
  const Written written = append(line, true, error);
  if (written == Written::kDurable) journal_.take(line);
  return written;
}

void DecisionLog::note(const std::string& line) {
  std::lock_guard lock(mutex_);
  std::string error;
  if (append(line, false, &error) != Written::kDurable) throw Failure(error);
  journal_.take(line);
}

// For notes that something is not needed any more: only the next ferryd gains by them.
void DecisionLog::note_quietly(const std::string& line) {
  std::string error;
  if (append(line, false, &error) != Written::kDurable) log::warn("{}", error);
  journal_.take(line);
}

void DecisionLog::over(std::uint64_t move_id, Side side) {
  std::lock_guard lock(mutex_);
  if (journal_.find(move_id, side) == nullptr) return;
  note_quietly(journal_.over(move_id, side));
  if (size_ > compact_above_) compact();
}

void DecisionLog::forget(std::uint64_t move_id, Side side) {
  std::lock_guard lock(mutex_);
  if (journal_.find(move_id, side) != nullptr) drop(move_id, side);
}

void DecisionLog::forget_ended_arrival(std::uint64_t move_id) {
  std::lock_guard lock(mutex_);
  const auto* entry = journal_.find(move_id, Side::kDestination);
  if (entry != nullptr && entry->over) drop(move_id, Side::kDestination);
}

// With the mutex.
void DecisionLog::drop(std::uint64_t move_id, Side side) {
  note_quietly(Journal::forgotten(move_id, side));
  if (size_ > compact_above_) compact();
}

void DecisionLog::reuse(std::uint64_t move_id, Side side) {
  std::lock_guard lock(mutex_);
  if (journal_.find(move_id, side) == nullptr) return;
  const std::string line = Journal::forgotten(move_id, side);
  std::string error;
  if (append(line, true, &error) != Written::kDurable) throw Failure(error);
  journal_.take(line);
}

void DecisionLog::freed(std::uint64_t move_id, const port::Endpoint& origin) {
  std::lock_guard lock(mutex_);
  const auto* entry = journal_.find(move_id, Side::kSource);
  if (entry == nullptr || !entry->origins.contains(origin)) return;
  note_quietly(Journal::freed(move_id, origin));
  if (entry->over && entry->origins.empty()) note_quietly(journal_.over(move_id, Side::kSource));
}

Written DecisionLog::append(const std::string& line, bool sync, std::string* error) {
  if (sync && !named_ && !(named_ = sync_folder_(directory_))) {
    *error = fmt::format("cannot sync {}: {}", directory_, error_text(errno));
    return Written::kNot;
  }
  // A line that a full disk has cut off must not spoil this one.
  const std::string bytes = (torn_ ? "\n" : "") + line + '\n';
  const off_t before = ::lseek(file_.get(), 0, SEEK_END);
  const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
  const bool whole = written == static_cast<ssize_t>(bytes.size());
  if (whole && (!sync || ::fdatasync(file_.get()) == 0)) {
    torn_ = false;
    size_ += bytes.size();
    return Written::kDurable;
  }
  const int reason = whole || written < 0 ? errno : ENOSPC;
  *error = fmt::format("cannot make a record durable in {}: {}", path_, error_text(reason));
  if (written < 0) return Written::kNot;
  if (before >= 0 && ::ftruncate(file_.get(), before) == 0) {
    // A line that is not whole cannot be read.
    if (!whole || ::fdatasync(file_.get()) == 0) return Written::kNot;
    return Written::kUnknown;
  }
  torn_ = !whole;
  return whole ? Written::kUnknown : Written::kNot;
}

// Readers find the old file or the new one. When there is no room for a new one, ferryd keeps
// the old one.
void DecisionLog::compact() {
  const std::string text = journal_.text(), next = path_ + ".new";
  compact_above_ = std::max(kCompactAbove, 2 * size_);
  UniqueFd file(::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  const bool written =
      file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(file.get()) == 0 && ::rename(next.c_str(), path_.c_str()) == 0;
  if (!written) {
    log::warn("cannot make {} shorter: {}", path_, error_text(errno));
    ::unlink(next.c_str());
    return;
  }
  named_ = sync_folder_(directory_);
  if (!named_) log::warn("cannot sync {}: {}", directory_, error_text(errno));
  file_ = std::move(file);
  torn_ = false;
  size_ = text.size();
  compact_above_ = std::max(kCompactAbove, 2 * size_);
}

std::optional<DecisionLog::Record> DecisionLog::find(std::uint64_t move_id, Side side) const {
  std::lock_guard lock(mutex_);
  const auto* entry = journal_.find(move_id, side);
  return entry != nullptr ? entry->record : std::nullopt;
}

std::optional<Decision> DecisionLog::decision(std::uint64_t move_id, Side side) const {
  const auto record = find(move_id, side);
  if (!record) return std::nullopt;
  return record->decision;
}

std::vector<std::pair<std::uint64_t, std::string>> DecisionLog::ended_arrivals() const {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<std::uint64_t, std::string>> ended;
  for (const auto& [key, entry] : journal_.entries()) {
    if (key.second == Side::kDestination && entry.over && entry.held) {
      ended.emplace_back(key.first, entry.held->peer);
    }
  }
  return ended;
}

std::map<Journal::Key, Journal::Entry> DecisionLog::entries() const {
  std::lock_guard lock(mutex_);
  return journal_.entries();
}

}  // namespace ferry::host
