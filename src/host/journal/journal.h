#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/directory/directory.h"
#include "host/journal/decision.h"
#include "host/journal/process_slots.h"

// What a host holds for programs that have left or arrived, and how their moves were decided: as
// lines of text, and as entries, which the lines add up to. Without I/O and clock: the log of
// ferryd (decision_log.h) and the simulation of whole moves run the same code.
//
//   journal  = { line "\n" }
//   line     = text " " crc32(text, 8 hex digits)
//   text     = moves " " side " " decision " " program " " peer
//            | move " " side " " note " " version " " body(hex digits, or "-")
//   moves    = move { "," move }                    move = 16 hex digits
//   side     = "source" | "destination"
//   decision = "committed" | "confirmed" | "aborted"
//
// The moves of a group, which are decided as one, are in one line: all of them are on record, or
// none. `peer` is the other side's ferryd, NAME@ADDRESS:PORT (peer.h), "-" when it need not be
// asked; names are percent-encoded. A line with a wrong CRC, a torn one, does not count. Nor does
// an aborted move without notes. A confirmed move stays confirmed, whatever later lines say.
//
//   note       side         body                 what it says
//   held       source       Held                 stopped here; sockets, stand-ins' entries,
//                                                   keys
//              destination  Held                 restored here; the sockets that are bound for it
//   going      source       Going                where it will be, if the move is committed
//   kept       source       -                    a checkpoint of somebody else's CRIU, undecided
//   since      source       Stamp                the destination has committed
//   left       source       Stamp                nobody is there any more who reports (StandInTerm)
//   next       source       Place                an RNIC kept by its origin has moved on
//   freed      source       Endpoint             the slot of an origin is not kept any more
//   over       both         Held, origins        only origins are kept; the decision stands
//   forgotten  both         -                    nothing is held, and nobody will ask
//
// A note need not be on the disk when it is written. A ferryd that is killed loses no note; a host
// that is rebooted loses none from before a decision, because the decision is in the same file and
// synced after it.
namespace ferry::host {

// When something happened, for a reader who has no monotonic clock in common with the writer.
struct Stamp {
  std::uint64_t boot = 0;           // which boot of the host
  std::chrono::nanoseconds up{};    // time since that boot, suspended or not
  std::chrono::nanoseconds wall{};  // since 1970
};

// How long ago `then` was. Within one boot by the clock that nobody sets; else by the wall clock,
// which may have been set meanwhile, but never less than the host has been up.
std::chrono::nanoseconds age_of(const Stamp& then, const Stamp& now);

struct HeldProcess {
  pid_t pid = 0;              // in ferryd's pid namespace
  std::uint64_t started = 0;  // start_time(): another process may have the pid later
  std::uint64_t control_block = 0;
  ProcessSlots place;  // at the source with the stand-ins' entries
};

struct Held {
  std::string program, peer;    // peer: as in a decision
  std::string netns, instance;  // netns: the sockets'; instance: the container's, if there is one
  std::uint64_t boot = 0;       // Stamp::boot: processes of another boot are gone
  pid_t root = 0;               // of the process tree
  std::uint64_t started = 0;
  std::vector<HeldProcess> processes;
};

struct Going {
  std::string host;  // the destination's name
  std::vector<ProcessSlots> places;
};

class Journal {
 public:
  struct Record {
    Decision decision = Decision::kAborted;
    std::string program;  // its name; a group's names
    std::string peer;
    std::vector<std::uint64_t> moves;  // those of the group
  };
  struct Entry {
    std::optional<Record> record;
    std::optional<Held> held;  // when over: without its processes
    std::optional<Going> going;
    std::optional<Stamp> since, left;
    std::map<port::Endpoint, Place> origins;  // slots that are kept for the life of their RNIC
    bool kept = false;
    bool over = false;
    std::vector<std::string> notes;  // the lines that add up to this entry
    std::uint64_t held_as = 0;       // orders the entries: a later `held` may end an earlier one

    std::optional<Decision> decision() const {
      return record ? std::optional(record->decision) : std::nullopt;
    }
  };
  using Key = std::pair<std::uint64_t, Side>;

  // --- lines, without newline
  static std::string decision(Side side, const Record& record);
  static std::string held(std::uint64_t move, Side side, const Held& held);
  static std::string kept(std::uint64_t move);
  static std::string going(std::uint64_t move, const Going& going);
  static std::string since(std::uint64_t move, const Stamp& stamp);
  static std::string left(std::uint64_t move, const Stamp& stamp);
  static std::string next(std::uint64_t move, const Place& place);
  static std::string freed(std::uint64_t move, const port::Endpoint& origin);
  static std::string forgotten(std::uint64_t move, Side side);
  // The line for what is left of the move now.
  std::string over(std::uint64_t move, Side side) const;

  enum class Taken {
    kYes,
    kNo,            // damaged or torn
    kOtherVersion,  // a note of another version of Ferry
  };
  Taken take(const std::string& line);

  const Entry* find(std::uint64_t move, Side side) const;
  const std::map<Key, Entry>& entries() const { return entries_; }
  // The shortest journal that adds up to these entries, with newlines.
  std::string text() const;

 private:
  bool take_note(std::uint64_t move, Side side, const std::string& note,
                 const std::vector<std::byte>& body);
  void keep(Side side, const Record& record);
  void end_others_at(const Held& held, const Key& own);

  std::map<Key, Entry> entries_;
  std::uint64_t held_ = 0;  // how many were held so far
};

// The places where RNICs go whose slots in `held` are their origins. `ferryd`: the destination's.
std::map<port::Endpoint, Place> origins_of(const Held& held, const Going& going,
                                           const std::string& ferryd);

}  // namespace ferry::host
