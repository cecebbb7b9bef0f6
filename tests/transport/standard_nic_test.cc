#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <string>
#include <vector>

#include "transport/connected/connection.h"
#include "transport/fake_host.h"
#include "transport/migration/stand_in.h"
#include "wire/icrc.h"

// A standard RoCEv2 NIC as the peer of a QP that moves, byte by byte. The packets of both sides are
// written here from the specification (IBTA vol. 1 chapter 9, annex A17), and share nothing with
// src/wire: not the header's encoding, not the ICRC. `nic > ...` is what the NIC sends, `nic < ...`
// what it gets.
namespace ferry::transport::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Bytes big_endian(std::uint64_t value, unsigned bytes) {
  Bytes out;
  while (bytes-- > 0) out.push_back(static_cast<std::uint8_t>(value >> (8 * bytes)));
  return out;
}

// Ethernet's CRC-32, one bit after the other.
std::uint32_t crc32(const Bytes& bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const std::uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320 : 0);
  }
  return ~crc;
}

Bytes raw(const port::Address& address) {
  Bytes bytes;
  for (const std::byte byte : address.bytes) bytes.push_back(std::to_integer<std::uint8_t>(byte));
  return address.is_ipv4() ? Bytes(bytes.end() - 4, bytes.end()) : bytes;
}

// Annex A17.3.3; `packet` from the BTH to the pad, the IPv4 identification 0.
Bytes icrc(const port::Endpoint& from, const port::Endpoint& to, const Bytes& packet) {
  const std::uint64_t udp = 8 + packet.size() + 4;
  Bytes covered(8, 0xFF);
  if (from.address.is_ipv4()) {
    covered = covered + Bytes{0x45, 0xFF} + big_endian(20 + udp, 2) +
              Bytes{0, 0, 0x40, 0, 0xFF, 17, 0xFF, 0xFF};
  } else {
    covered = covered + Bytes{0x6F, 0xFF, 0xFF, 0xFF} + big_endian(udp, 2) + Bytes{17, 0xFF};
  }
  covered = covered + raw(from.address) + raw(to.address) + big_endian(from.udp_port, 2) +
            big_endian(to.udp_port, 2) + big_endian(udp, 2) + Bytes{0xFF, 0xFF};
  Bytes masked = packet;
  masked[4] = 0xFF;
  const std::uint32_t crc = crc32(covered + masked);
  return {static_cast<std::uint8_t>(crc), static_cast<std::uint8_t>(crc >> 8),
          static_cast<std::uint8_t>(crc >> 16), static_cast<std::uint8_t>(crc >> 24)};
}

constexpr std::uint32_t kQpn = 0x000011, kNicQpn = 0xABCDEF;
constexpr bool kAck = true;

Bytes bth(std::uint8_t opcode, std::uint32_t qpn, std::uint32_t psn, bool ack_request = false) {
  return Bytes{opcode, 0x40, 0xFF, 0xFF, 0} + big_endian(qpn, 3) +
         Bytes{static_cast<std::uint8_t>(ack_request ? 0x80 : 0)} + big_endian(psn, 3);
}
Bytes aeth(std::uint8_t syndrome, std::uint32_t msn) {
  return Bytes{syndrome} + big_endian(msn, 3);
}
Bytes reth(std::uint64_t address, std::uint32_t length) {
  return big_endian(address, 8) + big_endian(kRkey, 4) + big_endian(length, 4);
}

// What the NIC sends.
Bytes send_only(std::uint32_t psn, const Bytes& payload) {
  return bth(0x04, kQpn, psn, kAck) + payload;
}
Bytes read_request(std::uint32_t psn, std::uint64_t address, std::uint32_t length) {
  return bth(0x0C, kQpn, psn, kAck) + reth(address, length);
}
Bytes fetch_add(std::uint32_t psn, std::uint64_t address, std::uint64_t add) {
  return bth(0x14, kQpn, psn, kAck) + big_endian(address, 8) + big_endian(kRkey, 4) +
         big_endian(add, 8) + big_endian(0, 8);
}
Bytes acknowledge(std::uint32_t psn, std::uint32_t msn) {
  return bth(0x11, kQpn, psn) + aeth(0x1F, msn);
}
// What it gets.
Bytes ack(std::uint32_t psn, std::uint32_t msn) {
  return bth(0x11, kNicQpn, psn) + aeth(0x1F, msn);
}
Bytes rnr_nak(std::uint32_t psn, std::uint8_t timer, std::uint32_t msn) {
  return bth(0x11, kNicQpn, psn) + aeth(static_cast<std::uint8_t>(0x20 | timer), msn);
}
Bytes atomic_ack(std::uint32_t psn, std::uint32_t msn, std::uint64_t original) {
  return bth(0x12, kNicQpn, psn) + aeth(0x1F, msn) + big_endian(original, 8);
}

class StandardNic : public testing::TestWithParam<bool> {  // IPv6
 protected:
  static constexpr std::uint32_t kMtu = 256;

  StandardNic() {
    port::Address here = port::Address::from_ipv4(0x0A4EC801);
    port::Address there = port::Address::from_ipv4(0x0A4EC802);
    if (GetParam()) {
      here.bytes = there.bytes = {};
      here.bytes[0] = there.bytes[0] = std::byte{0xFD};
      here.bytes[15] = std::byte{1};
      there.bytes[15] = std::byte{2};
    }
    us_ = {here, 4791};
    nic_ = {there, 4791};
    from_nic_ = {there, 0xC123};  // for entropy (annex A17.9.3)
    host.local = us_;
    host.send = [this](const Datagram& datagram) {
      Bytes bytes;
      auto sealed = datagram.bytes;
      wire::seal(sealed, us_, datagram.to, 0);
      for (const std::byte byte : sealed) bytes.push_back(std::to_integer<std::uint8_t>(byte));
      EXPECT_EQ(datagram.to, nic_);
      out_.push_back(bytes);
    };
    qp = make();
    qp->init();
    qp->to_rtr({.peer = nic_,
                .peer_qpn = kNicQpn,
                .mtu = kMtu,
                .expected_psn = 500,
                .max_dest_rd_atomic = 4,
                .min_rnr_timer = 12},
               now);
    qp->to_rts(
        {.next_psn = 100, .timeout = 14, .retry_count = 7, .rnr_retry = 7, .max_rd_atomic = 4},
        now);
    for (std::size_t i = 0; i < host.memory().size(); ++i) {
      host.memory()[i] = static_cast<std::byte>(i * 7);
    }
  }
  ~StandardNic() override {
    EXPECT_TRUE(out_.empty()) << out_.size() << " packets that the script does not have";
  }

  std::unique_ptr<Connection> make() {
    return std::make_unique<Connection>(
        host, QueueLimits{.max_send_wr = 16, .max_send_sge = 1, .shared_receive_queue = true},
        MigrationSettings{.enabled = false}, kQpn, kQpn);
  }

  void run() {
    while (qp && qp->has_work() && qp->transmit(now, 16) > 0) continue;
  }

  // --- The trace
  void nic_sends(const Bytes& packet) {
    std::vector<std::byte> bytes;
    for (const std::uint8_t byte : packet + icrc(from_nic_, us_, packet)) {
      bytes.push_back(std::byte{byte});
    }
    ASSERT_TRUE(wire::verify(bytes, from_nic_, us_, 0)) << "the ICRC";
    const auto parsed = wire::parse(bytes);
    ASSERT_TRUE(parsed);
    if (stand_in) {
      stand_in->handle_packet(*parsed, from_nic_, now);
    } else {
      qp->handle_packet(*parsed, from_nic_, now);
      run();
    }
  }
  void nic_gets(const Bytes& packet) {
    ASSERT_FALSE(out_.empty()) << "nothing was sent";
    EXPECT_EQ(out_.front(), packet + icrc(us_, nic_, packet));
    out_.pop_front();
  }
  void nic_gets_nothing() { EXPECT_TRUE(out_.empty()); }

  // The program's move: its address, MAC and QPN move along.
  void stop() {
    qp->stop(now);
    stand_in.emplace([this](const port::Endpoint& to, const wire::Header& header,
                            std::span<const std::byte> payload) {
      Datagram datagram{us_, to, {}};
      datagram.bytes.resize(wire::packet_size(header.opcode, payload.size()));
      wire::encode_header(header, payload.size(), datagram.bytes);
      host.send(datagram);
    });
    ASSERT_TRUE(stand_in->add(qp->stand_in_entry(us_.address), now));
    nic_gets_nothing();
  }
  void goes_on_elsewhere() {
    std::vector<std::byte> image;
    wire::ByteWriter out(&image);
    qp->save(out);
    qp = make();
    wire::ByteReader in(image);
    ASSERT_TRUE(qp->load(in));
    stand_in.reset();
    now += milliseconds_away;
    qp->resume(kQpn, false, now);
    run();
  }

  void post_receive(std::uint64_t wr_id) {
    ReceiveRequest receive;
    receive.wr_id = wr_id;
    receive.sges = {{0x8000, 64, kLkey}};
    host.post_receive(receive);
  }
  void post(Operation operation, std::uint64_t wr_id, std::uint32_t length, std::uint64_t add = 0) {
    const Sge sge{0, length, kLkey};
    SendRequest request;
    request.wr_id = wr_id;
    request.operation = operation;
    request.signaled = true;
    request.remote_address = 0x1000;
    request.rkey = kRkey;
    request.length = length;
    request.sge_count = 1;
    request.sges = &sge;
    request.compare_add = add;
    ASSERT_EQ(qp->post_send(request), 0);
    run();
  }
  void completed(std::uint64_t wr_id) {
    ASSERT_EQ(host.sent.size(), 1u);
    EXPECT_EQ(host.sent.front().wr_id, wr_id);
    EXPECT_EQ(host.sent.front().status, Status::kSuccess);
    host.sent.clear();
  }
  void received(std::uint64_t wr_id) {
    ASSERT_EQ(host.received.size(), 1u);
    EXPECT_EQ(host.received.front().wr_id, wr_id);
    EXPECT_EQ(host.received.front().status, Status::kSuccess);
    host.received.clear();
  }
  Bytes memory(std::uint64_t address, std::size_t length) {
    Bytes bytes;
    for (const std::byte byte : host.memory().subspan(address, length)) {
      bytes.push_back(std::to_integer<std::uint8_t>(byte));
    }
    return bytes;
  }
  std::uint64_t word(std::uint64_t address) {
    std::uint64_t value;
    std::memcpy(&value, host.memory().data() + address, sizeof value);
    return value;
  }
  void set_word(std::uint64_t address, std::uint64_t value) {
    std::memcpy(host.memory().data() + address, &value, sizeof value);
  }

  FakeHost host{0x10000};
  std::unique_ptr<Connection> qp;
  std::optional<StandIn> stand_in;
  Time now = std::chrono::seconds(1);
  Time milliseconds_away = std::chrono::milliseconds(200);

 private:
  port::Endpoint us_, nic_, from_nic_;
  std::deque<Bytes> out_;
};

const Bytes kAbcd = {'a', 'b', 'c', 'd'};

// --- The NIC as requester

TEST_P(StandardNic, WaitsAndSendsWhatItWasAskedFor) {
  post_receive(1), post_receive(2), post_receive(3);
  nic_sends(send_only(500, kAbcd));
  nic_gets(ack(500, 1));
  received(1);
  stop();
  nic_sends(send_only(501, kAbcd));
  nic_gets(rnr_nak(501, 0, 1));      // 655.36 ms
  nic_sends(send_only(502, kAbcd));  // it was under way already
  nic_gets_nothing();
  goes_on_elsewhere();
  nic_gets(ack(500, 1));
  nic_sends(send_only(501, kAbcd));
  nic_gets(ack(501, 2));
  received(2);
  nic_sends(send_only(502, kAbcd));
  nic_gets(ack(502, 3));
  received(3);
}

TEST_P(StandardNic, RepeatsWhatHadArrivedAndIsNotTakenTwice) {
  post_receive(1), post_receive(2);
  nic_sends(send_only(500, kAbcd));
  nic_gets(ack(500, 1));  // which the network loses
  received(1);
  stop();
  nic_sends(send_only(500, kAbcd));  // its timeout
  nic_gets(rnr_nak(500, 0, 1));  // not 501: the NIC would take 500 for acknowledged, which is true,
                                 // but asks what it has asked
  goes_on_elsewhere();
  nic_gets(ack(500, 1));
  nic_sends(send_only(500, kAbcd));
  nic_gets(ack(500, 1));
  EXPECT_TRUE(host.received.empty());
  nic_sends(send_only(501, kAbcd));
  nic_gets(ack(501, 2));
  received(2);
}

TEST_P(StandardNic, GoesOnInTheMiddleOfAMessage) {
  const Bytes full(256, 0x5A);
  nic_sends(bth(0x06, kQpn, 500) + reth(0x4000, 600) + full);  // WRITE First
  nic_gets_nothing();
  stop();
  nic_sends(bth(0x07, kQpn, 501) + full);
  nic_gets(rnr_nak(501, 0, 0));
  goes_on_elsewhere();
  nic_gets(ack(500, 0));
  nic_sends(bth(0x07, kQpn, 501) + full);
  nic_sends(bth(0x08, kQpn, 502, kAck) + Bytes(88, 0x66));
  nic_gets(ack(502, 1));
  EXPECT_EQ(memory(0x4000, 600), full + full + Bytes(88, 0x66));
}

TEST_P(StandardNic, ReadsAgainWhatItDidNotGet) {
  nic_sends(read_request(500, 0x4000, 300));
  const Bytes first = memory(0x4000, 256), last = memory(0x4100, 44);
  nic_gets(bth(0x0D, kNicQpn, 500) + aeth(0x1F, 1) + first);
  nic_gets(bth(0x0F, kNicQpn, 501) + aeth(0x1F, 1) + last);  // lost
  stop();
  nic_sends(read_request(501, 0x4100, 44));  // the rest (clause 9.7.5.1.2)
  nic_gets(rnr_nak(501, 0, 1));
  goes_on_elsewhere();
  nic_gets(ack(501, 1));
  nic_sends(read_request(501, 0x4100, 44));
  nic_gets(bth(0x10, kNicQpn, 501) + aeth(0x1F, 1) + last);
}

TEST_P(StandardNic, GetsTheResultOfAnAtomicThatWasCarriedOutBefore) {
  set_word(0x4000, 40);
  nic_sends(fetch_add(500, 0x4000, 2));
  nic_gets(atomic_ack(500, 1, 40));  // lost
  stop();
  nic_sends(fetch_add(500, 0x4000, 2));
  nic_gets(rnr_nak(500, 0, 1));
  EXPECT_EQ(word(0x4000), 42u);
  goes_on_elsewhere();
  nic_gets(ack(500, 1));
  nic_sends(fetch_add(500, 0x4000, 2));
  nic_gets(atomic_ack(500, 1, 40));
  EXPECT_EQ(word(0x4000), 42u);
}

TEST_P(StandardNic, IsAskedBackSoonWhenItIsKnownToWaitForEver) {
  qp->set_peer_retries({14, 7, 7, true});
  stop();
  nic_sends(send_only(500, kAbcd));
  nic_gets(rnr_nak(500, 22, 0));  // 20.48 ms
  goes_on_elsewhere();
}

// Its rnr_retry is 0: the first RNR NAK would end the connection. Its timeout repeats.
TEST_P(StandardNic, IsLeftInSilenceWhenItEnduresNoRnrNak) {
  qp->set_peer_retries({18, 7, 0, true});
  post_receive(1);
  stop();
  nic_sends(send_only(500, kAbcd));
  nic_sends(read_request(500, 0x4000, 8));
  nic_gets_nothing();
  goes_on_elsewhere();
  nic_sends(send_only(500, kAbcd));
  nic_gets(ack(500, 1));
  received(1);
}

// --- The NIC as responder

TEST_P(StandardNic, IsSentAgainWhatItDidNotAcknowledge) {
  post(Operation::kSend, 1, 4);
  const Bytes first = bth(0x04, kNicQpn, 100, kAck) + memory(0, 4);
  nic_gets(first);
  post(Operation::kSend, 2, 4);
  const Bytes second = bth(0x04, kNicQpn, 101, kAck) + memory(0, 4);
  nic_gets_nothing();  // credits are not known yet: one at a time (clause 9.7.7.2.5)
  nic_sends(acknowledge(100, 1));
  completed(1);
  nic_gets(second);
  stop();
  nic_sends(acknowledge(101, 2));  // too late: nobody hears it
  nic_gets_nothing();
  EXPECT_TRUE(host.sent.empty());
  goes_on_elsewhere();
  nic_gets(second);  // a duplicate to the NIC, which acknowledges it again
  nic_sends(acknowledge(101, 2));
  completed(2);
}

TEST_P(StandardNic, IsAskedAgainForWhatWasUnderWay) {
  post(Operation::kRead, 1, 300);
  const Bytes request = bth(0x0C, kNicQpn, 100) + reth(0x1000, 300);
  nic_gets(request);
  stop();
  nic_sends(bth(0x0D, kQpn, 100) + aeth(0x1F, 1) + Bytes(256, 1));
  nic_gets_nothing();
  goes_on_elsewhere();
  nic_gets(request);
  nic_sends(bth(0x0D, kQpn, 100) + aeth(0x1F, 1) + Bytes(256, 1));
  nic_sends(bth(0x0F, kQpn, 101) + aeth(0x1F, 1) + Bytes(44, 2));
  completed(1);
  EXPECT_EQ(memory(0, 300), Bytes(256, 1) + Bytes(44, 2));
}

// Under its old PSN, so that the NIC knows it for a duplicate and does not add twice.
TEST_P(StandardNic, KnowsARepeatedAtomicByItsPsn) {
  post(Operation::kFetchAdd, 1, 8, 5);
  const Bytes request = bth(0x14, kNicQpn, 100) + big_endian(0x1000, 8) + big_endian(kRkey, 4) +
                        big_endian(5, 8) + big_endian(0, 8);
  nic_gets(request);
  stop();
  goes_on_elsewhere();
  nic_gets(request);
  nic_sends(bth(0x12, kQpn, 100) + aeth(0x1F, 1) + big_endian(77, 8));
  completed(1);
  EXPECT_EQ(word(0), 77u);
}

// --- What it never gets: anything that is not in the specification.

TEST_P(StandardNic, HearsNothingOfAMoveItself) {
  nic_gets_nothing();  // no HELLO
  stop();              // no PAUSE
  // Messages of Ferry's kind are nothing to this QP either.
  nic_sends(bth(0xC0, kQpn, 499) + Bytes(80, 0));
  goes_on_elsewhere();  // no RESUME
  nic_sends(bth(0xC0, kQpn, 499) + Bytes(80, 0));
  nic_gets_nothing();
  EXPECT_EQ(qp->status().peer_class, PeerClass::kUnmodified);
  for (int i = 0; i < 100; ++i) {
    now += std::chrono::milliseconds(100);
    qp->handle_timeout(now);
    run();
  }
  nic_gets_nothing();
}

INSTANTIATE_TEST_SUITE_P(Ip, StandardNic, testing::Bool(),
                         [](const auto& ipv6) { return ipv6.param ? "V6" : "V4"; });

}  // namespace
}  // namespace ferry::transport::test
