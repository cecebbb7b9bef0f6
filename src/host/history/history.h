#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "ferry.pb.h"
#include "host/journal/decision.h"

// The moves of this host, those that left and those that arrived, also under former ferryds: a list, and a file beside
// the journal. Nothing depends on the file: if it cannot be read or written, the log has a warning.
//
//   file = { line "\n" }
//   line = PastMove (ferry.proto) as JSON " " crc32(JSON, 8 hex digits)
//
// A move has a line when it begins and another when it has ended; then the second one counts. A line that is
// torn or damaged does not count. The file is root's, and is written anew when it has become long.
namespace ferry::host {

class History {
 public:
  static constexpr std::size_t kMostMoves = 1000;  // when there are more, the first is dropped
  static constexpr std::size_t kMostOfUser = 250;  // moves of programs of a user other than root
  // Bytes after which names and reasons that other hosts may have sent are cut.
  static constexpr std::size_t kMostName = 128, kMostReason = 500;

  // Outcomes for which other files look.
  static constexpr char kUnderWay[] = "under way", kMoved[] = "moved";

  explicit History(std::string path);

  // Adds a move, unless one with its id and direction, which identify a move, is there already.
  void begin(v1::PastMove move);
  // Has `finish` fill in how the move ended, and gives the move as it is then. Nothing: the move is not under way.
  using Finish = std::function<void(v1::PastMove& move)>;
  std::optional<v1::PastMove> end(std::uint64_t move_id, Side side, const Finish& finish);

  // In the order in which they began.
  std::vector<v1::PastMove> moves() const;
  std::vector<v1::PastMove> under_way() const;
  // The move with which the program of this name has left this host, or is about to, as far as
  // `user` may know. Nothing: no such program has left, or it came back, or its latest move from here did not succeed.
  std::optional<v1::PastMove> departure(const std::string& program, uid_t user) const;

 private:
  static constexpr std::size_t kLongestFile = 16 << 20;         // bytes; else only the end is read
  static constexpr std::size_t kCompactAbove = 4 * kMostMoves;  // lines

  void read();
  void take(const std::string& line);
  v1::PastMove* find(std::uint64_t move_id, const std::string& direction);
  void trim(std::uint32_t owner);
  void append(const v1::PastMove& move);
  void compact();
  void warn(const char* what);

  const std::string path_;
  mutable std::mutex mutex_;
  UniqueFd file_;
  std::vector<v1::PastMove> moves_;
  std::size_t lines_ = 0, damaged_ = 0;
  bool torn_ = false;    // the file does not end with a newline
  bool warned_ = false;  // since the last line that was written
};

// Root may know of all moves, other users of the moves of their own programs.
bool may_know(uid_t user, const v1::PastMove& move);

// "out" for the source's side, "in" for the destination's.
const char* direction_of(Side side);

}  // namespace ferry::host
