#include "cm/destination.h"
#include "cm/script.h"

// A listener that has moved: the request goes on to where it is (docs/rdma_cm.md "Listeners that
// have moved").
namespace ferry::cm {
namespace {

struct RedirectTest : testing::Test {
  Party a{1}, b{2};  // b is where the listener is now
  const port::Address old_place = port::Address::from_ipv4(0x0A000063);

  void ask_the_old_place() {
    Req req;
    req.service_id = kService;
    req.guid = 0xA1;
    req.qpn = 0x111;
    req.path.local = a.address;
    req.path.remote = old_place;
    a.id = a.manager.connect(req, a.address, old_place, a.now);
    ASSERT_EQ(a.sent(), "REQ");
    request = a.wire.back().mad;
    a.wire.clear();
  }
  void answer(const Mad& mad, const port::Address& from) {
    a.manager.handle({0, from, a.address, mad}, a.now);
  }
  Mad request{};
};

TEST_F(RedirectTest, TheSameRequestGoesToTheNewPlace) {
  ask_the_old_place();
  answer(*redirection_of(request, b.address), old_place);
  EXPECT_EQ(a.events(), "");
  EXPECT_EQ(a.sent(), "REQ");
  ASSERT_EQ(a.wire.size(), 1u);
  EXPECT_EQ(a.wire[0].to, b.address);
  EXPECT_EQ(a.wire[0].mad, request);
  b.take(a);
  EXPECT_EQ(b.events(), "request");
  // The connection's path keeps the name that both programs know.
  EXPECT_EQ(b.manager.find(b.id)->path.local, old_place);
  ASSERT_EQ(b.manager.accept(b.id, b.reply(), b.now), 0);
  a.take(b);
  EXPECT_EQ(a.events(), "reply");
  EXPECT_EQ(a.manager.find(a.id)->path.remote, old_place);
  ASSERT_EQ(a.manager.establish(a.id, a.now), 0);
  b.take(a);
  EXPECT_EQ(b.events(), "established");
}

TEST_F(RedirectTest, RepetitionsGoThereToo) {
  ask_the_old_place();
  answer(*redirection_of(request, b.address), old_place);
  a.sent();
  a.wire.clear();
  a.wait();
  EXPECT_EQ(a.sent(), "REQ");
  EXPECT_EQ(a.wire[0].to, b.address);
}

TEST_F(RedirectTest, OnlyWhoWasAskedRedirects) {
  ask_the_old_place();
  answer(*redirection_of(request, b.address), port::Address::from_ipv4(0x0A000064));
  EXPECT_EQ(a.sent(), "");
  EXPECT_EQ(a.events(), "rejected");
}

TEST_F(RedirectTest, ACircleEnds) {
  ask_the_old_place();
  port::Address asked = old_place;
  for (int i = 0; i < 8; ++i) {
    const port::Address next = asked == old_place ? b.address : old_place;
    answer(*redirection_of(request, next), asked);
    EXPECT_EQ(a.sent(), "REQ") << i;
    asked = next;
  }
  EXPECT_EQ(a.events(), "");
  answer(*redirection_of(request, b.address), asked);
  EXPECT_EQ(a.events(), "rejected");
  EXPECT_EQ(std::get<Rej>(a.last->body).reason, Reason::kRedirect);
}

TEST_F(RedirectTest, ResolutionsOfServiceIdsToo) {
  SidrReq req;
  req.service_id = kService;
  a.id = a.manager.resolve(req, a.address, old_place, a.now);
  ASSERT_EQ(a.sent(), "SIDR_REQ");
  const Mad question = a.wire.back().mad;
  a.wire.clear();
  answer(*redirection_of(question, b.address), old_place);
  EXPECT_EQ(a.events(), "");
  EXPECT_EQ(a.sent(), "SIDR_REQ");
  EXPECT_EQ(a.wire[0].to, b.address);
  b.take(a);
  EXPECT_EQ(b.events(), "SIDR request");
}

TEST_F(RedirectTest, OnTheWire) {
  ask_the_old_place();
  const Mad mad = *redirection_of(request, b.address);
  const auto message = parse(mad);
  ASSERT_TRUE(message);
  const Rej& rej = std::get<Rej>(message->body);
  EXPECT_EQ(static_cast<int>(rej.reason), 24);
  EXPECT_EQ(rej.info_length, 72);
  EXPECT_EQ(rej.local_id, 0u);
  EXPECT_EQ(rej.remote_id, a.id);
  // MAD header (24), REJ: IDs, two bytes, reason; then ClassPortInfo with the GID at its byte 8.
  EXPECT_EQ(mad[24 + 12 + 8 + 10], std::byte{0xFF});
  EXPECT_EQ(mad[24 + 12 + 8 + 15], std::byte{2});
  EXPECT_EQ(mad[24 + 12 + 35], std::byte{1});     // QP 1
  EXPECT_EQ(mad[24 + 12 + 36], std::byte{0x80});  // its Q_Key
  EXPECT_EQ(mad[24 + 12 + 37], std::byte{0x01});
  EXPECT_EQ(redirect_of(rej.info), b.address);
  auto wrong = rej.info;
  wrong[35] = std::byte{2};
  EXPECT_FALSE(redirect_of(wrong));
  EXPECT_FALSE(redirect_of({}));
  EXPECT_FALSE(redirection_of(encode({1, Rtu{}}), b.address));
}

}  // namespace
}  // namespace ferry::cm
