#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "cm/manager.h"

// Two communication managers, a wire between them and a clock: tests read like packet traces.
//
//   Party a{1}, b{2};
//   EXPECT_EQ(a.sent(), "REQ");  b.take(a);
namespace ferry::cm {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr ServiceId kService = 0x0000000001061234;

inline std::string name_of(const Mad& mad) {
  const auto message = parse(mad);
  if (!message) return "malformed";
  static constexpr const char* kNames[] = {"REQ",  "MRA",  "REJ",      "REP",     "RTU",
                                           "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"};
  return kNames[message->body.index()];
}

inline std::string name_of(Event::Type type) {
  static constexpr const char* kNames[] = {"request",       "reply",        "established",
                                           "rejected",      "unreachable",  "disconnected",
                                           "timewait exit", "SIDR request", "SIDR reply"};
  return kNames[static_cast<int>(type)];
}

struct Party {
  explicit Party(std::uint16_t tag)
      : address(port::Address::from_ipv4(0x0A000000u + tag)),
        manager(tag, [this] { return random += 0x9E3779B97F4A7C15ull; }) {
    manager.set_listener([this](ServiceId service, const port::Address& to) {
      return listens && service == kService && to == address;
    });
  }

  // What was sent since the last call, in words; it stays in `wire`.
  std::string sent() {
    std::string names;
    Datagram d;
    while (manager.next_datagram(&d)) {
      if (!names.empty()) names += ' ';
      names += name_of(d.mad);
      wire.push_back(d);
    }
    return names;
  }
  // Takes what the other side sent so far.
  void take(Party& from) {
    from.sent();
    for (const Datagram& d : from.wire) {
      if (d.to == address) manager.handle({0, d.from, d.to, d.mad}, now);
    }
    from.wire.clear();
  }
  std::string events() {
    std::string names;
    Event e;
    while (manager.next_event(&e)) {
      if (!names.empty()) names += ' ';
      names += name_of(e.type);
      id = e.id;
      last = e;
    }
    return names;
  }
  void advance(Time by) {
    now += by;
    manager.handle_timeouts(now);
  }
  // To the next deadline.
  void wait() {
    ASSERT_NE(manager.next_deadline(), kNever);
    now = std::max(now, manager.next_deadline());
    manager.handle_timeouts(now);
  }

  CommId connect(const Party& to) {
    Req req;
    req.service_id = kService;
    req.guid = 0xA0 + static_cast<std::uint64_t>(address.bytes.back());
    req.qpn = 0x111;
    req.psn = 0xABC;
    req.responder_resources = 3;
    req.initiator_depth = 5;
    req.retry_count = 7;
    req.rnr_retry = 6;
    req.mtu = 4;
    req.path.local = address;
    req.path.remote = to.address;
    req.path.ack_timeout = 14;
    return id = manager.connect(req, address, to.address, now);
  }
  Reply reply() const {
    Reply r;
    r.qpn = 0x222;
    r.psn = 0xDEF;
    r.responder_resources = 4;
    r.initiator_depth = 2;
    r.guid = 0xB0;
    return r;
  }
  State state() const {
    const Connection* c = manager.find(id);
    return c != nullptr ? c->state : State::kIdle;
  }

  std::uint64_t random = 0;
  port::Address address;
  bool listens = true;
  Time now{1000};
  Manager manager;
  std::vector<Datagram> wire;
  CommId id = 0;
  std::optional<Event> last;
};

// Both ends established.
inline void establish(Party& a, Party& b) {
  a.connect(b);
  b.take(a);
  ASSERT_EQ(b.events(), "request");
  ASSERT_EQ(b.manager.accept(b.id, b.reply(), b.now), 0);
  a.take(b);
  ASSERT_EQ(a.events(), "reply");
  ASSERT_EQ(a.manager.establish(a.id, a.now), 0);
  b.take(a);
  ASSERT_EQ(b.events(), "established");
}

}  // namespace ferry::cm
