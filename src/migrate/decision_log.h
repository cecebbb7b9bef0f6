#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "migrate/decision.h"
#include "migrate/unique_fd.h"

// The durable record of how moves were decided (decision.h), one file per host. A record is on the
// disk when record() returns.
//
//   file  = { moves " " side " " decision " " program " " peer " " crc32(8 hex digits) "\n" }
//   moves = move_id(16 hex digits) { "," move_id }
//
// Moves that are decided as one, a group's, are one record: all of them are on the disk, or none.
// `peer` is the other side's ferryd, NAME@ADDRESS:PORT (peer.h), "-" when it need not be asked. The
// CRC covers the line before its last blank: a torn last line is not a record. The last record of a
// (move, side) counts; names are percent-encoded.
namespace ferry::migrate {

class DecisionLog {
 public:
  struct Record {
    Decision decision = Decision::kAborted;
    std::string program;  // that moves; of a group their names
    std::string peer;
    std::vector<std::uint64_t> moves;  // of the group
  };

  // Opens or makes `directory`/decisions. Throws Failure.
  explicit DecisionLog(const std::string& directory);

  // Throws Failure when it could not be made durable.
  void record(Side side, const Record& record);
  // The same for who has to know whether a failed record may be found later. `error` gets one line.
  Written write(Side side, const Record& record, std::string* error);

  std::optional<Record> find(std::uint64_t move_id, Side side) const;
  std::optional<Decision> decision(std::uint64_t move_id, Side side) const;

 private:
  void keep(Side side, const Record& record);
  Written append(const std::string& line, std::string* error);

  mutable std::mutex mutex_;
  std::string path_;
  UniqueFd file_;
  bool torn_ = false;  // the file does not end with a newline
  std::map<std::pair<std::uint64_t, Side>, Record> records_;
};

}  // namespace ferry::migrate
