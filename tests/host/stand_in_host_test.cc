#include "host/standin/stand_in_host.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>

#include "gsi/local.h"
#include "gsi/wire_socket.h"
#include "port/slot.h"
#include "port/udp_port.h"
#include "temporary.h"
#include "transport/connected/connection.h"
#include "transport/fake_host.h"
#include "transport/stopped.h"
#include "wire/bytes.h"
#include "wire/header.h"
#include "wire/icrc.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using transport::Connection;
using transport::MigrationState;
using transport::test::Datagram;
using transport::test::FakeHost;

transport::Time now() {
  return std::chrono::steady_clock::now().time_since_epoch();
}

// Loopback addresses of this process's own: tests run side by side.
port::Endpoint endpoint(int number, std::uint32_t slot) {
  const auto process = static_cast<std::uint32_t>(::getpid()) & 0xFFFF;
  return {
      port::Address::from_ipv4(0x7F400000 + (process << 4) + static_cast<std::uint32_t>(number)),
      port::udp_port_of_slot(slot)};
}

// A QP with a real UDP socket.
struct QpSide {
  QpSide(int number, std::uint32_t slot)
      : host(4096), qpn(port::make_qpn(slot, 100)), local(endpoint(number, slot)) {
    int error = 0;
    udp = port::UdpPort::bind(local.address, slot, &error);
    EXPECT_NE(udp, nullptr) << error;
    host.local = local;
    host.send = [this](Datagram datagram) {
      std::uint16_t identification = 0;
      const auto out = udp->reserve(datagram.to, datagram.bytes.size(), &identification);
      std::memcpy(out.data(), datagram.bytes.data(), out.size());
      wire::seal(out, local, datagram.to, identification);
    };
    host.random_bits = [this] { return bits += 0x9E3779B97F4A7C15; };
    connection = std::make_unique<Connection>(host, transport::QueueLimits{16, 4, 64},
                                              transport::MigrationSettings{}, qpn, qpn);
  }
  void connect(const QpSide& peer) {
    connection->init();
    transport::RtrAttributes rtr;
    rtr.peer = peer.local;
    rtr.peer_qpn = peer.qpn;
    connection->to_rtr(rtr, now());
    transport::RtsAttributes rts;
    rts.timeout = 14;
    rts.retry_count = 7;
    rts.rnr_retry = 7;
    connection->to_rts(rts, now());
  }
  void pump() {
    std::array<port::Received, 16> received;
    while (udp && udp->receive(received) > 0) {
      for (const auto& packet : received) {
        if (packet.bytes.empty()) break;
        EXPECT_TRUE(wire::verify(packet.bytes, packet.from, local, packet.ip_identification));
        if (const auto parsed = wire::parse(packet.bytes)) {
          connection->handle_packet(*parsed, packet.from, now());
        }
      }
      received = {};
    }
    if (connection->next_deadline() <= now()) connection->handle_timeout(now());
    while (connection->transmit(now(), 16) > 0) continue;
    if (udp) udp->flush();
  }
  void send() {
    transport::SendRequest request;
    request.signaled = true;
    request.operation = transport::Operation::kSend;
    EXPECT_EQ(connection->post_send(request), 0);
  }

  FakeHost host;
  std::uint64_t bits = static_cast<std::uint64_t>(::getpid());
  std::uint32_t qpn;
  port::Endpoint local;
  std::unique_ptr<port::UdpPort> udp;
  std::unique_ptr<Connection> connection;
};

// Pumps both until `done`, 3 s at most.
template <typename Done>
bool eventually(QpSide& a, QpSide& b, Done done) {
  for (const auto limit = now() + std::chrono::seconds(3); now() < limit;) {
    if (done()) return true;
    a.pump();
    b.pump();
    ::poll(nullptr, 0, 1);
  }
  return done();
}

struct StandInHostTest : testing::Test {
  explicit StandInHostTest(const port::Loss::Settings& faults = {}) : stand_ins(faults) {}
  StandInHost stand_ins;
  QpSide moving{1, 41}, peer{2, 42};

  // Connects, stops `moving` and gives its socket to a stand-in. Without PAUSE: the stand-in has to
  // tell.
  StandInId stop() {
    moving.connect(peer);
    peer.connect(moving);
    EXPECT_TRUE(eventually(moving, peer, [&] {
      return moving.connection->status().peer_class == transport::PeerClass::kFerry &&
             peer.connection->status().peer_class == transport::PeerClass::kFerry;
    }));
    const auto send = moving.host.send;
    moving.host.send = [](Datagram) {};
    moving.connection->stop(now());
    moving.connection->transmit(now(), 16);
    moving.host.send = send;
    rnic::Slot slot;
    slot.local = moving.local;
    slot.slot = 41;
    slot.entries.push_back(moving.connection->stand_in_entry({}));
    slot.descriptor = moving.udp->release();
    moving.udp.reset();
    return stand_ins.add(slot);
  }
  MigrationState state_of_peer() { return peer.connection->status().migration; }
};

TEST_F(StandInHostTest, PausesThePeerAndGivesTheSocketBack) {
  const StandInId id = stop();
  peer.send();
  EXPECT_TRUE(eventually(moving, peer, [&] { return state_of_peer() == MigrationState::kPaused; }));
  EXPECT_GE(stand_ins.counters(id).naks_sent, 1u);
  EXPECT_FALSE(stand_ins.expired(id));

  const rnic::Slot back = stand_ins.take_back(id);
  EXPECT_EQ(back.local, moving.local);
  EXPECT_EQ(back.slot, 41u);
  EXPECT_TRUE(stand_ins.expired(id));
  int error = 0;
  moving.udp = port::UdpPort::adopt(back.descriptor, &error);
  ASSERT_NE(moving.udp, nullptr);
  moving.host.post_receive({});
  moving.connection->receive_posted(now());
  moving.connection->resume(moving.qpn, true, now());
  EXPECT_TRUE(eventually(moving, peer, [&] { return !peer.host.sent.empty(); }));
  EXPECT_EQ(peer.host.sent.front().status, transport::Status::kSuccess);
}

struct MuteStandInHostTest : StandInHostTest {
  MuteStandInHostTest() : StandInHostTest({.sending = 1}) {}
};
struct DeafStandInHostTest : StandInHostTest {
  DeafStandInHostTest() : StandInHostTest({.receiving = 1}) {}
};

// Faults on demand: what it says is lost, and the socket that goes back has none of them.
TEST_F(MuteStandInHostTest, LosesItsAnswers) {
  const StandInId id = stop();
  peer.send();
  EXPECT_TRUE(eventually(moving, peer, [&] { return stand_ins.counters(id).naks_sent >= 1; }));
  EXPECT_GE(stand_ins.injected_losses(), 1u);
  EXPECT_EQ(state_of_peer(), MigrationState::kNone);
  const rnic::Slot back = stand_ins.take_back(id);
  int error = 0;
  moving.udp = port::UdpPort::adopt(back.descriptor, &error);
  ASSERT_NE(moving.udp, nullptr) << error;
  moving.connection->resume(moving.qpn, true, now());
  EXPECT_TRUE(
      eventually(moving, peer, [&] { return !moving.connection->status().resume_pending; }));
}

TEST_F(DeafStandInHostTest, LosesWhatReachesIt) {
  const StandInId id = stop();
  peer.send();
  EXPECT_TRUE(eventually(moving, peer, [&] { return stand_ins.injected_losses() >= 2; }));
  EXPECT_EQ(stand_ins.counters(id).packets, 0u);
  EXPECT_EQ(state_of_peer(), MigrationState::kNone);
}

TEST_F(StandInHostTest, TellsThePeerWhereItsQpHasGone) {
  const StandInId id = stop();
  const port::Endpoint there = endpoint(3, 44);
  stand_ins.committed(id, there, 44, 1);
  peer.send();
  EXPECT_TRUE(eventually(moving, peer, [&] { return peer.connection->status().peer == there; }));
  EXPECT_EQ(peer.connection->status().peer_wire_qpn, port::make_qpn(44, 100));
  EXPECT_EQ(peer.connection->status().peer_qpn, moving.qpn);
  EXPECT_GE(stand_ins.counters(id).moved_sent, 1u);
  stand_ins.remove(id);
  EXPECT_TRUE(stand_ins.expired(id));
}

TEST_F(StandInHostTest, DropsWhatIsDamaged) {
  const StandInId id = stop();
  const auto before = stand_ins.counters(id).packets;
  std::uint16_t identification = 0;
  for (const std::size_t length : {std::size_t{1}, std::size_t{15}, std::size_t{64}}) {
    const auto out = peer.udp->reserve(moving.local, length, &identification);
    std::fill(out.begin(), out.end(), std::byte{0xC0});
    peer.udp->flush();
  }
  peer.send();
  EXPECT_TRUE(eventually(moving, peer, [&] { return state_of_peer() == MigrationState::kPaused; }));
  EXPECT_LT(stand_ins.counters(id).packets, before + 3);
}

TEST_F(StandInHostTest, RefusesWhatItCannotServe) {
  rnic::Slot slot;
  slot.descriptor = ::dup(0);
  EXPECT_NE(test::failure_of([&] { stand_ins.add(slot); }), "");
  ::close(slot.descriptor);
  slot.local = moving.local;
  slot.slot = 41;
  slot.entries.push_back(std::vector<std::byte>(3));
  slot.descriptor = moving.udp->release();
  EXPECT_NE(test::failure_of([&] { stand_ins.add(slot); }).find("malformed"), std::string::npos);
  EXPECT_EQ(::close(slot.descriptor), 0);  // still ours
  EXPECT_EQ(stand_ins.take_back(12345).descriptor, -1);
}

// A standard peer sends to UDP port 4791 what is for a QP of another slot. Who has slot 0 may run
// on, be stopped, or be nobody: then ferryd holds the port.
TEST(StandInHost, PassesOnWhatIsForAnotherSlot) {
  const port::Endpoint here = endpoint(11, 45), nic = endpoint(12, 46);
  const std::uint32_t qpn = port::make_qpn(45, 100);
  transport::StoppedEnd stopped;
  stopped.virtual_qpn = stopped.wire_qpn = qpn;
  stopped.peer = {nic.address, port::kRoceUdpPort};
  stopped.peer_qpn = stopped.peer_wire_qpn = 0x000321;
  stopped.peer_class = transport::PeerClass::kUnmodified;
  stopped.gets_rnr_naks = true;
  stopped.rnr_timer = 1;
  stopped.expected_psn = 5;
  const auto bind = [](const port::Address& address, std::uint32_t slot) {
    int error = 0;
    const auto port = port::UdpPort::bind(address, slot, &error);
    EXPECT_NE(port, nullptr) << error;
    rnic::Slot result;
    result.local = port->local();
    result.slot = slot;
    result.descriptor = port->release();
    return result;
  };
  rnic::Slot slot = bind(here.address, 45);
  wire::ByteWriter out(&slot.entries.emplace_back());
  stopped.save(out);
  StandInHost host;
  const StandInId id = host.add(slot);
  EXPECT_TRUE(host.meets_strangers(id));
  const StandInId holder = host.add(bind(here.address, 0));
  EXPECT_FALSE(host.meets_strangers(holder));

  int error = 0;
  const auto port = port::UdpPort::bind(nic.address, 0, &error);
  ASSERT_NE(port, nullptr) << error;
  wire::Header header;
  header.opcode = wire::Opcode::kRcSendOnly;
  header.dest_qpn = qpn;
  header.psn = 5;
  header.ack_request = true;
  const port::Endpoint roce{here.address, port::kRoceUdpPort};
  std::uint16_t identification = 0;
  const auto bytes = port->reserve(roce, wire::packet_size(header.opcode, 0), &identification);
  wire::encode_header(header, 0, bytes);
  wire::seal(bytes, port->local(), roce, identification);
  port->flush();

  pollfd arrived{port->descriptor(), POLLIN, 0};
  ASSERT_EQ(::poll(&arrived, 1, 20000), 1);
  std::array<port::Received, 4> received;
  ASSERT_EQ(port->receive(received), 1u);
  EXPECT_EQ(received[0].from, here);
  const auto answer = wire::parse(received[0].bytes);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.dest_qpn, 0x000321u);
  EXPECT_EQ(answer->header.psn, 5u);
  EXPECT_EQ(answer->header.aeth.syndrome, wire::syndrome::kRnrNak | 1);
  EXPECT_EQ(host.counters(id).rnr_naks_sent, 1u);
}

// A process that moved away leaves the port of QP 1 behind: what others of its host are meant by
// still reaches them.
TEST(StandInHost, PassesMessagesForQp1On) {
  const port::Endpoint here = endpoint(9, 0), peer = endpoint(10, 0);
  int error = 0;
  rnic::Slot slot;
  slot.local = here;
  slot.slot = 0;
  auto port = port::UdpPort::bind(here.address, 0, &error);
  ASSERT_NE(port, nullptr) << error;
  slot.descriptor = port->release();
  cm::Req req;
  req.service_id = 0xFD00000000000000u | static_cast<unsigned>(::getpid());
  const int receiver = gsi::open_receiver(gsi::listener_name(here.address, req.service_id), &error);
  ASSERT_GE(receiver, 0) << error;
  StandInHost host;
  const StandInId id = host.add(slot);
  auto wire = gsi::WireSocket::open(peer.address, &error);
  ASSERT_TRUE(wire) << error;
  wire->send(cm::encode({1, req}), here.address);
  pollfd arrived{receiver, POLLIN, 0};
  EXPECT_EQ(::poll(&arrived, 1, 20000), 1);
  const auto datagram = gsi::receive(receiver);
  ASSERT_TRUE(datagram);
  EXPECT_EQ(datagram->from, peer.address);
  EXPECT_EQ(datagram->to, here.address);
  ::close(receiver);
  host.remove(id);
}

}  // namespace
}  // namespace ferry::host
