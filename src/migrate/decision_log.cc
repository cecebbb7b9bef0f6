#include "migrate/decision_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
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
    if (c > ' ' && c < 0x7f && c != '%')
      result += static_cast<char>(c);
    else
      result += fmt::format("%{:02x}", c);
  }
  return result.empty() ? "-" : result;
}

const char* name_of(Side side) {
  return side == Side::kSource ? "source" : "destination";
}
const char* name_of(Decision decision) {
  return decision == Decision::kCommitted ? "committed" : "aborted";
}

}  // namespace

DecisionLog::DecisionLog(const std::string& directory) : path_(directory + "/decisions") {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    throw Failure(
        fmt::format("cannot make {}: {}; give a writable --state-dir", directory, error.message()));
  }
  bool torn = false;
  std::ifstream in(path_);
  for (std::string line; std::getline(in, line);) {
    torn = in.eof();  // no newline at its end
    const std::size_t blank = line.rfind(' ');
    if (blank == std::string::npos) continue;
    const std::string text = line.substr(0, blank);
    if (line.substr(blank + 1) != fmt::format("{:08x}", crc_of(text))) continue;
    std::istringstream fields(text);
    std::uint64_t move_id = 0;
    std::string side, decision;
    fields >> std::hex >> move_id >> side >> decision;
    decisions_[{move_id, side == name_of(Side::kSource) ? Side::kSource : Side::kDestination}] =
        decision == name_of(Decision::kCommitted) ? Decision::kCommitted : Decision::kAborted;
  }
  file_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file_) throw Failure(fmt::format("cannot open {}: {}", path_, error_text(errno)));
  if (torn && ::write(file_.get(), "\n", 1) != 1) {
    throw Failure(fmt::format("cannot write {}: {}", path_, error_text(errno)));
  }
  // The name of the file must be durable too.
  UniqueFd folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0) {
    throw Failure(fmt::format("cannot sync {}: {}", directory, error_text(errno)));
  }
}

void DecisionLog::record(std::uint64_t move_id, Side side, Decision decision,
                         const std::string& program) {
  std::lock_guard lock(mutex_);
  const std::string text =
      fmt::format("{:016x} {} {} {}", move_id, name_of(side), name_of(decision), encoded(program));
  const std::string line = fmt::format("{} {:08x}\n", text, crc_of(text));
  const ssize_t written = ::write(file_.get(), line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size()) || ::fdatasync(file_.get()) != 0) {
    const int error = written < 0 ? errno : EIO;
    throw Failure(fmt::format("cannot make a record durable in {}: {}", path_, error_text(error)));
  }
  decisions_[{move_id, side}] = decision;
}

std::optional<Decision> DecisionLog::decision(std::uint64_t move_id, Side side) const {
  std::lock_guard lock(mutex_);
  const auto found = decisions_.find({move_id, side});
  if (found == decisions_.end()) return std::nullopt;
  return found->second;
}

}  // namespace ferry::migrate
