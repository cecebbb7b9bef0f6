#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "transport/connected/connection.h"
#include "transport/fake_host.h"
#include "transport/migration/stand_in.h"

// Two connected QPs on a simulated network with a virtual clock; everything follows from one seed.
// Both sides post random requests of every operation and receives, and move at random points:
// stop, save, a fresh Connection, load, commit, resume, with a stand-in answering in between; or
// they roll back. The network loses, doubles and reorders packets. run() returns what went wrong,
// or an empty string:
//   * every message arrives exactly once, in order, with the right bytes and immediate data;
//   * completions come in order, each once; a WRITE's and a READ's data are right when they
//   complete, and no late duplicate writes again;
//   * every atomic is carried out exactly once and brings the value that it found; so is every
//   invalidation, bind and flush;
//   * at the end both are idle, at RTS, and nothing is accounted as in flight.
namespace ferry::transport::test {

struct PairOptions {
  bool moves = true;
  bool unmodified_peer = false;  // side 1 does not speak the migration protocol, and does not move
  bool xrc = false;              // side 0 is an initiator, side 1 a target
  // What side 0 knows of an unmodified peer, beyond what it assumes. The peer itself waits for long
  // enough in any case.
  std::optional<PeerRetries> told;
  // A stand-in that is wrong: its RNR NAKs have the PSN after that of the request.
  bool nak_acknowledges_too_much = false;
};

class Pair {
 public:
  Pair(std::uint64_t seed, const PairOptions& options);
  ~Pair();
  std::string run();
  std::string describe() const;  // parameters of this seed

  struct Totals {
    std::uint64_t packets = 0, messages = 0, moves = 0, rollbacks = 0, both_stopped = 0;
    std::uint64_t atomics = 0, atomic_requests = 0;  // completed, arrived
    std::uint64_t retransmitted = 0, naks_stopped = 0, moved = 0, unacked_at_stop = 0;
    std::uint64_t quiet_tails = 0;  // requests behind the last completion
  };
  const Totals& totals() const { return totals_; }

 private:
  struct Message {  // a request, as its poster knows it
    Operation operation;
    std::uint64_t length;
    std::uint64_t pattern;
    std::uint32_t immediate;
    std::uint64_t local, remote;
    bool signaled;
    std::uint32_t key;       // that is invalidated or bound
    std::uint64_t original;  // that an atomic must find
  };
  struct Side {
    explicit Side(std::size_t memory) : host(memory) {}
    FakeHost host;
    MigrationSettings settings;
    std::unique_ptr<Connection> connection;
    std::uint32_t virtual_qpn = 0, wire_qpn = 0;
    std::map<port::Endpoint, std::unique_ptr<StandIn>> stand_ins;
    StandIn* stand_in = nullptr;    // of the move in progress
    std::vector<std::byte> record;  // saved, while there is no connection
    unsigned stops = 0, moves_left = 0;

    std::map<std::uint64_t, Message> requests;  // by wr_id, not completed
    std::uint64_t next_request = 0, next_completion = 0, requests_left = 0;
    std::uint32_t end_psn = 0;      // behind what was posted
    std::deque<Message> to_arrive;  // what this side's receive completions must show, in order
    std::map<std::uint64_t, ReceiveRequest> receives;
    std::uint64_t next_receive = 0, next_received = 0;
    // Of what was posted: the values that the peer's words have after it, and how many atomics and
    // flushes the peer must have carried out.
    std::uint64_t counter = 0, swapped = 0, atomics = 0, flushes = 0;
  };
  struct Event {
    Time at;
    std::uint64_t order;
    enum class Kind { kPacket, kRequest, kReceive, kMove } kind;
    int side = 0;
    Datagram datagram = {};
    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  QueueLimits limits(int side, bool credits) const;
  bool chance(double p) { return std::uniform_real_distribution<>()(random_) < p; }
  std::uint64_t pick(std::uint64_t from, std::uint64_t to) {
    return std::uniform_int_distribution<std::uint64_t>(from, to)(random_);
  }
  void schedule(Event::Kind kind, int side, Time in);
  void send(Datagram datagram);
  void trace(const Datagram& datagram, int copies) const;
  void deliver(const Datagram& datagram);
  void pump();
  void post_request(int side);
  void post_receive(int side);
  void collect(int side);
  Message make_message(int side);
  void check_effect(int side, const Message& message, bool last, const SendCompletion& completion);
  void check_data(Side& at, const Message& message, std::uint64_t address, const char* what);
  void check_quiet_tail(int side);
  void step_move(int side);
  void stop(int side);
  void come_back(int side);
  void go_on_elsewhere(int side);
  bool done() const;
  bool all_done(const Side& side) const;
  void fail(const std::string& what);
  port::Endpoint new_endpoint(int side, bool other_address);

  std::uint64_t seed_;
  PairOptions options_;
  std::mt19937_64 random_;
  double loss_ = 0, duplication_ = 0, reorder_ = 0, full_ = 0;
  double signaled_ = 0;
  bool quiet_tail_ = false;  // the last request need not be signaled
  Time delay_{}, step_{};
  std::uint64_t max_length_ = 0;
  std::uint32_t mtu_ = 0;
  std::array<std::unique_ptr<Side>, 2> sides_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  std::uint32_t places_ = 0;
  Time now_{};
  std::string failure_;
  Totals totals_;
};

}  // namespace ferry::transport::test
