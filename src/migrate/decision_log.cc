#include "migrate/decision_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "migrate/failure.h"
#include "wire/crc32.h"

namespace ferry::migrate {
namespace {

std::uint32_t crc_of(const std::string& text) {
  return ~wire::crc32_update(wire::kCrc32Init, std::as_bytes(std::span(text)));
}

std::string encoded(const std::string& name) {
  std::string result;
  for (const unsigned char c : name) {
    if (c > ' ' && c < 0x7f && c != '%' && !(c == '-' && name.size() == 1))
      result += static_cast<char>(c);
    else
      result += fmt::format("%{:02x}", c);
  }
  return result.empty() ? "-" : result;
}

std::string decoded(const std::string& text) {
  if (text == "-") return {};
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%' || i + 2 >= text.size()) {
      result += text[i];
      continue;
    }
    result += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
    i += 2;
  }
  return result;
}

const char* name_of(Side side) {
  return side == Side::kSource ? "source" : "destination";
}
const char* name_of(Decision decision) {
  switch (decision) {
    case Decision::kCommitted: return "committed";
    case Decision::kConfirmed: return "confirmed";
    default: return "aborted";
  }
}

}  // namespace

DecisionLog::DecisionLog(const std::string& directory) : path_(directory + "/decisions") {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    throw Failure(
        fmt::format("cannot make {}: {}; give a writable --state-dir", directory, error.message()));
  }
  std::ifstream in(path_);
  for (std::string line; std::getline(in, line);) {
    torn_ = in.eof();  // no newline at its end
    const std::size_t blank = line.rfind(' ');
    if (blank == std::string::npos) continue;
    const std::string text = line.substr(0, blank);
    if (line.substr(blank + 1) != fmt::format("{:08x}", crc_of(text))) continue;
    std::istringstream fields(text);
    std::string moves, side, decision, program, peer;
    fields >> moves >> side >> decision >> program >> peer;
    Record record{Decision::kAborted, decoded(program), decoded(peer), {}};
    for (const Decision each : {Decision::kCommitted, Decision::kConfirmed}) {
      if (decision == name_of(each)) record.decision = each;
    }
    std::istringstream ids(moves);
    for (std::string id; std::getline(ids, id, ',');) {
      record.moves.push_back(std::strtoull(id.c_str(), nullptr, 16));
    }
    keep(side == name_of(Side::kSource) ? Side::kSource : Side::kDestination, record);
  }
  file_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file_) throw Failure(fmt::format("cannot open {}: {}", path_, error_text(errno)));
  // The name of the file must be durable too.
  UniqueFd folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0) {
    throw Failure(fmt::format("cannot sync {}: {}", directory, error_text(errno)));
  }
}

void DecisionLog::keep(Side side, const Record& record) {
  for (const auto id : record.moves) records_[{id, side}] = record;
}

void DecisionLog::record(Side side, const Record& record) {
  std::string error;
  if (write(side, record, &error) != Written::kDurable) throw Failure(error);
}

Written DecisionLog::write(Side side, const Record& record, std::string* error) {
  std::lock_guard lock(mutex_);
  const std::string text =
      fmt::format("{:016x} {} {} {} {}", fmt::join(record.moves, ","), name_of(side),
                  name_of(record.decision), encoded(record.program), encoded(record.peer));
  const Written written = append(fmt::format("{} {:08x}\n", text, crc_of(text)), error);
  if (written == Written::kDurable) keep(side, record);
  return written;
}

Written DecisionLog::append(const std::string& line, std::string* error) {
  // What a full disk has cut off earlier must not take this line with it.
  const std::string bytes = (torn_ ? "\n" : "") + line;
  const off_t before = ::lseek(file_.get(), 0, SEEK_END);
  const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
  const bool whole = written == static_cast<ssize_t>(bytes.size());
  if (whole && ::fdatasync(file_.get()) == 0) {
    torn_ = false;
    return Written::kDurable;
  }
  const int reason = whole || written < 0 ? errno : ENOSPC;
  *error = fmt::format("cannot make a record durable in {}: {}", path_, error_text(reason));
  if (written < 0) return Written::kNot;
  if (before >= 0 && ::ftruncate(file_.get(), before) == 0) {
    // Of a line that is not whole nothing can be read.
    if (!whole || ::fdatasync(file_.get()) == 0) return Written::kNot;
    return Written::kUnknown;
  }
  torn_ = !whole;
  return whole ? Written::kUnknown : Written::kNot;
}

std::optional<DecisionLog::Record> DecisionLog::find(std::uint64_t move_id, Side side) const {
  std::lock_guard lock(mutex_);
  const auto found = records_.find({move_id, side});
  if (found == records_.end()) return std::nullopt;
  return found->second;
}

std::optional<Decision> DecisionLog::decision(std::uint64_t move_id, Side side) const {
  const auto record = find(move_id, side);
  if (!record) return std::nullopt;
  return record->decision;
}

}  // namespace ferry::migrate
