#include <map>
#include <utility>
#include <vector>

#include "passing_context.h"
#include "rig.h"

// Which memory windows the markers of a stop bind. rdma_rxe carries out a bind only if the window has the
// key that it had when the bind was posted; a bind that it refuses is an error of its QP.
namespace ferry::virt::testing {
namespace {

using r::Send;

struct Bind {
  int window = 0;  // numbered as they were made
  const device::Qp* qp = nullptr;
};

// A QP of the device below, whose binds are noted.
class NotedQp final : public PassingQp {
 public:
  NotedQp(device::Qp& qp, std::map<device::Mw*, int>& windows, std::vector<Bind>& binds)
      : PassingQp(qp), windows_(windows), binds_(binds) {}
  int bind_mw(device::Mw* window, const device::MwBind& bind, std::uint32_t* rkey) override {
    binds_.push_back({windows_.at(window), this});
    EXPECT_TRUE(bind.is_marker);
    EXPECT_EQ(bind.length, 0u);
    return PassingQp::bind_mw(window, bind, rkey);
  }

 private:
  std::map<device::Mw*, int>& windows_;
  std::vector<Bind>& binds_;
};

struct Notes {
  int windows = 0;  // that were made
  std::vector<Bind> binds;
};

class NotingContext final : public WrappingContext {
 public:
  NotingContext(std::unique_ptr<device::Context> inner, Notes& notes)
      : WrappingContext(std::move(inner)), notes_(notes) {}
  int alloc_mw(device::Pd* pd, ibv_mw_type type, device::Mw** out) override {
    const int error = inner_->alloc_mw(pd, type, out);
    if (error == 0) windows_[*out] = ++notes_.windows;
    return error;
  }
  int destroy(device::Object* object) override {
    if (auto* window = dynamic_cast<device::Mw*>(object)) windows_.erase(window);
    return WrappingContext::destroy(object);
  }
  std::size_t windows() const { return windows_.size(); }

 private:
  std::unique_ptr<PassingQp> wrap(device::Qp& qp) override {
    return std::make_unique<NotedQp>(qp, windows_, notes_.binds);
  }

  Notes& notes_;
  std::map<device::Mw*, int> windows_;
};

class NotingRnic final : public device::Rnic {
 public:
  explicit NotingRnic(Notes& notes) : notes_(notes) {}
  const std::string& name() const override { return inner_.name(); }
  const std::string& netdev() const override { return inner_.netdev(); }
  std::uint64_t guid() const override { return 1; }
  std::unique_ptr<device::Context> open(device::EventSink& sink, int* error) override {
    auto inner = inner_.open(sink, error);
    if (inner == nullptr) return nullptr;
    auto context = std::make_unique<NotingContext>(std::move(inner), notes_);
    last = context.get();
    return context;
  }
  NotingContext* last = nullptr;  // that was opened

 private:
  LoopbackRnic inner_;
  Notes& notes_;
};

// A program whose QPs `a` and `b` are connected with each other.
struct Windows : ::testing::Test, Program {
  Notes notes;
  NotingRnic* noting = nullptr;
  device::Qp *a = nullptr, *b = nullptr;
  device::Mr* mr = nullptr;
  std::uint64_t memory[8] = {};

  void SetUp() override {
    auto inner = std::make_unique<NotingRnic>(notes);
    noting = inner.get();
    rnic = std::make_unique<Rnic>(std::move(inner));
    int error = 0;
    context = rnic->open_movable(sink, moves, &error);
    ASSERT_NE(context, nullptr);
    ASSERT_EQ(context->alloc_pd(&pd), 0);
    ASSERT_EQ(context->create_cq({1000}, &cq), 0);
    a = create_qp();
    b = create_qp();
    connect(a, b);
    mr = reg(memory, sizeof memory);
  }
  // It waits for a receive.
  void send_without_receive() { ASSERT_EQ(Send(IBV_WR_SEND, 1, memory, 8, mr).post(a), 0); }
};

TEST_F(Windows, EachQpBindsOneOfItsOwn) {
  for (int round = 1; round <= 2; ++round) {
    notes.binds.clear();
    move();
    std::map<int, const device::Qp*> binders;
    for (const Bind& bind : notes.binds) {
      const auto [found, is_first] = binders.emplace(bind.window, bind.qp);
      EXPECT_TRUE(is_first || found->second == bind.qp) << "two QPs bind window " << bind.window;
    }
    EXPECT_EQ(binders.size(), 2u);
  }
}

TEST_F(Windows, OneWhoseBindWasFlushedIsNotBoundAgain) {
  send_without_receive();
  EXPECT_EQ(quiesce(std::chrono::milliseconds(50)), ETIMEDOUT);
  ASSERT_FALSE(notes.binds.empty());
  const int last = notes.windows;
  ibv_qp_attr attributes{};
  for (device::Qp* qp : {a, b}) {
    for (const ibv_qp_state state : {IBV_QPS_ERR, IBV_QPS_RESET}) {
      attributes.qp_state = state;
      ASSERT_EQ(qp->modify(attributes, IBV_QP_STATE), 0);
    }
  }
  connect(a, b);
  notes.binds.clear();
  move();
  EXPECT_EQ(notes.binds.size(), 2u);
  for (const Bind& bind : notes.binds) EXPECT_GT(bind.window, last);
}

TEST_F(Windows, GoWithTheirQps) {
  ASSERT_EQ(quiesce(), 0);
  context->resume(true);
  EXPECT_EQ(noting->last->windows(), 2u);
  ASSERT_EQ(context->destroy(a), 0);
  EXPECT_EQ(noting->last->windows(), 1u);
  ASSERT_EQ(context->destroy(b), 0);
  EXPECT_EQ(noting->last->windows(), 0u);
  ASSERT_EQ(context->destroy(mr), 0);
  EXPECT_EQ(context->destroy(cq), 0);
  EXPECT_EQ(context->destroy(pd), 0);
}

}  // namespace
}  // namespace ferry::virt::testing
