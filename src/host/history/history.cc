#include "host/history/history.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <google/protobuf/util/json_util.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ranges>
#include <span>

#include "base/failure.h"
#include "base/log.h"
#include "wire/crc32.h"

namespace ferry::host {
namespace {

namespace json = google::protobuf::util;

constexpr std::size_t kCrcDigits = 8;

std::string crc_of(const std::string& text) {
  const auto crc = ~wire::crc32_update(wire::kCrc32Init, std::as_bytes(std::span(text)));
  return fmt::format("{:08x}", crc);
}

void bound(std::string* text, std::size_t most) {
  // printable() also replaces a character that the cut split.
  *text = printable(one_line(*text).substr(0, most));
}

// Shortens the texts that other hosts may have sent.
void bound(v1::PastMove* move) {
  for (auto* name : {move->mutable_program(), move->mutable_from(), move->mutable_to()}) {
    bound(name, History::kMostName);
  }
  bound(move->mutable_reason(), History::kMostReason);
  move->mutable_parts()->clear_program();
  move->mutable_parts()->clear_from();
  move->mutable_parts()->clear_to();
}

std::string line_of(const v1::PastMove& move) {
  json::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  if (!json::MessageToJsonString(move, &text, options).ok()) return {};
  return text + ' ' + crc_of(text) + '\n';
}

bool write_all(int file, const std::string& text) {
  errno = ENOSPC;  // for a write that is cut short, which sets no errno
  return ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace

const char* direction_of(Side side) {
  return side == Side::kSource ? "out" : "in";
}

bool may_know(uid_t user, const v1::PastMove& move) {
  return user == 0 || move.owner() == user;
}

History::History(std::string path) : path_(std::move(path)) {
  file_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file_)
    read();
  else
    warn("open");
  if (damaged_ > 0) {
    log::warn("{} lines of {} are torn or damaged, and ignored", damaged_, path_);
  }
}

// Called with the mutex held, or before anybody else has the object.
void History::warn(const char* what) {
  if (!warned_) {
    log::warn("cannot {} {}, which has the history of moves: {}", what, path_, error_text(errno));
  }
  warned_ = true;
}

void History::read() {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    errno = EINVAL;
    warn("read");
    return file_.reset();
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  const std::size_t skipped = size > kLongestFile ? size - kLongestFile : 0;
  std::string text(size - skipped, '\0');
  std::size_t got = 0;
  while (got < text.size()) {
    const ssize_t more = ::pread(file_.get(), text.data() + got, text.size() - got,
                                 static_cast<off_t>(skipped + got));
    if (more < 0) warn("read");
    if (more <= 0) break;
    got += static_cast<std::size_t>(more);
  }
  text.resize(got);
  torn_ = !text.empty() && text.back() != '\n';
  std::size_t begin = 0;
  if (skipped > 0) begin = std::min(text.find('\n'), text.size() - 1) + 1;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    take(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

void History::take(const std::string& line) {
  ++lines_;
  v1::PastMove move;
  json::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // a later version may have written them
  const std::size_t size = line.size() < kCrcDigits + 1 ? 0 : line.size() - kCrcDigits - 1;
  const std::string text = line.substr(0, size);
  if (size == 0 || line.substr(size) != ' ' + crc_of(text) ||
      !json::JsonStringToMessage(text, &move, options).ok()) {
    ++damaged_;
    return;
  }
  bound(&move);
  if (auto* known = find(move.move_id(), move.direction())) {
    *known = std::move(move);
    return;
  }
  const auto owner = move.owner();
  moves_.push_back(std::move(move));
  trim(owner);
}

// Called with the mutex held, after a move of `owner` has been added.
void History::trim(std::uint32_t owner) {
  const auto is_owners = [&](const v1::PastMove& move) { return move.owner() == owner; };
  const auto count = static_cast<std::size_t>(std::ranges::count_if(moves_, is_owners));
  if (owner != 0 && count > kMostOfUser) {
    moves_.erase(std::ranges::find_if(moves_, is_owners));
  } else if (moves_.size() > kMostMoves) {
    moves_.erase(moves_.begin());
  }
}

v1::PastMove* History::find(std::uint64_t move_id, const std::string& direction) {
  // The latest first: a move that ends has begun not long ago.
  const auto found = std::find_if(moves_.rbegin(), moves_.rend(), [&](const v1::PastMove& move) {
    return move.move_id() == move_id && move.direction() == direction;
  });
  return found == moves_.rend() ? nullptr : &*found;
}

void History::begin(v1::PastMove move) {
  move.set_outcome(kUnderWay);
  bound(&move);
  std::lock_guard lock(mutex_);
  if (find(move.move_id(), move.direction()) != nullptr) return;
  append(move);
  const auto owner = move.owner();
  moves_.push_back(std::move(move));
  trim(owner);
}

std::optional<v1::PastMove> History::end(std::uint64_t move_id, Side side, const Finish& finish) {
  std::lock_guard lock(mutex_);
  v1::PastMove* move = find(move_id, direction_of(side));
  if (move == nullptr || move->outcome() != kUnderWay) return std::nullopt;
  finish(*move);
  bound(move);
  append(*move);
  v1::PastMove ended = *move;
  trim(ended.owner());  // the owner may have become known just now
  return ended;
}

// Called with the mutex held.
void History::append(const v1::PastMove& move) {
  if (!file_) return;
  // A line that a full disk has cut off must not spoil this one.
  const std::string line = (torn_ ? "\n" : "") + line_of(move);
  const off_t before = ::lseek(file_.get(), 0, SEEK_END);
  if (!write_all(file_.get(), line)) {
    warn("write");
    torn_ = before < 0 || ::ftruncate(file_.get(), before) != 0;
    return;
  }
  torn_ = warned_ = false;
  if (++lines_ > kCompactAbove) compact();
}

// Called with the mutex held. Readers find the old file or the new one.
void History::compact() {
  lines_ = moves_.size();
  const std::string next = path_ + ".new";
  std::string text;
  for (const auto& move : moves_) text += line_of(move);
  UniqueFd file(
      ::open(next.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file || !write_all(file.get(), text) || ::rename(next.c_str(), path_.c_str()) != 0) {
    warn("shorten");
    ::unlink(next.c_str());
    return;
  }
  file_ = std::move(file);
}

std::vector<v1::PastMove> History::moves() const {
  std::lock_guard lock(mutex_);
  return moves_;
}

std::vector<v1::PastMove> History::under_way() const {
  auto found = moves();
  std::erase_if(found, [](const v1::PastMove& move) { return move.outcome() != kUnderWay; });
  return found;
}

std::optional<v1::PastMove> History::departure(const std::string& program, uid_t user) const {
  std::string name = program;
  bound(&name, kMostName);  // as begin() has cut the names
  std::lock_guard lock(mutex_);
  for (const auto& move : moves_ | std::views::reverse) {
    if (move.program() != name || !may_know(user, move)) continue;
    const bool leaves = move.direction() == direction_of(Side::kSource);
    if (!leaves && move.outcome() != kMoved) continue;  // it has not arrived
    const bool is_there = move.outcome() == kMoved;
    const bool is_going = move.outcome() == kUnderWay && move.kind() == "move";
    if (leaves && (is_there || is_going)) return move;
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace ferry::host
