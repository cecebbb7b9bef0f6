#include "transport/ud/datagram.h"

#include <gtest/gtest.h>

#include "port/slot.h"
#include "transport/migration/stand_in.h"
#include "transport/script.h"
#include "wire/grh.h"

// A UD QP, its RNIC's places, and what comes and goes, as packet traces.
namespace ferry::transport::test {
namespace {

constexpr std::uint32_t kQkey = 0x1111;
const port::Endpoint kOther = endpoint(3);

class UdHost final : public FakeHost {
 public:
  UdHost() : FakeHost(1 << 20) {}
  DatagramSource us{kUs.address, {kUs, kOurQpn}};
  bool place_towards(const port::Address& address, DatagramSource* out) const override {
    *out = us;
    return address.is_ipv4();
  }
  bool own_place(const port::Address& gid, std::uint32_t qpn, DatagramPlace* out) const override {
    *out = {us.place.endpoint, port::make_qpn(port::slot_of(us.place.wire_qpn), qpn)};
    return gid == us.gid && port::slot_of(qpn) == 0;
  }
};

class DatagramTest : public testing::Test {
 protected:
  void SetUp() override {
    host.local = kUs;
    host.send = [this](test::Datagram datagram) {
      const auto packet = wire::parse(datagram.bytes);
      ASSERT_TRUE(packet);
      out.push_back(
          {packet->header, {packet->payload.begin(), packet->payload.end()}, datagram.to});
    };
    std::uint64_t bits = 0x5000;
    host.random_bits = [bits]() mutable { return ++bits; };
    make();
    qp->init();
    qp->set_qkey(kQkey);
    qp->to_rtr({.mtu = 1024}, now);
    qp->to_rts({.next_psn = kOurPsn}, now);
  }
  void TearDown() override { EXPECT_TRUE(out.empty()) << out.size() << " packets left over"; }
  void make() {
    qp = std::make_unique<transport::Datagram>(
        host, table, QueueLimits{.max_send_wr = 16, .max_send_sge = 4, .max_inline = 64},
        MigrationSettings{}, kOurQpn);
  }
  void post(std::uint64_t wr_id, std::uint32_t length, const DatagramAddress& address,
            int expected = 0) {
    Request request = send(wr_id, length);
    request.request.sges = request.sges.data();
    request.request.sge_count = static_cast<std::uint8_t>(request.sges.size());
    request.request.datagram = &address;
    EXPECT_EQ(qp->post_send(request.request), expected);
    run();
  }
  DatagramAddress to_peer() const {
    return {.destination = kPeer.address, .qpn = kPeerQpn, .qkey = kQkey};
  }
  void run() {
    while (qp->has_work()) qp->transmit(now, 16);
  }
  void advance(Time by) {
    const Time end = now + by;
    while (qp->next_deadline() <= end) {
      now = qp->next_deadline();
      qp->handle_timeout(now);
      run();
    }
    now = end;
  }
  void post_receive(std::uint64_t wr_id, std::uint32_t length) {
    ReceiveRequest receive;
    receive.wr_id = wr_id;
    receive.sges = {{kReceive, length, kLkey}};
    host.post_receive(receive);
  }
  void inject(wire::Header header, std::size_t length, const port::Endpoint& from) {
    std::vector<std::byte> payload(length, std::byte{0x5A});
    header.dest_qpn = kOurQpn;
    qp->handle_packet({header, payload}, from, now);
    run();
  }
  void inject(const MigrationMessage& message, const port::Endpoint& from) {
    std::array<std::byte, wire::kMigrationPayload> payload;
    wire::encode(message, payload);
    wire::Header header;
    header.opcode = Opcode::kMigration;
    header.dest_qpn = kOurQpn;
    qp->handle_packet({header, payload}, from, now);
    run();
  }
  wire::Header plain(std::uint32_t qkey = kQkey) const {
    wire::Header header;
    header.opcode = Opcode::kUdSendOnly;
    header.deth = {qkey, kPeerQpn};
    return header;
  }
  wire::Header moved(std::uint32_t epoch) const {
    wire::Header header = plain();
    header.opcode = Opcode::kMovedSendOnly;
    header.deth.source_qpn = 0x4022;
    header.origin = {kPeer.address, kPeerQpn, epoch};
    return header;
  }
  Out next(Opcode opcode, const port::Endpoint& to) {
    if (out.empty()) {
      ADD_FAILURE() << "no packet";
      return {};
    }
    Out first = out.front();
    out.pop_front();
    EXPECT_EQ(int(first.header.opcode), int(opcode));
    EXPECT_TRUE(first.to == to);
    return first;
  }
  MigrationMessage next_message(MigrationType type, const port::Endpoint& to) {
    const auto message = wire::parse_migration(next(Opcode::kMigration, to).payload);
    EXPECT_TRUE(message && message->type == type);
    return message.value_or(MigrationMessage{});
  }
  void expect_sent(std::uint64_t wr_id, Status status = Status::kSuccess) {
    ASSERT_FALSE(host.sent.empty());
    EXPECT_EQ(host.sent.front().wr_id, wr_id);
    EXPECT_EQ(int(host.sent.front().status), int(status));
    host.sent.pop_front();
  }
  ReceiveCompletion received() {
    if (host.received.empty()) {
      ADD_FAILURE() << "nothing received";
      return {};
    }
    const ReceiveCompletion first = host.received.front();
    host.received.pop_front();
    return first;
  }
  void move_us() { host.us.place = {kOther, port::make_qpn(1, kOurQpn)}; }

  UdHost host;
  LocationTable table;
  std::unique_ptr<transport::Datagram> qp;
  std::deque<Out> out;
  Time now = seconds(100);
};

TEST_F(DatagramTest, OnePacketAndItsCompletion) {
  post(1, 100, to_peer());
  const Out packet = next(Opcode::kUdSendOnly, kPeer);
  EXPECT_EQ(packet.header.dest_qpn, kPeerQpn);
  EXPECT_EQ(packet.header.psn, kOurPsn);
  EXPECT_EQ(packet.header.deth.qkey, kQkey);
  EXPECT_EQ(packet.header.deth.source_qpn, kOurQpn);
  EXPECT_EQ(packet.payload.size(), 100u);
  expect_sent(1);
}

TEST_F(DatagramTest, BitThirtyOneOfTheQkeyMeansTheQpsOwn) {
  DatagramAddress address = to_peer();
  address.qkey = 0x80000000;
  post(1, 0, address);
  EXPECT_EQ(next(Opcode::kUdSendOnly, kPeer).header.deth.qkey, kQkey);
}

TEST_F(DatagramTest, TheMtuIsTheLimitAndOneMoreStopsTheSendQueue) {
  post(1, 1024, to_peer());
  EXPECT_EQ(next(Opcode::kUdSendOnly, kPeer).payload.size(), 1024u);
  expect_sent(1);
  post(2, 1025, to_peer());
  expect_sent(2, Status::kLocalLength);
  EXPECT_EQ(int(qp->state()), int(QpState::kSqe));
  post(3, 1, to_peer());
  expect_sent(3, Status::kFlush);
  post_receive(7, 100);
  inject(plain(), 8, kPeer);  // it still receives
  EXPECT_EQ(received().wr_id, 7u);
  qp->set_sqd(false);
  post(4, 1, to_peer());
  next(Opcode::kUdSendOnly, kPeer);
  expect_sent(4);
}

TEST_F(DatagramTest, TheGrhComesBeforeTheData) {
  post_receive(7, 140);
  inject(plain(), 100, kPeer);
  const ReceiveCompletion completion = received();
  EXPECT_EQ(completion.wr_id, 7u);
  EXPECT_EQ(completion.bytes, 140u);
  EXPECT_EQ(completion.source_qpn, kPeerQpn);
  EXPECT_TRUE(completion.has_grh);
  EXPECT_EQ(completion.service_level & 7, 2);
  const std::span<std::byte> memory = host.memory().subspan(kReceive);
  EXPECT_EQ(memory[20], std::byte{0x45});
  EXPECT_EQ(std::memcmp(&memory[32], kPeer.address.bytes.data() + 12, 4), 0);
  EXPECT_EQ(std::memcmp(&memory[36], kUs.address.bytes.data() + 12, 4), 0);
  EXPECT_EQ(memory[40], std::byte{0x5A});
  EXPECT_EQ(memory[139], std::byte{0x5A});
}

TEST_F(DatagramTest, ABufferOneByteTooShortFailsTheQp) {
  post_receive(7, 139);
  inject(plain(), 100, kPeer);
  EXPECT_EQ(int(received().status), int(Status::kLocalLength));
  EXPECT_EQ(int(qp->state()), int(QpState::kError));
}

TEST_F(DatagramTest, WhatIsNotForUsIsDropped) {
  post_receive(7, 1000);
  inject(plain(kQkey + 1), 8, kPeer);
  wire::Header partition = plain();
  partition.pkey = 0x1234;
  inject(partition, 8, kPeer);
  wire::Header other = plain();
  other.opcode = Opcode::kRcSendOnly;
  inject(other, 8, kPeer);
  EXPECT_TRUE(host.received.empty());
  EXPECT_EQ(qp->status().counters.dropped_qkey, 1u);
  inject(plain(), 8, kPeer);
  EXPECT_EQ(received().wr_id, 7u);
  inject(plain(), 8, kPeer);  // no receive WQE
  EXPECT_EQ(qp->status().counters.dropped_messages, 1u);
}

TEST_F(DatagramTest, MulticastGoesToTheGroupAndComesFromIt) {
  const port::Address group = port::Address::from_ipv4(0xEF010203);
  post(1, 10, {.destination = group, .qpn = 0xFFFFFF, .qkey = kQkey});
  EXPECT_EQ(next(Opcode::kUdSendOnly, {group, 4791}).header.dest_qpn, 0xFFFFFFu);
  EXPECT_EQ(host.hop_limit, 1);  // an address handle that names none
  post(2, 10, {.destination = group, .qpn = 0xFFFFFF, .qkey = kQkey, .hop_limit = 9});
  next(Opcode::kUdSendOnly, {group, 4791});
  EXPECT_EQ(host.hop_limit, 9);
  post_receive(7, 100);
  wire::Header header = plain();
  header.dest_qpn = 0xFFFFFF;
  qp->handle_multicast({header, {}}, kPeer, group, now);
  EXPECT_EQ(received().bytes, 40u);
  EXPECT_EQ(std::memcmp(&host.memory()[kReceive + 36], group.bytes.data() + 12, 4), 0);
}

// --- Moves --------------------------------------------------------------------------------------

TEST_F(DatagramTest, AMovedQpAsksOnceAndThenSaysWhoItIs) {
  move_us();
  post(1, 10, to_peer());
  post(2, 10, to_peer());
  const MigrationMessage locate = next_message(MigrationType::kLocate, kPeer);
  EXPECT_TRUE(host.sent.empty());  // both wait
  inject({.type = MigrationType::kMoved,
          .source_qpn = kPeerQpn,
          .echo = locate.cookie,
          .wire_qpn = kPeerQpn,
          .location = kPeer},
         kPeer);
  for (int i = 0; i < 2; ++i) {
    const Out packet = next(Opcode::kMovedSendOnly, kPeer);
    EXPECT_TRUE(packet.header.origin.gid == kUs.address);
    EXPECT_EQ(packet.header.origin.qpn, kOurQpn);
  }
  expect_sent(1);
  expect_sent(2);
}

TEST_F(DatagramTest, AnUnmodifiedPeerGetsPlainDatagramsFromAMovedQp) {
  move_us();
  post(1, 10, to_peer());
  advance(milliseconds(200));
  while (out.size() > 1) next_message(MigrationType::kLocate, kPeer);
  EXPECT_EQ(next(Opcode::kUdSendOnly, kPeer).header.deth.source_qpn, port::make_qpn(1, kOurQpn));
  post(2, 10, to_peer());  // known now
  next(Opcode::kUdSendOnly, kPeer);
}

TEST_F(DatagramTest, LocateIsAnswered) {
  inject({.type = MigrationType::kLocate, .cookie = 77, .wire_qpn = 0x4022}, kPeer);
  const MigrationMessage moved = next_message(MigrationType::kMoved, kPeer);
  EXPECT_EQ(moved.echo, 77u);
  EXPECT_EQ(moved.wire_qpn, kOurQpn);
  EXPECT_TRUE(moved.location == kUs);
}

TEST_F(DatagramTest, AMovedSenderKeepsItsNameAndIsBelievedOnlyByItsOldPlace) {
  post_receive(7, 100);
  inject(moved(1), 10, kOther);
  EXPECT_EQ(received().source_qpn, kPeerQpn);
  EXPECT_EQ(std::memcmp(&host.memory()[kReceive + 32], kPeer.address.bytes.data() + 12, 4), 0);
  const MigrationMessage locate = next_message(MigrationType::kLocate, kPeer);
  post(1, 10, to_peer());
  next(Opcode::kUdSendOnly, kPeer);  // not yet believed
  MigrationMessage answer{.type = MigrationType::kMoved,
                          .source_qpn = kPeerQpn,
                          .epoch = 1,
                          .echo = locate.cookie,
                          .wire_qpn = 0x4022,
                          .location = kOther};
  inject(answer, kOther);  // from elsewhere than it was asked
  answer.echo ^= 1;
  inject(answer, kPeer);  // with another nonce
  post(2, 10, to_peer());
  next(Opcode::kUdSendOnly, kPeer);
  answer.echo ^= 1;
  inject(answer, kPeer);
  post(3, 10, to_peer());
  EXPECT_EQ(next(Opcode::kUdSendOnly, kOther).header.dest_qpn, 0x4022u);
  inject(moved(1), 10, kOther);  // known: nothing is asked
}

TEST_F(DatagramTest, AHintIsAskedAboutAndNotBelieved) {
  const MigrationMessage hint{
      .type = MigrationType::kMoved, .source_qpn = kPeerQpn, .epoch = 9, .location = kPeer};
  post(1, 10, to_peer());
  next(Opcode::kUdSendOnly, kPeer);
  inject(hint, kPeer);
  next_message(MigrationType::kLocate, kPeer);
  inject(hint, kPeer);  // it is being asked
  post(2, 10, to_peer());
  next(Opcode::kUdSendOnly, kPeer);
}

// Nobody makes us ask at an address of his choice, nor take up all questions.
TEST_F(DatagramTest, AHintOfOneWhomWeDidNotSendToIsDropped) {
  MigrationMessage hint{
      .type = MigrationType::kMoved, .source_qpn = kPeerQpn, .epoch = 9, .location = kPeer};
  inject(hint, kPeer);  // from there, as the packet says: but we have sent nothing there
  post(1, 10, to_peer());
  next(Opcode::kUdSendOnly, kPeer);
  inject(hint, kOther);
  for (std::uint32_t i = 0; i < 40; ++i) {
    hint.source_qpn = kPeerQpn + 1 + i;
    inject(hint, kPeer);
  }
  EXPECT_TRUE(out.empty());
  EXPECT_EQ(qp->status().counters.dropped_forged, 42u);
}

TEST_F(DatagramTest, StoppedItOnlyQueues) {
  qp->stop(now);
  post(1, 10, to_peer());
  post_receive(7, 100);
  inject(plain(), 8, kPeer);
  EXPECT_TRUE(host.received.empty());
  qp->resume(0, false, now);
  run();
  next(Opcode::kUdSendOnly, kPeer);
  expect_sent(1);
}

TEST_F(DatagramTest, ARecordBringsBackQueueAndState) {
  qp->stop(now);
  post(1, 10, to_peer());
  std::vector<std::byte> record;
  wire::ByteWriter writer(&record);
  qp->save(writer);
  for (std::size_t size = 0; size < record.size(); ++size) {
    make();
    wire::ByteReader cut(std::span<const std::byte>(record).first(size));
    EXPECT_FALSE(qp->load(cut)) << size;
  }
  make();
  wire::ByteReader reader(record);
  ASSERT_TRUE(qp->load(reader));
  EXPECT_EQ(reader.remaining(), 0u);
  move_us();
  qp->resume(0, false, now);
  run();
  EXPECT_EQ(qp->status().epoch, 1u);
  next_message(MigrationType::kLocate, kPeer);  // it has moved
  post_receive(7, 100);
  inject(plain(), 8, kPeer);
  EXPECT_EQ(received().wr_id, 7u);
}

// --- Its stand-in -------------------------------------------------------------------------------

class UdStandInTest : public DatagramTest {
 protected:
  void stand_in() {
    qp->stop(now);
    ASSERT_TRUE(keeper.add(qp->stand_in_entry(kUs.address), now));
  }
  void give(wire::Header header, const port::Endpoint& from) {
    header.dest_qpn = kOurQpn;
    keeper.handle_packet({header, {}}, from, now);
  }
  void give(const MigrationMessage& message, const port::Endpoint& from) {
    std::array<std::byte, wire::kMigrationPayload> payload;
    wire::encode(message, payload);
    wire::Header header;
    header.opcode = Opcode::kMigration;
    header.dest_qpn = kOurQpn;
    keeper.handle_packet({header, payload}, from, now);
  }
  StandIn keeper{[this](const port::Endpoint& to, const wire::Header& header,
                        std::span<const std::byte> payload) {
    out.push_back({header, {payload.begin(), payload.end()}, to});
  }};
};

TEST_F(UdStandInTest, LosesDatagramsBeforeTheCommit) {
  stand_in();
  give(plain(), kPeer);
  EXPECT_EQ(keeper.counters().dropped, 1u);
  give({.type = MigrationType::kLocate, .cookie = 5, .wire_qpn = 9}, kPeer);
  EXPECT_TRUE(next_message(MigrationType::kMoved, kPeer).location == kUs);
}

TEST_F(UdStandInTest, ForwardsAfterTheCommitAndHints) {
  stand_in();
  keeper.committed(kOther, 3, 1, now);
  give(plain(), kPeer);
  const Out packet = next(Opcode::kMovedSendOnly, kOther);
  EXPECT_EQ(packet.header.dest_qpn, port::make_qpn(3, kOurQpn));
  EXPECT_TRUE(packet.header.origin.gid == kPeer.address);
  EXPECT_EQ(packet.header.origin.qpn, kPeerQpn);
  EXPECT_EQ(packet.header.origin.epoch, 0u);
  EXPECT_EQ(packet.header.deth.qkey, kQkey);
  const MigrationMessage hint = next_message(MigrationType::kMoved, kPeer);
  EXPECT_EQ(hint.echo, 0u);
  EXPECT_TRUE(hint.location.address == kUs.address);
  give(plain(), kPeer);  // no second hint so soon
  next(Opcode::kMovedSendOnly, kOther);
  give(moved(4), kOther);  // of a sender that has moved: its name goes along
  EXPECT_EQ(next(Opcode::kMovedSendOnly, kOther).header.origin.epoch, 4u);
  next_message(MigrationType::kMoved, kOther);
  give({.type = MigrationType::kLocate, .cookie = 5, .wire_qpn = 9}, kPeer);
  const MigrationMessage answer = next_message(MigrationType::kMoved, kPeer);
  EXPECT_EQ(answer.echo, 5u);
  EXPECT_EQ(answer.epoch, 1u);
  EXPECT_TRUE(answer.location == kOther);
  EXPECT_EQ(answer.wire_qpn, port::make_qpn(3, kOurQpn));
}

TEST_F(UdStandInTest, TakesNoMalformedEntry) {
  stand_in();
  auto entry = qp->stand_in_entry(kUs.address);
  StandIn other([](auto&&...) {});
  for (std::size_t size = 0; size < entry.size(); ++size) {
    EXPECT_FALSE(other.add(std::span<const std::byte>(entry).first(size), now)) << size;
  }
  EXPECT_TRUE(other.add(entry, now));
}

// --- The table ----------------------------------------------------------------------------------

TEST(LocationTableTest, WhoIsNotKnownIsWhereTheNameSays) {
  LocationTable table;
  const auto found = table.find({kPeer.address, port::make_qpn(2, 5)}, seconds(1));
  EXPECT_EQ(found.place.endpoint.udp_port, 61442);
  EXPECT_EQ(int(found.peer_class), int(PeerClass::kUnknown));
}

TEST(LocationTableTest, OlderAnswersChangeNothing) {
  LocationTable table;
  const DatagramName name{kPeer.address, kPeerQpn};
  table.learn(name, {kOther, 7}, 2, seconds(1));
  table.learn(name, {kUs, 8}, 1, seconds(1));
  EXPECT_TRUE(table.find(name, seconds(1)).place.endpoint == kOther);
  table.unanswered(name, seconds(2));
  EXPECT_TRUE(table.find(name, seconds(2)).place == place_of_name(name));
  EXPECT_EQ(int(table.find(name, seconds(2)).peer_class), int(PeerClass::kFerry));
}

TEST(LocationTableTest, AnAnswerGrowsStale) {
  LocationTable table;
  const DatagramName name{kPeer.address, kPeerQpn};
  table.learn(name, {kOther, 7}, 2, seconds(1));
  EXPECT_FALSE(table.find(name, seconds(1) + LocationTable::kConfirmed).stale);
  EXPECT_TRUE(table.find(name, seconds(2) + LocationTable::kConfirmed).stale);
}

TEST(LocationTableTest, TheLimitDropsTheLongestUnused) {
  LocationTable table;
  for (std::uint32_t i = 0; i < LocationTable::kCapacity; ++i) {
    table.learn({kPeer.address, i}, {kOther, i}, 1, seconds(1) + Time(i));
  }
  EXPECT_EQ(table.size(), LocationTable::kCapacity);
  table.find({kPeer.address, 0}, seconds(2));  // used
  table.learn({kPeer.address, 1u << 20}, {kOther, 9}, 1, seconds(3));
  EXPECT_EQ(table.size(), LocationTable::kCapacity);
  EXPECT_EQ(table.epoch_of({kPeer.address, 0}), 1u);
  EXPECT_EQ(table.epoch_of({kPeer.address, 1}), 0u);
}

}  // namespace
}  // namespace ferry::transport::test
