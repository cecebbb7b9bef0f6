#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "port/endpoint.h"
#include "transport/types.h"

// Where the UD QPs are that this RNIC talks to (docs/wire.md "Datagrams"): virtual names to places
// on the wire. Whom the table does not know is where its name says: that is so until it has moved.
// One per RNIC; a cache, rebuilt from what stand-ins answer.
namespace ferry::transport {

struct DatagramName {
  port::Address gid;      // virtual
  std::uint32_t qpn = 0;  // virtual
  auto operator<=>(const DatagramName&) const = default;
};

// The place of a QP that has not moved.
DatagramPlace place_of_name(const DatagramName& name);

class LocationTable {
 public:
  static constexpr std::size_t kCapacity = 4096;                // then the longest unused one goes
  static constexpr Time kConfirmed = std::chrono::seconds(30);  // how long an answer is believed
  static constexpr Time kUnused = std::chrono::minutes(10);     // after which an entry is forgotten

  struct Found {
    DatagramPlace place;
    PeerClass peer_class = PeerClass::kUnknown;
    bool stale = false;  // should be asked for again
  };
  Found find(const DatagramName& name, Time now);
  // The epoch of the latest answer; 0: none.
  std::uint32_t epoch_of(const DatagramName& name) const;
  // An answer that is authentic. Older than the latest: no effect.
  void learn(const DatagramName& name, const DatagramPlace& place, std::uint32_t epoch, Time now);
  // Nobody answered there. Of a ferry peer its name is all that is left to go by.
  void unanswered(const DatagramName& name, Time now);
  // All QPs of the RNIC that was opened at `name` (virtual GID, UDP port of its slot) are at
  // `location`, after `epoch` stops; a QP's own epoch is not higher than that of its RNIC.
  void relocate(const port::Endpoint& name, const port::Endpoint& location, std::uint32_t epoch,
                Time now);
  // Datagrams leave for this name, to that place; and whether some did. Each name shares its place
  // in this memory with others: what was just sent is remembered, older things may not be.
  void sends(const DatagramName& name, const port::Endpoint& to);
  bool has_sent(const DatagramName& name, const port::Endpoint& to) const;
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    DatagramPlace place;
    PeerClass peer_class = PeerClass::kUnknown;
    std::uint32_t epoch = 0;
    Time confirmed{}, used{};
  };
  Entry& insert(const DatagramName& name, Time now);

  struct Sent {
    DatagramName name;
    port::Endpoint to;
  };
  static constexpr std::size_t kSent = 256;
  static std::size_t slot_of(const DatagramName& name);

  std::map<DatagramName, Entry> entries_;
  std::vector<Sent> sent_;  // empty, or kSent of them
};

}  // namespace ferry::transport
