#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "port/slot.h"
#include "transport/fake_host.h"
#include "transport/migration/stand_in.h"

// The limits that end waiting (docs/settings.md), seen from both ends of a connection: who waits
// for whom, when it ends, and how what both had posted completes.
namespace ferry::transport::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Time kPausedLimit = seconds(5);
constexpr Time kDelay = milliseconds(1);
constexpr unsigned kPosted = 3;  // requests of each side

struct End {
  End(int number, const MigrationSettings& settings)
      : host(4096), qpn(port::make_qpn(static_cast<std::uint32_t>(number), 100)) {
    host.local = {port::Address::from_ipv4(0x0A000000 + static_cast<std::uint32_t>(number)),
                  port::udp_port_of_slot(static_cast<std::uint32_t>(number))};
    host.random_bits = [this] { return bits += 0x9E3779B97F4A7C15; };
    bits = static_cast<std::uint64_t>(number);
    qp = std::make_unique<Connection>(host, QueueLimits{16, 16, 64}, settings, qpn, qpn);
  }
  FakeHost host;
  std::uint64_t bits = 0;
  std::uint32_t qpn;
  std::unique_ptr<Connection> qp;
};

// Two connected QPs, and what is between them. Time passes only in advance().
class Limits : public testing::Test {
 protected:
  Limits() {
    for (End* end : {&a_, &b_}) {
      end->host.send = [this](Datagram datagram) {
        if (!lost_(datagram)) under_way_.push_back({now_ + kDelay, std::move(datagram)});
      };
    }
    connect(a_, b_);
    connect(b_, a_);
    advance(seconds(1));
    EXPECT_EQ(a_.qp->status().peer_class, PeerClass::kFerry);
    EXPECT_EQ(b_.qp->status().peer_class, PeerClass::kFerry);
  }

  static MigrationSettings settings() {
    MigrationSettings result;
    result.paused_limit = kPausedLimit;
    return result;
  }

  void connect(End& end, const End& peer) {
    end.qp->init();
    RtrAttributes rtr;
    rtr.peer = peer.host.local;
    rtr.peer_qpn = peer.qpn;
    end.qp->to_rtr(rtr, now_);
    RtsAttributes rts;
    rts.timeout = 14;
    rts.retry_count = 7;
    rts.rnr_retry = 7;
    end.qp->to_rts(rts, now_);
  }

  void post(End& end, unsigned count = kPosted) {
    for (unsigned i = 0; i < count; ++i) {
      SendRequest request;
      request.signaled = true;
      request.operation = Operation::kSend;
      EXPECT_EQ(end.qp->post_send(request), 0);
    }
  }

  void give_receives(End& end, unsigned count) {
    for (unsigned i = 0; i < count; ++i) end.host.post_receive({});
    end.qp->receive_posted(now_);
  }

  void pump() {
    for (End* end : {&a_, &b_}) {
      if (end->qp->next_deadline() <= now_) end->qp->handle_timeout(now_);
      while (end->qp->transmit(now_, 16) > 0) continue;
    }
    if (stand_in_ && stand_in_->next_deadline() <= now_) stand_in_->handle_timeout(now_);
  }

  void deliver(const Datagram& datagram) {
    const auto packet = wire::parse(datagram.bytes);
    ASSERT_TRUE(packet);
    for (End* end : {&a_, &b_}) {
      if (end->host.local == datagram.to && end != stopped_) {
        return end->qp->handle_packet(*packet, datagram.from, now_);
      }
    }
    if (stand_in_ != nullptr && datagram.to == stand_in_at_) {
      stand_in_->handle_packet(*packet, datagram.from, now_);
    }
  }

  void advance(Time by) {
    const Time end = now_ + by;
    for (;;) {
      pump();
      Time next = std::min(a_.qp->next_deadline(), b_.qp->next_deadline());
      if (stand_in_) next = std::min(next, stand_in_->next_deadline());
      if (!under_way_.empty()) next = std::min(next, under_way_.front().first);
      if (next > end) break;
      now_ = std::max(now_, next);
      while (!under_way_.empty() && under_way_.front().first <= now_) {
        const Datagram datagram = std::move(under_way_.front().second);
        under_way_.pop_front();
        deliver(datagram);
      }
    }
    now_ = end;
  }

  // `a_` stops, and a stand-in answers for it.
  void stop() {
    a_.qp->stop(now_);
    a_.qp->transmit(now_, 16);
    stopped_ = &a_;
    stand_in_at_ = a_.host.local;
    stand_in_ =
        std::make_unique<StandIn>([this](const port::Endpoint& to, const wire::Header& header,
                                         std::span<const std::byte> payload) {
          Datagram datagram{stand_in_at_, to, {}};
          datagram.bytes.resize(wire::packet_size(header.opcode, payload.size()));
          wire::encode_header(header, payload.size(), datagram.bytes);
          std::copy(payload.begin(), payload.end(),
                    datagram.bytes.begin() + static_cast<long>(wire::header_size(header.opcode)));
          if (!lost_(datagram)) under_way_.push_back({now_ + kDelay, std::move(datagram)});
        });
    EXPECT_TRUE(stand_in_->add(a_.qp->stand_in_entry({}), now_));
  }
  // ... and is somewhere else now; its stand-in leads there.
  void commit() {
    a_.host.local = {port::Address::from_ipv4(0x0A000063), port::udp_port_of_slot(7)};
    stand_in_->committed(a_.host.local, 7, 1, now_);
  }
  void resume() {
    stopped_ = nullptr;
    const bool rollback = a_.host.local == stand_in_at_;
    if (rollback) stand_in_.reset();
    a_.qp->resume(rollback ? a_.qpn : port::make_qpn(7, 100), rollback, now_);
  }

  // The oldest request with RETRY_EXC_ERR, the others flushed, the QP in ERROR: what
  // docs/settings.md says of a limit that ends.
  static void expect_ended(const End& end, const char* who) {
    SCOPED_TRACE(who);
    EXPECT_EQ(int(end.qp->state()), int(QpState::kError));
    ASSERT_EQ(end.host.sent.size(), kPosted);
    EXPECT_EQ(end.host.sent[0].status, Status::kRetryExceeded);
    for (unsigned i = 1; i < kPosted; ++i) EXPECT_EQ(end.host.sent[i].status, Status::kFlush);
  }
  static void expect_waiting(const End& end, const char* who) {
    SCOPED_TRACE(who);
    EXPECT_EQ(int(end.qp->state()), int(QpState::kRts));
    EXPECT_TRUE(end.host.sent.empty());
  }
  bool is_from(const Datagram& datagram, const End& end) const {
    return datagram.from == end.host.local;
  }

  Time now_{seconds(1)};
  End* stopped_ = nullptr;
  std::deque<std::pair<Time, Datagram>> under_way_;
  std::function<bool(const Datagram&)> lost_ = [](const Datagram&) { return false; };
  std::unique_ptr<StandIn> stand_in_;
  port::Endpoint stand_in_at_;
  End a_{1, settings()}, b_{2, settings()};
};

TEST_F(Limits, APeerThatStaysStopped) {
  stop();
  post(a_);
  post(b_);
  advance(kPausedLimit - milliseconds(10));
  expect_waiting(b_, "the peer");
  EXPECT_EQ(b_.qp->status().migration, MigrationState::kPaused);
  EXPECT_GT(stand_in_->counters().packets, 0u);
  advance(milliseconds(20));
  expect_ended(b_, "the peer");
  // It comes back, to a peer that has given up and does not answer.
  resume();
  advance(kPausedLimit - milliseconds(10));
  expect_waiting(a_, "the one that stopped");
  EXPECT_TRUE(a_.qp->status().resume_pending);
  advance(milliseconds(20));
  expect_ended(a_, "the one that stopped");
}

TEST_F(Limits, AResumeThatNobodyHears) {
  stop();
  post(a_);
  post(b_);
  advance(milliseconds(100));
  commit();
  resume();
  lost_ = [this](const Datagram& datagram) { return is_from(datagram, a_); };
  const Time resumed = now_;
  // The peer follows MOVED and is heard, but hears nothing from there.
  advance(kPausedLimit - milliseconds(110));
  expect_waiting(a_, "the one that moved");
  expect_waiting(b_, "the peer");
  EXPECT_EQ(b_.qp->status().peer, a_.host.local);
  advance(milliseconds(30));
  expect_ended(b_, "the peer");
  advance(resumed + kPausedLimit - now_ - milliseconds(1));
  expect_waiting(a_, "the one that moved");
  advance(milliseconds(2));
  expect_ended(a_, "the one that moved");
}

TEST_F(Limits, AResumeWhoseAcknowledgementIsAlwaysLost) {
  give_receives(a_, kPosted);
  give_receives(b_, kPosted);
  stop();
  post(a_);
  post(b_);
  commit();
  resume();
  // The peer goes on at once. The one that moved cannot know that it is heard, and is silent.
  lost_ = [this](const Datagram& datagram) { return is_from(datagram, b_); };
  advance(milliseconds(100));
  EXPECT_EQ(b_.qp->status().migration, MigrationState::kNone);
  advance(kPausedLimit - milliseconds(110));
  expect_waiting(a_, "the one that moved");
  advance(milliseconds(20));
  expect_ended(a_, "the one that moved");
  lost_ = [](const Datagram&) { return false; };
  advance(seconds(5));  // the peer's own timeout and retry count
  expect_ended(b_, "the peer");
}

TEST_F(Limits, AStandInThatHasEnded) {
  stop();
  commit();
  resume();
  advance(seconds(1));
  EXPECT_FALSE(a_.qp->status().resume_pending);
  EXPECT_FALSE(stand_in_->expired(now_));
  stand_in_->peer_knows(a_.qpn, now_);
  EXPECT_FALSE(stand_in_->expired(now_));
  advance(kPausedLimit);
  EXPECT_TRUE(stand_in_->expired(now_));
  // Who still sends to the old place is not answered any more, and ends as with any peer that is
  // not there.
  const port::Endpoint old_place = stand_in_at_;
  stand_in_.reset();
  lost_ = [this](const Datagram& datagram) { return is_from(datagram, a_); };
  a_.host.local = old_place;
  stopped_ = &a_;
  post(b_);
  advance(seconds(5));
  expect_ended(b_, "the peer");
}

TEST_F(Limits, WhoHasNothingToSendFallsSilentAndFailsLater) {
  stop();
  advance(kPausedLimit + seconds(1));
  EXPECT_EQ(int(b_.qp->state()), int(QpState::kRts));
  EXPECT_EQ(b_.qp->next_deadline(), kNever);
  post(b_);
  advance(Time(0));
  expect_ended(b_, "the peer");
  resume();
  advance(kPausedLimit + seconds(1));
  EXPECT_EQ(int(a_.qp->state()), int(QpState::kRts));
  EXPECT_EQ(a_.qp->next_deadline(), kNever);
  post(a_);
  advance(Time(0));
  expect_ended(a_, "the one that stopped");
}

TEST_F(Limits, AStopThatIsShorterEndsNothing) {
  give_receives(a_, kPosted);
  give_receives(b_, kPosted);
  stop();
  post(a_);
  post(b_);
  advance(kPausedLimit - milliseconds(10));
  resume();
  advance(seconds(1));
  for (End* end : {&a_, &b_}) {
    EXPECT_EQ(int(end->qp->state()), int(QpState::kRts));
    ASSERT_EQ(end->host.sent.size(), kPosted);
    for (const auto& completion : end->host.sent) {
      EXPECT_EQ(completion.status, Status::kSuccess);
    }
  }
}

}  // namespace
}  // namespace ferry::transport::test
