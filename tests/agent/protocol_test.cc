#include "agent/protocol.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <thread>

namespace ferry::agent {
namespace {

device::Parcel parcel(std::size_t descriptors, std::size_t bytes) {
  return {device::Kind::kFerry, std::vector<int>(descriptors, 7),
          std::vector<std::byte>(bytes, std::byte{0x5a})};
}

Stopped full_stopped() {
  Stopped m;
  m.move_id = 0x1122334455667788;
  m.prepare_ns = 1, m.suspend_ns = 2, m.detach_ns = 3, m.qps = 4, m.unacked_psns = 5;
  m.contexts = {{"rdma0", parcel(2, 30)}, {"", {}}, {"rdma1", parcel(1, 7)}};
  return m;
}

StatusReply full_status() {
  StatusReply m;
  device::QpStatus qp;
  qp.qpn = 0x4001, qp.peer_qpn = 0x17, qp.type = 2, qp.state = 3, qp.migration = 1,
  qp.peer_class = 2;
  qp.local = {port::Address::from_ipv4(1), 4791};
  qp.peer = {port::Address::from_ipv4(2), 61441};
  qp.peer_retries = {18, 5, 6, 1};
  qp.resume_pending = 1, qp.retransmitted_packets = 1ull << 40, qp.last_pause_ns = ~0ull;
  m.contexts = {{"ferry0", "rdma0", {qp, qp}}, {"ferry1", "rdma1", {}}};
  return m;
}

TEST(Protocol, BodiesComeBackAsTheyWere) {
  Stopped stopped;
  ASSERT_TRUE(parse(encode(full_stopped()), &stopped));
  EXPECT_EQ(stopped.move_id, 0x1122334455667788u);
  EXPECT_EQ(stopped.unacked_psns, 5u);
  ASSERT_EQ(stopped.contexts.size(), 3u);
  EXPECT_EQ(stopped.contexts[0].netdev, "rdma0");
  EXPECT_EQ(stopped.contexts[0].parcel.kind, device::Kind::kFerry);
  EXPECT_EQ(stopped.contexts[0].parcel.bytes, parcel(2, 30).bytes);
  EXPECT_EQ(stopped.contexts[0].parcel.descriptors, (std::vector{-1, -1}));  // they come beside it
  EXPECT_EQ(stopped.contexts[2].parcel.bytes, parcel(1, 7).bytes);
  EXPECT_EQ(stopped.contexts[2].parcel.descriptors, (std::vector{-1}));

  StatusReply status;
  ASSERT_TRUE(parse(encode(full_status()), &status));
  ASSERT_EQ(status.contexts[0].qps.size(), 2u);
  const device::QpStatus& qp = status.contexts[0].qps[1];
  EXPECT_EQ(qp.qpn, 0x4001u);
  EXPECT_EQ(qp.peer.udp_port, 61441);
  EXPECT_EQ(qp.retransmitted_packets, 1ull << 40);
  EXPECT_EQ(qp.last_pause_ns, ~0ull);
  EXPECT_EQ(qp.peer_retries.timeout, 18);
  EXPECT_EQ(qp.peer_retries.retry_count, 5);
  EXPECT_EQ(qp.peer_retries.rnr_retry, 6);
  EXPECT_EQ(qp.peer_retries.known, 1);

  StatusReply with_rdma_cm = full_status();
  const RdmaCmBound bound{0x106, {port::Address::from_ipv4(7), 7174}, true, false};
  with_rdma_cm.rdma_cm = {2, "a group", "a connection", {bound}};
  ASSERT_TRUE(parse(encode(with_rdma_cm), &status));
  EXPECT_EQ(status.rdma_cm.channels, 2u);
  EXPECT_EQ(status.rdma_cm.obstacle, "a group");
  EXPECT_EQ(status.rdma_cm.half_made, "a connection");
  EXPECT_EQ(status.rdma_cm.bound, std::vector{bound});

  Resume resume;
  ASSERT_TRUE(parse(encode(Resume{true, full_stopped().contexts}), &resume));
  EXPECT_TRUE(resume.rollback);
  Awake awake;
  ASSERT_TRUE(parse(encode(Awake{9, {3, "abcdef", 0xdeadbeef}}), &awake));
  EXPECT_EQ(awake.registration.build, "abcdef");
  EXPECT_EQ(awake.registration.control_block, 0xdeadbeefu);
  PeersKnow know;
  ASSERT_TRUE(parse(encode(PeersKnow{9, 2, {1, 2, 3}, 77}), &know));
  EXPECT_EQ(know.qpns, (std::vector<std::uint32_t>{1, 2, 3}));
  Action action;
  ASSERT_TRUE(parse(encode(Action{"post-restore", -4, 8}), &action));
  EXPECT_EQ(action.name, "post-restore");
  EXPECT_EQ(action.pid, -4);
  Done done;
  ASSERT_TRUE(parse(encode(Done{-1, "no", "a note"}), &done));
  EXPECT_EQ(done.note, "a note");
  Claim claim;
  ASSERT_TRUE(parse(encode(Claim{"its note"}), &claim));
  EXPECT_EQ(claim.note, "its note");
  EXPECT_EQ(done.error, "no");
  Resumed resumed;
  ASSERT_TRUE(parse(encode(Resumed{9, 5, 6, 7}), &resumed));
  EXPECT_EQ(resumed.error, 5);
  EXPECT_EQ(resumed.resume_ns, 7u);
}

template <typename T>
void truncated_is_refused(const T& message) {
  const auto body = encode(message);
  T out;
  ASSERT_TRUE(parse(body, &out));
  for (std::size_t n = 0; n < body.size(); ++n)
    EXPECT_FALSE(parse(std::span(body).first(n), &out)) << n;
  auto longer = body;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(parse(longer, &out));
}

TEST(Protocol, MoreDescriptorsThanAMessageCanHaveAreRefused) {
  Resume most, out;
  for (int i = 0; i < 11; ++i) most.contexts.push_back({"rdma0", parcel(93, 0)});
  EXPECT_TRUE(parse(encode(most), &out));  // 1,023
  most.contexts.push_back({"rdma0", parcel(1, 0)});
  EXPECT_FALSE(parse(encode(most), &out));
}

const device::Letter kLetter{{port::Address::from_ipv4(1), 17},
                             {port::Address::from_ipv4(2), 18},
                             {std::byte{1}, std::byte{2}}};

TEST(Protocol, OfADeviceOfTheKernel) {
  Resume resume;
  const device::Parcel rxe0{device::Kind::kVirtual, {}, {std::byte{'r'}, std::byte{'0'}}};
  ASSERT_TRUE(parse(encode(Resume{false, {{"eth0", rxe0, {kLetter.from}}}}), &resume));
  EXPECT_EQ(resume.contexts[0].parcel.kind, device::Kind::kVirtual);
  EXPECT_EQ(resume.contexts[0].parcel.bytes, rxe0.bytes);
  EXPECT_EQ(resume.contexts[0].names, (std::vector<device::Letter::End>{kLetter.from}));
  StatusReply status;
  ASSERT_TRUE(parse(encode(StatusReply{{{"rxe0", "eth0", {}, rxe0, {}, "an SRQ"}}}), &status));
  EXPECT_EQ(status.contexts[0].place.kind, device::Kind::kVirtual);
  EXPECT_EQ(status.contexts[0].place.bytes, rxe0.bytes);
  EXPECT_EQ(status.contexts[0].obstacle, "an SRQ");
  Letters letters;
  ASSERT_TRUE(parse(encode(Letters{{kLetter}}), &letters));
  EXPECT_EQ(letters.letters[0].to, kLetter.to);
  EXPECT_EQ(letters.letters[0].bytes, kLetter.bytes);
}

TEST(Protocol, TruncatedAndTooLongBodiesAreRefused) {
  truncated_is_refused(full_stopped());
  truncated_is_refused(full_status());
  truncated_is_refused(Resume{false, full_stopped().contexts});
  truncated_is_refused(Awake{1, {1, "b", 2}});
  truncated_is_refused(PeersKnow{1, 2, {3}, 4});
  truncated_is_refused(Stop{1, 2});
  truncated_is_refused(Suspend{1, 2, true});
  truncated_is_refused(Suspending{1, true});
  truncated_is_refused(Letters{{kLetter}});
  truncated_is_refused(Delivered{{0, -1}});
  const device::DatagramQps qps{{{port::Address::from_ipv4(1), port::Address::from_ipv4(2)}},
                                {{3, 4}}};
  truncated_is_refused(device::MovedNames{{port::Address::from_ipv4(1)}, {qps}});
  truncated_is_refused(DatagramQps{{qps}});
  truncated_is_refused(Resume{false, {{"eth0", parcel(1, 3), {kLetter.from}}}});
  truncated_is_refused(Stay{1});
  truncated_is_refused(PauseTree{1});
  truncated_is_refused(Action{"x", 1, 2});
  truncated_is_refused(Done{1, "x", "y"});
  truncated_is_refused(Claim{"x"});
  truncated_is_refused(RestoreFailed{"x"});
  truncated_is_refused(Restored{"x", 7, true});
}

TEST(Protocol, ACountThatTheBodyCannotHoldClaimsNoMemory) {
  wire::ByteWriter* writer;
  std::vector<std::byte> body;
  wire::ByteWriter w(&body);
  writer = &w;
  writer->put(std::uint32_t{0xffffffff});
  StatusReply status;
  EXPECT_FALSE(parse(body, &status));
  EXPECT_LT(status.contexts.capacity(), 16u);
}

TEST(Protocol, GarbageNeverCrashes) {
  std::mt19937 random(7);
  const auto good = encode(full_stopped());
  for (int i = 0; i < 20000; ++i) {
    auto body = good;
    for (int k = 0; k < 1 + i % 8; ++k)
      body[random() % body.size()] = static_cast<std::byte>(random());
    body.resize(random() % (body.size() + 1));
    Stopped stopped;
    StatusReply status;
    Resume resume;
    PeersKnow know;
    parse(body, &stopped), parse(body, &status), parse(body, &resume), parse(body, &know);
  }
}

struct Stream : ::testing::Test {
  int ends[2];
  void SetUp() override {
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  }
  void TearDown() override {
    ::close(ends[0]);
    if (ends[1] >= 0) ::close(ends[1]);
  }
};

TEST_F(Stream, MessagesCarryDescriptors) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const std::vector<int> sent(3, pipe_ends[1]);
  ASSERT_EQ(send_message(ends[0], MessageType::kStopped, encode(full_stopped()), sent), 0);
  ASSERT_EQ(send_message(ends[0], MessageType::kStay, encode(Stay{5})), 0);
  Message first, second;
  ASSERT_EQ(receive_message(ends[1], &first, 1000), 0);
  EXPECT_EQ(first.type, MessageType::kStopped);
  ASSERT_EQ(first.descriptors.size(), 3u);
  EXPECT_EQ(::fcntl(first.descriptors[2], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  Stopped stopped;
  ASSERT_TRUE(parse(first.body, &stopped));
  ASSERT_TRUE(give_descriptors(&first.descriptors, &stopped.contexts));
  EXPECT_TRUE(first.descriptors.empty());
  EXPECT_EQ(::write(stopped.contexts[2].parcel.descriptors[0], "x", 1), 1);
  auto back = descriptors_of(stopped.contexts);
  EXPECT_EQ(back.size(), 3u);
  close_descriptors(&back);
  ASSERT_EQ(receive_message(ends[1], &second, 1000), 0);
  EXPECT_EQ(second.type, MessageType::kStay);
  EXPECT_TRUE(second.descriptors.empty());
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

TEST_F(Stream, MoreDescriptorsThanOneCallTakes) {
  std::vector<int> sent(600, ends[0]);
  Message message;
  std::thread sender([&] { EXPECT_EQ(send_message(ends[0], MessageType::kResume, {}, sent), 0); });
  ASSERT_EQ(receive_message(ends[1], &message, 1000), 0);
  sender.join();
  EXPECT_EQ(message.descriptors.size(), 600u);
  close_descriptors(&message.descriptors);
  EXPECT_EQ(send_message(ends[0], MessageType::kResume, {}, std::vector<int>(2000, ends[0])),
            E2BIG);
}

TEST_F(Stream, DescriptorsThatDoNotMatchTheParcelsAreNotGiven) {
  auto contexts = full_stopped().contexts;
  std::vector<int> two = {10, 11};
  EXPECT_FALSE(give_descriptors(&two, &contexts));
  EXPECT_EQ(two.size(), 2u);
}

TEST_F(Stream, LargeBodiesPass) {
  StatusReply status;
  status.contexts.push_back({"ferry0", "rdma0", std::vector<device::QpStatus>(20000)});
  const auto body = encode(status);
  Message message;
  std::thread sender([&] { EXPECT_EQ(send_message(ends[0], MessageType::kStatusReply, body), 0); });
  ASSERT_EQ(receive_message(ends[1], &message, 2000), 0);
  sender.join();
  EXPECT_EQ(message.body, body);
}

TEST_F(Stream, ErrorsOfTheStream) {
  Message message;
  EXPECT_EQ(receive_message(ends[1], &message, 10), ETIMEDOUT);
  ASSERT_EQ(::write(ends[0], "GET / HTTP/1.0\r\n\r\n", 18), 18);
  EXPECT_EQ(receive_message(ends[1], &message, 100), EPROTO);
  ::close(ends[1]);
  ends[1] = -1;
  EXPECT_EQ(send_message(ends[0], MessageType::kStay, encode(Stay{1})), EPIPE);
}

TEST_F(Stream, TheEndOfTheStreamAndTooLongBodies) {
  struct {
    std::uint32_t magic = kMagic;
    std::uint16_t version = kVersion, type = 1;
    std::uint32_t length = kMaxBody + 1;
  } header;
  ASSERT_EQ(::write(ends[0], &header, 12), 12);
  Message message;
  EXPECT_EQ(receive_message(ends[1], &message, 100), EPROTO);
  ::shutdown(ends[0], SHUT_WR);
  EXPECT_EQ(receive_message(ends[1], &message, 100), EPIPE);
}

TEST(Connect, FollowsTheVariable) {
  ::setenv(kSocketVariable, "/nonexistent/ferryd.sock", 1);
  EXPECT_EQ(connect_to_ferryd(), -ENOENT);
  ::setenv(kSocketVariable, std::string(200, 'x').c_str(), 1);
  EXPECT_EQ(connect_to_ferryd(), -ENAMETOOLONG);
  ::unsetenv(kSocketVariable);
}

}  // namespace
}  // namespace ferry::agent
