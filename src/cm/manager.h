#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "cm/message.h"

// The communication manager of one process (IBTA vol. 1 chapter 12): the state machines of its
// connections (clause 12.9) and service ID resolutions (clause 12.11). Pure: datagrams, calls and
// the time come in; datagrams, events and the next deadline come out.
//
// A communication ID is tag:16 | index:16. The tag names the process among those of its host, so
// that whoever receives a message from the wire knows whose it is.
namespace ferry::cm {

using Time = std::chrono::nanoseconds;  // since some fixed point
inline constexpr Time kNever = Time::max();

constexpr std::uint16_t tag_of(CommId id) {
  return static_cast<std::uint16_t>(id >> 16);
}

// Retransmission: the first wait doubles up to the response timeout that REQ names. A peer that
// answers MRA counts as alive: tries begin anew.
inline constexpr Time kFirstWait = std::chrono::milliseconds(250);
inline constexpr std::uint8_t kResponseTimeout = 20;  // 4.3 s
inline constexpr std::uint8_t kServiceTimeout = 20;   // of an MRA
inline constexpr unsigned kMaxRetries = 15;
// A host refuses a message when there is nobody to answer it: by an ICMP error, or by REJ or
// SIDR_REP for a service that nobody listens on. Each transmission counts one refusal at most, and
// so many end the request: after 0, 250, 750 and 1750 ms. Before, a listener may be about to come,
// or be on a move, or UDP port 4791 may be changing hands.
inline constexpr unsigned kRefusals = 4;
// How long an answer is kept for those who ask again.
inline constexpr Time kAnswerKept = std::chrono::seconds(10);

// 4.096 µs · 2^code.
constexpr Time timeout_of(std::uint8_t code) {
  return Time{std::int64_t{4096} << (code & 31)};
}

// One MAD from QP 1 to QP 1. `id` is the connection of this process that sends it, 0 when it has
// none.
struct Datagram {
  CommId id = 0;
  port::Address from, to;
  Mad mad;
};

enum class State : std::uint8_t {
  kReqSent,
  kReqReceived,
  kRepSent,
  kRepReceived,
  kEstablished,
  kDreqSent,
  kDreqReceived,
  kTimewait,
  kSidrReqSent,
  kSidrReqReceived,
  kAnswered,  // rejected or resolved here: kept for its last message
  kIdle,      // over
};

// A connection as its owner sees it; `local` and `remote` as this side counts them.
struct Connection {
  CommId local_id = 0, remote_id = 0;
  State state = State::kIdle;
  bool passive = false;
  ServiceId service_id = 0;
  port::Address from, to;  // of our CM, and of the peer's
  std::uint64_t remote_guid = 0;
  Transport transport = Transport::kRc;
  std::uint32_t local_qpn = 0, remote_qpn = 0;
  std::uint32_t rq_psn = 0, sq_psn = 0;
  std::uint8_t mtu = 0;
  Path path;  // the REQ's, turned so that `local` is ours
  std::uint8_t responder_resources = 0, initiator_depth = 0;
  std::uint8_t retry_count = 0, rnr_retry = 0;
};

struct Event {
  enum class Type : std::uint8_t {
    kRequest,       // body: Req; `id` is a new connection, made for a listener
    kReply,         // body: Rep
    kEstablished,   // passive side: RTU, or notify()
    kRejected,      // body: Rej
    kUnreachable,   // nobody answered; `error`
    kDisconnected,  // DREQ, DREP, REJ, or a REQ of the same QP; `error` when none came
    kTimewaitExit,
    kSidrRequest,  // body: SidrReq; `id` is new
    kSidrReply,    // body: SidrRep
  };
  Type type;
  CommId id;
  Body body;
  int error = 0;  // ETIMEDOUT, or what failed() was told
};

struct Reply {
  std::uint32_t qpn = 0, psn = 0;
  std::uint8_t responder_resources = 0, initiator_depth = 0;
  bool flow_control = false, srq = false;
  std::uint8_t rnr_retry = 0;
  std::uint64_t guid = 0;
  std::span<const std::byte> data;  // up to 196 bytes
};

class Manager {
 public:
  // `random` gives uniform values.
  Manager(std::uint16_t tag, std::function<std::uint64_t()> random);

  // Requests for `service` that come to an address for which `accepts` holds make kRequest or
  // kSidrRequest events; all others are answered by REJ or SIDR_REP. Called back in handle() only.
  using Accepts = std::function<bool(ServiceId service, const port::Address& to)>;
  void set_listener(Accepts accepts) { accepts_ = std::move(accepts); }

  // Sends a REQ. `request` has everything but local_id, transaction and timers of the CM; its psn
  // is the first that this side's receive queue expects. Returns 0 when every ID is in use.
  CommId connect(const Req& request, const port::Address& from, const port::Address& to, Time now);
  // Each of these acts in the state that is named, and returns EINVAL in any other.
  int accept(CommId id, const Reply& reply, Time now);  // kReqReceived: REP
  int establish(CommId id, Time now);                   // kRepReceived: RTU
  int notify(CommId id);                                // kRepSent: the QP saw data before the RTU
  // kReqReceived, kRepReceived: REJ. `data` up to 148 bytes.
  int reject(CommId id, Reason reason, std::span<const std::byte> data, Time now);
  // kEstablished: DREQ. kDreqReceived: DREP.
  int disconnect(CommId id, Time now);

  // Sends a SIDR_REQ. Returns 0 when every ID is in use.
  CommId resolve(const SidrReq& request, const port::Address& from, const port::Address& to,
                 Time now);
  // kSidrReqReceived: SIDR_REP. `data` up to 136 bytes.
  int answer_sidr(CommId id, SidrStatus status, std::uint32_t qpn, std::uint32_t qkey,
                  std::span<const std::byte> data, Time now);

  // The owner lets go of `id`: the peer gets the REJ, DREQ, DREP or SIDR_REP that the state
  // demands, and no more events come for `id`.
  void forget(CommId id, Time now);

  const Connection* find(CommId id) const;
  // One of the two ends has moved: from now on messages of `id` go from `from` to `to`.
  void set_addresses(CommId id, const port::Address& from, const port::Address& to);

  // An ICMP error came for a packet to `to`. After kRefusals of them each request to `to` ends.
  // ECONNREFUSED, no RNIC runs there: its event is that of an answer_for_nobody(). EHOSTUNREACH and
  // ENETUNREACH, there is no such host: its event is kUnreachable; kDisconnected for a DREQ.
  void failed(const port::Address& to, int error, Time now);

  void handle(const Datagram& datagram, Time now);
  void handle_timeouts(Time now);
  Time next_deadline() const { return deadlines_.empty() ? kNever : deadlines_.begin()->first; }
  // The clock jumped: all deadlines move by `by`.
  void shift_time(Time by);

  bool next_datagram(Datagram* out);
  bool next_event(Event* out);
  std::size_t size() const { return entries_.size(); }
  // A DREQ of ours has no answer yet: were this process to end now, its peer might not hear of it.
  bool awaits_disconnect() const;

 private:
  struct Entry {
    Connection c;
    bool forgotten = false;
    std::uint64_t transaction_id = 0;
    Mad last{};  // for retransmissions and those who ask again
    Time wait{}, deadline = kNever;
    unsigned retries = 0;
    unsigned refusals = 0;  // up to one for each time that it was sent
    unsigned redirections = 0;
  };

  Entry* entry(CommId id);
  Entry* make(CommId* id);
  void erase(CommId id);
  void set_deadline(Entry& e, Time deadline);
  void emit(const Entry& e, Body body);
  void send(Entry& e, Body body);  // emits and keeps it
  void send_until_answered(Entry& e, Body body, Time now);
  void repeat(Entry& e);
  static bool refused(Entry& e);
  void answer(const Datagram& to, std::uint64_t transaction_id, Body body);
  void post(Entry& e, Event::Type type, Body body = {}, int error = 0);
  void finish(Entry& e, State state, Time now);
  void timewait(Entry& e, Time now);
  void timed_out(Entry& e, Time now);
  void reject_for(Entry& e, Reason reason, std::span<const std::byte> data, Time now);

  void handle(const Datagram& d, std::uint64_t transaction, const Req& m, Time now);
  void handle(const Datagram& d, std::uint64_t transaction, const Mra& m, Time now);
  void handle(const Datagram& d, std::uint64_t transaction, const Rej& m, Time now);
  void handle(const Datagram& d, std::uint64_t transaction, const Rep& m, Time now);
  void handle(const Datagram& d, std::uint64_t transaction, const Rtu& m, Time now);
  void handle(const Datagram& d, std::uint64_t transaction, const Dreq& m, Time now);
  void handle(const Datagram& d, std::uint64_t transaction, const Drep& m, Time now);
  void handle(const Datagram& d, std::uint64_t transaction, const SidrReq& m, Time now);
  void handle(const Datagram& d, std::uint64_t transaction, const SidrRep& m, Time now);
  Entry* request_seen(const Req& m);
  void answer_again(Entry& e);
  Entry* deserted_by(const Req& m);
  bool redirect(Entry& e, const Datagram& answer, const Private<72>& info, Time now);

  const std::uint16_t tag_;
  const std::function<std::uint64_t()> random_;
  std::uint16_t next_index_;
  Accepts accepts_;
  std::map<CommId, Entry> entries_;
  std::set<std::pair<Time, CommId>> deadlines_;
  std::deque<Datagram> datagrams_;
  std::deque<Event> events_;
};

}  // namespace ferry::cm
