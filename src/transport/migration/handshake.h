#pragma once

#include <cstdint>

#include "port/endpoint.h"
#include "transport/migration_timers.h"
#include "transport/streams/qp_attributes.h"
#include "transport/types.h"
#include "wire/migration.h"

namespace ferry::transport {

// A cookie of 0: there is none, or it is not known yet.
struct Cookies {
  std::uint64_t own = 0, peer = 0;
};

// HELLO, HELLO_ACK, HELLO_DONE (docs/wire.md, "HELLO"): they find out whether the peer is of our
// kind, and its cookie.
class Handshake {
 public:
  Handshake(QpAttributes& qp, MigrationTimers& timers) : qp_(qp), timers_(timers) {}

  void draw_cookie();
  void start(Time now);
  // Starts with the next timeout(): a QP that is loaded from a record has no time.
  void start_at_once();
  // Asks a peer that is not known to be ferry once more, also after we had given it up.
  void ask_again(Time now);
  void timeout(Time now);
  // False: the message is not from the peer, or impossible.
  bool handle(const wire::MigrationMessage& message, const port::Endpoint& from);
  bool is_peer(std::uint32_t source_qpn) const;
  const Cookies& cookies() const { return cookies_; }
  std::uint64_t echo() const { return echo_; }  // the cookie that HELLO_ACK echoes
  void forget();

  void save(Saver& out) const;
  void load(Loader& in);

 private:
  bool learn(std::uint64_t cookie);  // stores the peer's cookie, which came with a valid echo

  QpAttributes& qp_;
  MigrationTimers& timers_;
  Cookies cookies_;
  std::uint64_t echo_ = 0;
  unsigned repeats_left_ = 0;
};

}  // namespace ferry::transport
