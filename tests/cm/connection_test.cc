#include "cm/script.h"

#include <cerrno>

// Connections: clause 12.9 of the specification.
namespace ferry::cm {
namespace {

struct ConnectionTest : testing::Test {
  Party a{1}, b{2};
};

TEST_F(ConnectionTest, RequestReplyReady) {
  a.connect(b);
  EXPECT_EQ(a.sent(), "REQ");
  b.take(a);
  EXPECT_EQ(b.events(), "request");
  EXPECT_EQ(b.sent(), "");
  ASSERT_EQ(b.manager.accept(b.id, b.reply(), b.now), 0);
  EXPECT_EQ(b.sent(), "REP");
  a.take(b);
  EXPECT_EQ(a.events(), "reply");
  ASSERT_EQ(a.manager.establish(a.id, a.now), 0);
  EXPECT_EQ(a.sent(), "RTU");
  b.take(a);
  EXPECT_EQ(b.events(), "established");
  EXPECT_EQ(a.state(), State::kEstablished);
  EXPECT_EQ(b.state(), State::kEstablished);
  EXPECT_EQ(a.manager.next_deadline(), kNever);
  EXPECT_EQ(b.manager.next_deadline(), kNever);
}

TEST_F(ConnectionTest, EachSideKnowsWhatItsQpNeeds) {
  establish(a, b);
  const Connection& active = *a.manager.find(a.id);
  const Connection& passive = *b.manager.find(b.id);
  EXPECT_EQ(active.remote_qpn, 0x222u);
  EXPECT_EQ(passive.remote_qpn, 0x111u);
  // A side starts to send with what the other named.
  EXPECT_EQ(active.sq_psn, 0xDEFu);
  EXPECT_EQ(passive.sq_psn, 0xABCu);
  EXPECT_EQ(active.rq_psn, 0xABCu);
  EXPECT_EQ(passive.rq_psn, 0xDEFu);
  // The passive side granted 4 responder resources and asks for a depth of 2.
  EXPECT_EQ(active.initiator_depth, 4);
  EXPECT_EQ(active.responder_resources, 2);
  EXPECT_EQ(passive.initiator_depth, 2);
  EXPECT_EQ(passive.responder_resources, 4);
  EXPECT_EQ(passive.mtu, 4);
  EXPECT_EQ(passive.retry_count, 7);
  EXPECT_EQ(passive.rnr_retry, 6);
  EXPECT_EQ(passive.path.local, b.address);
  EXPECT_EQ(passive.path.remote, a.address);
}

TEST_F(ConnectionTest, IdsCarryTheTag) {
  establish(a, b);
  EXPECT_EQ(tag_of(a.id), 1);
  EXPECT_EQ(tag_of(b.id), 2);
  EXPECT_EQ(a.manager.find(a.id)->remote_id, b.id);
}

// Refused so often, a request has met no listener that was only about to come.
TEST_F(ConnectionTest, NobodyListens) {
  b.listens = false;
  a.connect(b);
  for (unsigned refusals = 1;; ++refusals) {
    b.take(a);
    EXPECT_EQ(b.events(), "");
    EXPECT_EQ(b.sent(), "REJ");
    auto again = b.wire;
    a.take(b);
    // One that comes twice counts once.
    if (refusals == kRefusals) break;
    for (const auto& d : again) a.manager.handle(d, a.now);
    EXPECT_EQ(a.events(), "");
    a.wait();
    EXPECT_EQ(a.sent(), "REQ");
  }
  EXPECT_EQ(a.events(), "rejected");
  EXPECT_EQ(std::get<Rej>(a.last->body).reason, Reason::kInvalidServiceId);
  EXPECT_EQ(a.now - Time{1000}, milliseconds(1750));
  EXPECT_EQ(a.manager.next_deadline(), kNever);
}

TEST_F(ConnectionTest, ListenerComesAfterTheRequest) {
  b.listens = false;
  a.connect(b);
  b.take(a);
  EXPECT_EQ(b.sent(), "REJ");
  a.take(b);
  b.listens = true;
  a.wait();
  b.take(a);
  EXPECT_EQ(b.events(), "request");
}

TEST_F(ConnectionTest, RejectedWithPrivateData) {
  a.connect(b);
  b.take(a);
  EXPECT_EQ(b.events(), "request");
  std::vector<std::byte> data(148, std::byte{7});
  ASSERT_EQ(b.manager.reject(b.id, Reason::kConsumer, data, b.now), 0);
  EXPECT_EQ(b.manager.reject(b.id, Reason::kConsumer, data, b.now), EINVAL);
  a.take(b);
  EXPECT_EQ(a.events(), "rejected");
  const auto& rej = std::get<Rej>(a.last->body);
  EXPECT_EQ(rej.reason, Reason::kConsumer);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), rej.data.begin(), rej.data.end()));
}

TEST_F(ConnectionTest, ActiveSideRejectsTheReply) {
  a.connect(b);
  b.take(a);
  b.events();
  b.manager.accept(b.id, b.reply(), b.now);
  a.take(b);
  a.events();
  ASSERT_EQ(a.manager.reject(a.id, Reason::kConsumer, {}, a.now), 0);
  b.take(a);
  EXPECT_EQ(b.events(), "rejected");
}

TEST_F(ConnectionTest, LostRequestIsRepeated) {
  a.connect(b);
  EXPECT_EQ(a.sent(), "REQ");
  a.wire.clear();
  a.advance(kFirstWait - Time{1});
  EXPECT_EQ(a.sent(), "");
  a.advance(Time{1});
  EXPECT_EQ(a.sent(), "REQ");
  b.take(a);
  EXPECT_EQ(b.events(), "request");
}

TEST_F(ConnectionTest, SilentPeerIsUnreachableAfterTheLastRetry) {
  a.connect(b);
  a.sent();
  for (unsigned i = 0; i < kMaxRetries; ++i) {
    a.wait();
    EXPECT_EQ(a.sent(), "REQ") << i;
    EXPECT_EQ(a.events(), "") << i;
  }
  a.wait();
  EXPECT_EQ(a.sent(), "REJ");  // should it hear after all
  EXPECT_EQ(a.events(), "unreachable");
  EXPECT_EQ(a.last->error, ETIMEDOUT);
  EXPECT_EQ(a.manager.next_deadline(), kNever);
}

TEST_F(ConnectionTest, SlowProgramIsAnnouncedByMra) {
  a.connect(b);
  b.take(a);
  EXPECT_EQ(b.events(), "request");
  a.wait();
  b.take(a);
  EXPECT_EQ(b.events(), "");  // seen already
  EXPECT_EQ(b.sent(), "MRA");
  a.take(b);
  // A peer that answers is alive: many more tries than the limit.
  for (unsigned i = 0; i < 3 * kMaxRetries; ++i) {
    a.wait();
    EXPECT_EQ(a.sent(), "REQ");
    b.take(a);
    a.take(b);
  }
  EXPECT_EQ(a.events(), "");
  EXPECT_GE(a.now, timeout_of(kServiceTimeout) * 3 * kMaxRetries);
}

TEST_F(ConnectionTest, LostReplyIsRepeated) {
  a.connect(b);
  b.take(a);
  b.events();
  b.manager.accept(b.id, b.reply(), b.now);
  EXPECT_EQ(b.sent(), "REP");
  b.wire.clear();
  // The request that comes again asks for it.
  a.wait();
  b.take(a);
  EXPECT_EQ(b.sent(), "REP");
  a.take(b);
  EXPECT_EQ(a.events(), "reply");
  // So does its own timer; and a reply that comes twice is waited for.
  b.wait();
  EXPECT_EQ(b.sent(), "REP");
  a.take(b);
  EXPECT_EQ(a.events(), "");
  EXPECT_EQ(a.sent(), "MRA");
}

TEST_F(ConnectionTest, LostReadyIsRepeatedOnAnotherReply) {
  a.connect(b);
  b.take(a);
  b.events();
  b.manager.accept(b.id, b.reply(), b.now);
  a.take(b);
  a.events();
  a.manager.establish(a.id, a.now);
  EXPECT_EQ(a.sent(), "RTU");
  a.wire.clear();
  b.wait();
  a.take(b);
  EXPECT_EQ(a.sent(), "RTU");
  b.take(a);
  EXPECT_EQ(b.events(), "established");
}

TEST_F(ConnectionTest, DataBeforeTheReadyEstablishes) {
  a.connect(b);
  b.take(a);
  b.events();
  b.manager.accept(b.id, b.reply(), b.now);
  EXPECT_EQ(b.manager.notify(b.id), 0);
  EXPECT_EQ(b.events(), "established");
  EXPECT_EQ(b.manager.notify(b.id), EINVAL);
  EXPECT_EQ(b.manager.next_deadline(), kNever);
}

TEST_F(ConnectionTest, ReplyToNobody) {
  a.connect(b);
  b.take(a);
  b.events();
  a.manager.forget(a.id, a.now);
  EXPECT_EQ(a.sent(), "REJ");
  a.wire.clear();  // lost
  b.manager.accept(b.id, b.reply(), b.now);
  a.take(b);
  EXPECT_EQ(a.sent(), "REJ");
  b.take(a);
  EXPECT_EQ(b.events(), "rejected");
}

TEST_F(ConnectionTest, Disconnect) {
  establish(a, b);
  ASSERT_EQ(a.manager.disconnect(a.id, a.now), 0);
  EXPECT_EQ(a.sent(), "DREQ");
  b.take(a);
  EXPECT_EQ(b.events(), "disconnected");
  EXPECT_EQ(b.sent(), "");  // the program disconnects too
  ASSERT_EQ(b.manager.disconnect(b.id, b.now), 0);
  EXPECT_EQ(b.sent(), "DREP");
  a.take(b);
  EXPECT_EQ(a.events(), "disconnected");
  EXPECT_EQ(a.last->error, 0);
  a.wait();
  b.wait();
  EXPECT_EQ(a.events(), "timewait exit");
  EXPECT_EQ(b.events(), "timewait exit");
}

TEST_F(ConnectionTest, BothDisconnectAtOnce) {
  establish(a, b);
  a.manager.disconnect(a.id, a.now);
  b.manager.disconnect(b.id, b.now);
  a.sent();
  b.sent();
  auto from_b = b.wire;
  b.wire.clear();
  b.take(a);
  for (const auto& d : from_b) a.manager.handle(d, a.now);
  EXPECT_EQ(a.sent(), "DREP");
  EXPECT_EQ(b.sent(), "DREP");
  EXPECT_EQ(a.events(), "disconnected");
  EXPECT_EQ(b.events(), "disconnected");
  a.take(b);
  EXPECT_EQ(a.events(), "");
}

TEST_F(ConnectionTest, LostDisconnectReply) {
  establish(a, b);
  a.manager.disconnect(a.id, a.now);
  b.take(a);
  b.events();
  b.manager.disconnect(b.id, b.now);
  b.sent();
  b.wire.clear();
  a.wait();
  EXPECT_EQ(a.sent(), "DREQ");
  b.take(a);
  EXPECT_EQ(b.sent(), "DREP");  // from timewait
  // Also when nothing is left of the connection.
  b.wait();
  b.events();
  b.manager.forget(b.id, b.now);
  EXPECT_EQ(b.manager.size(), 0u);
  b.wire.clear();
  a.wait();
  b.take(a);
  EXPECT_EQ(b.sent(), "DREP");
  a.take(b);
  EXPECT_EQ(a.events(), "disconnected");
}

// The program of one side may take long, or never look at its events; the other may want to end.
TEST_F(ConnectionTest, DisconnectThatComesAgainIsAnswered) {
  establish(a, b);
  a.manager.disconnect(a.id, a.now);
  b.take(a);
  EXPECT_EQ(b.events(), "disconnected");
  EXPECT_EQ(b.sent(), "");
  a.wait();
  b.take(a);
  EXPECT_EQ(b.events(), "");
  EXPECT_EQ(b.sent(), "DREP");
  a.take(b);
  EXPECT_EQ(a.events(), "disconnected");
  EXPECT_FALSE(a.manager.awaits_disconnect());
  EXPECT_EQ(b.manager.disconnect(b.id, b.now), 0);
}

TEST_F(ConnectionTest, DisconnectTimesOut) {
  establish(a, b);
  a.manager.disconnect(a.id, a.now);
  for (unsigned i = 0; i <= kMaxRetries; ++i) a.wait();
  EXPECT_EQ(a.events(), "disconnected");
  EXPECT_EQ(a.last->error, ETIMEDOUT);
}

TEST_F(ConnectionTest, ForgottenConnectionsDisconnect) {
  establish(a, b);
  a.manager.forget(a.id, a.now);
  EXPECT_EQ(a.manager.find(a.id), nullptr);
  EXPECT_EQ(a.sent(), "DREQ");
  a.wire.clear();
  a.wait();
  EXPECT_EQ(a.sent(), "DREQ");
  b.take(a);
  EXPECT_EQ(b.events(), "disconnected");
  b.manager.forget(b.id, b.now);
  a.take(b);
  EXPECT_EQ(a.events(), "");
  a.wait();
  b.wait();
  EXPECT_EQ(a.manager.size(), 0u);
  EXPECT_EQ(b.manager.size(), 0u);
}

TEST_F(ConnectionTest, PeerThatBeganAnewMakesTheOldConnectionStale) {
  establish(a, b);
  const CommId old = b.id;
  Party again(3);
  again.address = a.address;
  again.connect(b);  // the same GUID and QPN
  b.take(again);
  EXPECT_EQ(b.events(), "disconnected");
  EXPECT_EQ(b.id, old);
  EXPECT_EQ(b.sent(), "REJ");
  again.take(b);
  EXPECT_EQ(again.events(), "rejected");
  EXPECT_EQ(std::get<Rej>(again.last->body).reason, Reason::kStaleConnection);
  again.connect(b);
  b.take(again);
  EXPECT_EQ(b.events(), "request");
}

TEST_F(ConnectionTest, MovedSideDisconnects) {
  establish(a, b);
  Party elsewhere(9);
  b.address = elsewhere.address;
  b.manager.set_addresses(b.id, b.address, a.address);
  a.manager.set_addresses(a.id, a.address, b.address);
  b.manager.disconnect(b.id, b.now);
  a.take(b);
  EXPECT_EQ(a.events(), "disconnected");
  a.manager.disconnect(a.id, a.now);
  b.take(a);
  EXPECT_EQ(b.events(), "disconnected");
}

TEST_F(ConnectionTest, ClockJumps) {
  a.connect(b);
  a.sent();
  a.manager.shift_time(seconds(1000));
  a.advance(seconds(1000) + kFirstWait - Time{1});
  EXPECT_EQ(a.sent(), "");
  a.advance(Time{1});
  EXPECT_EQ(a.sent(), "REQ");
}

// ICMP errors for what a sent to b.
struct PortErrors : ConnectionTest {
  // Whoever holds the port may just have changed; and the errors may be those of other requests.
  void fail(int error) {
    for (unsigned i = 0; i < kRefusals - 1; ++i) {
      for (int k = 0; k < 9; ++k) a.manager.failed(b.address, error, a.now);
      a.wait();
    }
    a.manager.failed(a.address, error, a.now);
    EXPECT_EQ(a.events(), "");
    a.manager.failed(b.address, error, a.now);
  }
  void reply() {  // a's
    b.connect(a);
    a.take(b);
    ASSERT_EQ(a.events(), "request");
    ASSERT_EQ(a.manager.accept(a.id, a.reply(), a.now), 0);
  }
};

TEST_F(PortErrors, EndARequest) {
  a.connect(b);
  fail(ECONNREFUSED);
  EXPECT_EQ(a.events(), "rejected");
  EXPECT_EQ(std::get<Rej>(a.last->body).reason, Reason::kInvalidServiceId);

  a.connect(b);
  fail(EHOSTUNREACH);
  EXPECT_EQ(a.events(), "unreachable");
  EXPECT_EQ(a.last->error, EHOSTUNREACH);
}

TEST_F(PortErrors, EndAReply) {
  reply();
  fail(ECONNREFUSED);
  EXPECT_EQ(a.events(), "rejected");
  EXPECT_EQ(std::get<Rej>(a.last->body).reason, Reason::kInvalidCommId);
  EXPECT_EQ(a.manager.next_deadline(), kNever);
}

TEST_F(PortErrors, EndADisconnect) {
  establish(a, b);
  a.manager.disconnect(a.id, a.now);
  EXPECT_TRUE(a.manager.awaits_disconnect());
  fail(ECONNREFUSED);
  EXPECT_FALSE(a.manager.awaits_disconnect());
  EXPECT_EQ(a.events(), "disconnected");
  EXPECT_EQ(a.last->error, 0);
  a.wait();
  EXPECT_EQ(a.events(), "timewait exit");
}

TEST_F(PortErrors, TellWhyADisconnectHadNoAnswer) {
  establish(a, b);
  a.manager.disconnect(a.id, a.now);
  fail(EHOSTUNREACH);
  EXPECT_EQ(a.events(), "disconnected");
  EXPECT_EQ(a.last->error, EHOSTUNREACH);
}

TEST_F(PortErrors, DoNotConcernWhatIsUp) {
  establish(a, b);
  for (unsigned i = 0; i < 9; ++i) a.manager.failed(b.address, ECONNREFUSED, a.now);
  EXPECT_EQ(a.events(), "");
  EXPECT_EQ(a.state(), State::kEstablished);
}

TEST_F(ConnectionTest, CallsInAnotherStateAreRefused) {
  a.connect(b);
  EXPECT_EQ(a.manager.accept(a.id, a.reply(), a.now), EINVAL);
  EXPECT_EQ(a.manager.establish(a.id, a.now), EINVAL);
  EXPECT_EQ(a.manager.disconnect(a.id, a.now), EINVAL);
  EXPECT_EQ(a.manager.reject(a.id, Reason::kConsumer, {}, a.now), EINVAL);
  EXPECT_EQ(a.manager.accept(77, a.reply(), a.now), EINVAL);
}

}  // namespace
}  // namespace ferry::cm
