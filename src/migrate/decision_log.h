#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "migrate/unique_fd.h"

// The durable record of how moves were decided (PROTOCOL.md, "A move decides once"), one file per
// host. A record is on the disk when record() returns.
//
//   file = { move_id(16 hex digits) " " side " " decision " " program " " crc32(8 hex digits) "\n"
//   }
//
// The CRC covers the line before its blank: a torn last line is not a record. The last record of a
// (move, side) counts; programs' names are percent-encoded.
namespace ferry::migrate {

enum class Side { kSource, kDestination };
enum class Decision { kCommitted, kAborted };

class DecisionLog {
 public:
  // Opens or makes `directory`/decisions. Throws Failure.
  explicit DecisionLog(const std::string& directory);

  // Throws Failure when it could not be made durable; then nothing is decided.
  void record(std::uint64_t move_id, Side side, Decision decision, const std::string& program);
  std::optional<Decision> decision(std::uint64_t move_id, Side side) const;

 private:
  mutable std::mutex mutex_;
  std::string path_;
  UniqueFd file_;
  std::map<std::pair<std::uint64_t, Side>, Decision> decisions_;
};

}  // namespace ferry::migrate
