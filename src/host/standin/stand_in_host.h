#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "cm/message.h"
#include "port/loss.h"
#include "port/port.h"
#include "rnic/slot.h"
#include "transport/migration/stand_in.h"

// Answers on the sockets of stopped processes (docs/wire.md, "Stopped"): a thread that owns them
// and a transport::StandIn for each.
namespace ferry::host {

// Packets with this mark pass CRIU's network lock.
inline constexpr unsigned kCriuMark = 0xC114;

using StandInId = std::uint64_t;

class StandInHost {
 public:
  // `faults`: how many packets the sockets lose, for tests.
  explicit StandInHost(const port::Loss::Settings& faults = {});
  ~StandInHost();

  // Takes the socket over and answers from now on. Throws Failure (then the descriptor still
  // belongs to the caller).
  StandInId add(const rnic::Slot& slot);
  // For a rollback: stops answering and gives the socket back, unmarked. Packets that nobody has
  // read wait in it.
  rnic::Slot take_back(StandInId id);
  // After the commit, `age` ago: peers are told the new location
  // (transport::StandIn::committed()).
  void committed(StandInId id, const port::Endpoint& new_location, std::uint32_t new_slot,
                 std::uint32_t epoch, std::chrono::nanoseconds age = {});
  // The peer of this virtual QPN knows the new place; any stand-in but the QP's own ignores it.
  void peer_knows(StandInId id, std::uint32_t virtual_qpn);
  // The peer of a QP of the stand-in that is a standard peer; nothing: it has no such QP.
  std::optional<port::Endpoint> standard_peer(StandInId id);
  bool meets_strangers(StandInId id);
  // True when nobody needs the stand-in any more (or it does not exist).
  bool expired(StandInId id);
  // Closes the socket.
  void remove(StandInId id);

  // `management` gets messages for QP 1 that came to a stand-in in slot 0 of another network namespace. It is called
  // with a lock held, and must not call this object.
  using Management = std::function<void(StandInId id, const cm::Mad&, const port::Address& from,
                                        const port::Address& to)>;
  void set_management(Management management);
  // Sends an answer to such a message.
  void send_management(StandInId id, const cm::Mad& mad, const port::Address& to);

  transport::StandIn::Counters counters(StandInId id);
  // The counters of all stand-ins, also of those that are gone.
  struct Totals {
    std::size_t stand_ins = 0;  // how many there are now
    transport::StandIn::Counters counters;
  };
  Totals totals();
  std::uint64_t injected_losses();

 private:
  struct Entry {
    std::unique_ptr<port::Port> port;
    std::unique_ptr<transport::StandIn> stand_in;
    std::uint32_t slot = 0;
    bool has_qp1 = false;  // its port has QP 1 for processes of ferryd's network namespace
  };

  void loop();
  void serve(StandInId id, Entry& entry);
  int next_timeout();
  void wake();

  UniqueFd epoll_, event_;
  std::mutex mutex_;
  port::Loss loss_;
  std::map<StandInId, Entry> entries_;
  transport::StandIn::Counters of_gone_;
  StandInId last_id_ = 0;
  Management management_;
  std::uint32_t management_psn_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ferry::host
