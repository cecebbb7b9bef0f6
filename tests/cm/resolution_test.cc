#include <cerrno>

#include "cm/destination.h"
#include "cm/script.h"

// Service ID resolution: clause 12.11.
namespace ferry::cm {
namespace {

struct ResolutionTest : testing::Test {
  Party a{1}, b{2};

  void resolve() {
    SidrReq req;
    req.service_id = kService;
    req.data[0] = std::byte{42};
    a.id = a.manager.resolve(req, a.address, b.address, a.now);
  }
};

TEST_F(ResolutionTest, QpnAndQkey) {
  resolve();
  EXPECT_EQ(a.sent(), "SIDR_REQ");
  b.take(a);
  EXPECT_EQ(b.events(), "SIDR request");
  EXPECT_EQ(std::get<SidrReq>(b.last->body).data[0], std::byte{42});
  ASSERT_EQ(b.manager.answer_sidr(b.id, SidrStatus::kValid, 0x333, 0x01234567, {}, b.now), 0);
  EXPECT_EQ(b.sent(), "SIDR_REP");
  a.take(b);
  EXPECT_EQ(a.events(), "SIDR reply");
  const auto& rep = std::get<SidrRep>(a.last->body);
  EXPECT_EQ(rep.status, SidrStatus::kValid);
  EXPECT_EQ(rep.qpn, 0x333u);
  EXPECT_EQ(rep.qkey, 0x01234567u);
  EXPECT_EQ(rep.service_id, kService);
}

TEST_F(ResolutionTest, LostReplyIsRepeated) {
  resolve();
  b.take(a);
  b.events();
  b.manager.answer_sidr(b.id, SidrStatus::kValid, 0x333, 1, {}, b.now);
  b.sent();
  b.wire.clear();
  b.manager.forget(b.id, b.now);
  a.wait();
  EXPECT_EQ(a.sent(), "SIDR_REQ");
  b.take(a);
  EXPECT_EQ(b.events(), "");
  EXPECT_EQ(b.sent(), "SIDR_REP");
  b.advance(kAnswerKept);
  EXPECT_EQ(b.manager.size(), 0u);
}

TEST_F(ResolutionTest, NobodyListens) {
  b.listens = false;
  resolve();
  for (unsigned refusals = 1;; ++refusals) {
    b.take(a);
    EXPECT_EQ(b.sent(), "SIDR_REP");
    a.take(b);
    if (refusals == kRefusals) break;
    EXPECT_EQ(a.events(), "");
    a.wait();
    EXPECT_EQ(a.sent(), "SIDR_REQ");
  }
  EXPECT_EQ(a.events(), "SIDR reply");
  EXPECT_EQ(std::get<SidrRep>(a.last->body).status, SidrStatus::kUnsupported);
}

TEST_F(ResolutionTest, ListenerComesAfterTheRequest) {
  b.listens = false;
  resolve();
  b.take(a);
  a.take(b);
  b.listens = true;
  a.wait();
  b.take(a);
  EXPECT_EQ(b.events(), "SIDR request");
}

TEST_F(ResolutionTest, ForgottenRequestIsRejected) {
  resolve();
  b.take(a);
  b.events();
  b.manager.forget(b.id, b.now);
  EXPECT_EQ(b.sent(), "SIDR_REP");
  a.take(b);
  EXPECT_EQ(a.events(), "SIDR reply");
  EXPECT_EQ(std::get<SidrRep>(a.last->body).status, SidrStatus::kRejected);
}

TEST_F(ResolutionTest, SilentPeer) {
  resolve();
  for (unsigned i = 0; i <= kMaxRetries; ++i) a.wait();
  EXPECT_EQ(a.events(), "unreachable");
  EXPECT_EQ(a.last->error, ETIMEDOUT);
}

TEST(AnswerForNobody, OneForEachMessage) {
  const auto answer = [](Body body) {
    const auto mad = answer_for_nobody(encode({77, body}));
    if (!mad) return std::string("none");
    EXPECT_EQ(parse(*mad)->transaction_id, 77u);
    return name_of(*mad);
  };
  EXPECT_EQ(answer(Req{}), "REJ");
  EXPECT_EQ(answer(Rep{}), "REJ");
  EXPECT_EQ(answer(Dreq{}), "DREP");
  EXPECT_EQ(answer(SidrReq{}), "SIDR_REP");
  EXPECT_EQ(answer(Mra{}), "none");
  EXPECT_EQ(answer(Rej{}), "none");
  EXPECT_EQ(answer(Rtu{}), "none");
  EXPECT_EQ(answer(Drep{}), "none");
  EXPECT_EQ(answer(SidrRep{}), "none");
}

}  // namespace
}  // namespace ferry::cm
