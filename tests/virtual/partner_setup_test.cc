#include <cerrno>

#include "passing_context.h"
#include "two_connections.h"

// The peer of a QP that moves makes its new QP while the other one is away (MigrRDMA, section 3.2).
namespace ferry::virt::testing {
namespace {

// The QPs of a device.
struct Living {
  int now = 0, made = 0;
  int room = 100;
};

class CountingContext final : public WrappingContext {
 public:
  CountingContext(std::unique_ptr<device::Context> inner, Living& living)
      : WrappingContext(std::move(inner)), living_(living) {}
  int create_qp(device::QpInit* init, device::Qp** out) override {
    if (living_.now == living_.room) return ENOMEM;
    const int error = WrappingContext::create_qp(init, out);
    if (error == 0) ++living_.now, ++living_.made;
    return error;
  }
  int destroy(device::Object* object) override {
    const bool is_qp = dynamic_cast<device::Qp*>(object) != nullptr;
    const int error = WrappingContext::destroy(object);
    if (error == 0 && is_qp) --living_.now;
    return error;
  }

 private:
  std::unique_ptr<PassingQp> wrap(device::Qp& qp) override {
    return std::make_unique<PassingQp>(qp);
  }

  Living& living_;
};

struct PartnerSetup : TwoConnections {
  Living of_p;

  void SetUp() override {
    p.wrap = [&](std::unique_ptr<device::Context> context) {
      return std::make_unique<CountingContext>(std::move(context), of_p);
    };
    TwoConnections::SetUp();
    use();
  }
  void TearDown() override {
    EXPECT_EQ(of_p.now, 2);
    expect_traffic_of_both();
  }
};

TEST_F(PartnerSetup, NeedsNoQpAfterTheMove) {
  const int before = of_p.made;
  stop();
  EXPECT_EQ(of_p.made, before + 1) << "not for the idle QP";
  EXPECT_EQ(of_p.now, 3);
  m.unpark();
  m.context->resume(false);
  std::vector<device::Letter> switches;
  m.context->take_letters(&switches);
  ASSERT_EQ(switches.size(), 1u) << "the idle QP is late";
  ASSERT_EQ(p.context->deliver(switches[0]), 0);
  EXPECT_TRUE(r::eventually([&] {
    p.context->progress();
    return carry_once(p, m, "p: ");
  }));
  EXPECT_EQ(trace, std::vector<std::string>{"p: SWITCHED"});
  EXPECT_EQ(of_p.made, before + 1);
  EXPECT_EQ(of_p.now, 3) << "the former QP ends after the letter";
  carry();
  end_use();
}

TEST_F(PartnerSetup, IsUndoneWhenTheMoveIsGivenUp) {
  suspend(m);
  EXPECT_EQ(of_p.now, 3);
  m.context->release_peers();
  carry();
  end_use();
}

TEST_F(PartnerSetup, FindsNoRoom) {
  of_p.room = 2;
  stop();
  EXPECT_EQ(of_p.now, 2);
  resume();
  carry();
  end_use();
}

// The device has room for one QP more, which is made for the first of two moves.
TEST_F(PartnerSetup, ServesEachMove) {
  of_p.room = 3;
  for (int i = 0; i < 3; ++i) {
    stop();
    resume();
    carry();
    EXPECT_EQ(of_p.now, 2);
  }
  end_use();
}

TEST_F(PartnerSetup, EndsWithTheQp) {
  suspend(m);
  EXPECT_EQ(of_p.now, 3);
  end_use();
  EXPECT_EQ(p.context->destroy(p.qp), 0);
  EXPECT_EQ(of_p.now, 1);
  m.context->release_peers();
  EXPECT_EQ(m.context->destroy(m.qp), 0);
  std::vector<device::Letter> to_nobody;
  m.context->take_letters(&to_nobody);
  m.qp = m.create_qp();
  p.qp = p.create_qp();
  connect(m.qp, p.qp);
  carry();
}

TEST_F(PartnerSetup, EndsWhenThePeerMovesAsWell) {
  suspend(m);
  EXPECT_EQ(of_p.now, 3);
  suspend(p);
  EXPECT_EQ(of_p.now, 2) << "the idle QP has left the device";
  for (Side* side : {&m, &p}) side->stop();
  EXPECT_EQ(of_p.now, 1);
  for (Side* side : {&m, &p}) side->park();
  EXPECT_EQ(of_p.now, 0);
  for (Side* side : {&m, &p}) side->unpark();
  for (Side* side : {&m, &p}) side->context->resume(false);
  carry();
  end_use();
}

}  // namespace
}  // namespace ferry::virt::testing
