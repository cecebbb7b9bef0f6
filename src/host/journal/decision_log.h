#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "host/journal/decision.h"
#include "host/journal/journal.h"

// The durable journal of this host (journal.h): one file, which only root can read, because it has
// the keys of the connections that stand-ins answer for. When record() returns the decision is on
// the disk, and with it every note before it.
namespace ferry::host {

// The present, for a reader after a restart.
Stamp stamp_now();

// A random number that names one move. Throws Failure.
std::uint64_t new_move_id();

// Makes the names in a folder durable. False, with errno: they may not be.
bool sync_folder(const std::string& path);

class DecisionLog {
 public:
  using Record = Journal::Record;
  using SyncFolder = std::function<bool(const std::string& path)>;

  // Opens or makes `directory`/decisions. Warns in the log of lines that cannot be read. Throws
  // Failure.
  explicit DecisionLog(const std::string& directory, SyncFolder sync = sync_folder);

  // Throws Failure when the record could not be made durable, or its move is confirmed.
  void record(Side side, const Record& record);
  // The same for a caller that has to know whether a failed record may be found later. `error` gets
  // one line.
  Written write(Side side, const Record& record, std::string* error);
  // A line of journal.h. Throws Failure when it could not be written.
  void note(const std::string& line);
  // Nothing of the move is held here any more but the slots of origins. If this cannot be written,
  // the next ferryd finds out by itself.
  void over(std::uint64_t move_id, Side side);
  // Nobody will ask how the move was decided.
  void forget(std::uint64_t move_id, Side side);
  // As forget(), for one of ended_arrivals(): unless its id is in use again.
  void forget_ended_arrival(std::uint64_t move_id);
  // As forget(), before the id is used again: what was known of it must not be taken for the new move's. Throws Failure
  // when that could not be written.
  void reuse(std::uint64_t move_id, Side side);
  // The slot of an origin is not kept any more.
  void freed(std::uint64_t move_id, const port::Endpoint& origin);

  std::optional<Record> find(std::uint64_t move_id, Side side) const;
  std::optional<Decision> decision(std::uint64_t move_id, Side side) const;
  std::map<Journal::Key, Journal::Entry> entries() const;
  // Moves that have arrived here and are over, and the ferryds of their sources, which may still
  // ask.
  std::vector<std::pair<std::uint64_t, std::string>> ended_arrivals() const;

  static constexpr std::size_t kCompactAbove = 64 << 10;  // bytes

 private:
  Written append(const std::string& line, bool sync, std::string* error);
  void note_quietly(const std::string& line);
  void drop(std::uint64_t move_id, Side side);
  void compact();

  mutable std::mutex mutex_;
  const std::string directory_, path_;
  UniqueFd file_;
  const SyncFolder sync_folder_;
  bool torn_ = false;  // the file does not end with a newline
  bool named_ = true;  // the file's name survives a crash; else its records do not count
  std::size_t size_ = 0, compact_above_ = kCompactAbove;
  Journal journal_;
};

}  // namespace ferry::host
