#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "port/endpoint.h"
#include "transport/types.h"

// Where the UD QPs are that this RNIC sends to (docs/wire.md "Datagrams"): it maps virtual names to
// places on the wire. A QP that is not in the table is where its name says, as every QP is until it
// moves. Each RNIC has one table; it is a cache, rebuilt from the answers of QPs and stand-ins.
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
  // A full table forgets the entries that were unused for kUnused, or else the longest unused one.
  static constexpr std::size_t kCapacity = 4096;
  static constexpr Time kConfirmed = std::chrono::seconds(30);  // then an answer is stale
  static constexpr Time kUnused = std::chrono::minutes(10);

  struct Found {
    DatagramPlace place;
    PeerClass peer_class = PeerClass::kUnknown;
    bool stale = false;  // the QP should be asked again
  };
  Found find(const DatagramName& name, Time now);
  // The epoch of the latest answer; 0: none.
  std::uint32_t epoch_of(const DatagramName& name) const;
  // Takes an authentic answer; one with a lower epoch than the latest has no effect.
  void learn(const DatagramName& name, const DatagramPlace& place, std::uint32_t epoch, Time now);
  // Nobody answered for this name: from now on it stands for its own place, and the peer is
  // unmodified unless it is known to be ferry.
  void unanswered(const DatagramName& name, Time now);
  // All QPs of the RNIC that was opened at `name` (virtual GID, UDP port of its slot) are at
  // `location`, after `epoch` stops of the RNIC. Changes the entries whose epoch is not higher: a
  // QP has not been stopped more often than its RNIC.
  void relocate(const port::Endpoint& name, const port::Endpoint& location, std::uint32_t epoch,
                Time now);
  // sends() notes that a datagram leaves for this name, to that place; has_sent() tells whether one
  // did. Names share kSent entries, so that only recent datagrams are sure to be remembered.
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
  std::vector<Sent> sent_;  // empty, or kSent entries
};

}  // namespace ferry::transport
