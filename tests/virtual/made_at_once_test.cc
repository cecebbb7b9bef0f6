#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "meeting_point.h"
#include "passing_context.h"
#include "rig.h"

// Several threads make the objects of a context anew, where the device gains by that.
namespace ferry::virt::testing {
namespace {

using r::Send;
using r::wait_completion;

// What the devices of a test do, one after the other.
struct Behaviour {
  unsigned threads = 4;
  // Each waits in the calls of its kind; null: they do not wait.
  std::unique_ptr<MeetingPoint> regions, qps, connections;
  std::atomic<int> regions_left{-1};  // that the device can still make; below 0: any number
  std::atomic<int> qps_left{-1};
  std::atomic<int> refused{0};
  std::atomic<int> living{0};  // MRs and QPs of the program
  std::mutex mutex;            // guards makers
  std::set<std::thread::id> makers;

  int begin(const std::unique_ptr<MeetingPoint>& meeting_point) {
    {
      std::lock_guard lock(mutex);
      makers.insert(std::this_thread::get_id());
    }
    return meeting_point == nullptr || meeting_point->meet() ? 0 : ETIMEDOUT;
  }
  bool refuses(std::atomic<int>& left) {
    if (left < 0 || left.fetch_sub(1) > 0) return false;
    left = 0;
    ++refused;
    return true;
  }
};

class MeetingQp final : public PassingQp {
 public:
  MeetingQp(device::Qp& qp, Behaviour& behaviour) : PassingQp(qp), behaviour_(behaviour) {}
  int modify(const ibv_qp_attr& attributes, int mask) override {
    if ((mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_RTR) {
      if (const int error = behaviour_.begin(behaviour_.connections)) return error;
    }
    return PassingQp::modify(attributes, mask);
  }

 private:
  Behaviour& behaviour_;
};

class MeetingContext final : public PassingContext {
 public:
  MeetingContext(std::unique_ptr<device::Context> inner, Behaviour& behaviour)
      : PassingContext(std::move(inner)), behaviour_(behaviour) {}
  unsigned useful_threads() const override { return behaviour_.threads; }
  int reg_mr(const device::MrInit& init, device::Mr** out) override {
    if (const int error = behaviour_.begin(behaviour_.regions)) return error;
    if (behaviour_.refuses(behaviour_.regions_left)) return EDQUOT;
    const int error = inner_->reg_mr(init, out);
    if (error == 0) ++behaviour_.living;
    return error;
  }
  int create_qp(device::QpInit* init, device::Qp** out) override {
    if (const int error = behaviour_.begin(behaviour_.qps)) return error;
    if (behaviour_.refuses(behaviour_.qps_left)) return ENOSPC;
    device::Qp* made = nullptr;
    if (const int error = inner_->create_qp(init, &made)) return error;
    auto qp = std::make_unique<MeetingQp>(*made, behaviour_);
    *out = qp.get();
    ++behaviour_.living;
    std::lock_guard lock(mutex_);
    qps_.emplace(*out, std::move(qp));
    return 0;
  }
  int destroy(device::Object* object) override {
    if (dynamic_cast<device::Mr*>(object) != nullptr) --behaviour_.living;
    const auto qp = qps_.find(object);
    if (qp == qps_.end()) return inner_->destroy(object);
    --behaviour_.living;
    const int error = inner_->destroy(&qp->second->inner);
    if (error == 0) qps_.erase(qp);
    return error;
  }

 private:
  Behaviour& behaviour_;
  std::mutex mutex_;  // guards qps_ where objects are made
  std::map<device::Object*, std::unique_ptr<MeetingQp>> qps_;
};

constexpr std::size_t kRegions = 4;

struct MadeAtOnce : ::testing::Test, Program {
  Behaviour behaviour;
  std::array<std::uint64_t, kRegions> memory{};
  std::vector<device::Mr*> mrs;
  std::vector<device::Qp*> qps;

  void SetUp() override {
    wrap = [this](std::unique_ptr<device::Context> inner) {
      return std::make_unique<MeetingContext>(std::move(inner), behaviour);
    };
    open();
    for (std::uint64_t& each : memory) mrs.push_back(reg(&each, sizeof each));
    for (int i = 0; i < 4; ++i) qps.push_back(create_qp());
    connect(qps[0], qps[1]);
    connect(qps[2], qps[3]);
    behaviour.makers.clear();
  }
  void park() {
    ASSERT_EQ(quiesce(), 0);
    device::Parcel parcel;
    ASSERT_EQ(context->park(&parcel), 0);
  }
  void unpark() {
    ASSERT_EQ(context->unpark(context->place()), 0);
    context->resume(false);
  }
  // All MRs and QPs are those that the program knows.
  void expect_traffic() {
    std::uint64_t value = 7;
    for (device::Qp* qp : qps) {
      for (std::size_t i = 0; i < kRegions; ++i) {
        memory[i] = 0;
        ASSERT_EQ(
            Send(IBV_WR_RDMA_WRITE, i, &value, 8, nullptr, IBV_SEND_SIGNALED | IBV_SEND_INLINE)
                .remote(&memory[i], mrs[i]->rkey())
                .post(qp),
            0);
        const ibv_wc completion = wait_completion(cq);
        EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
        EXPECT_EQ(completion.qp_num, qp->qpn());
        EXPECT_EQ(memory[i], value);
        ++value;
      }
    }
  }
};

TEST_F(MadeAtOnce, Regions) {
  park();
  behaviour.regions = std::make_unique<MeetingPoint>(4);
  unpark();
  expect_traffic();
}

TEST_F(MadeAtOnce, Qps) {
  park();
  behaviour.qps = std::make_unique<MeetingPoint>(4);
  unpark();
  expect_traffic();
}

TEST_F(MadeAtOnce, TheirConnections) {
  park();
  behaviour.connections = std::make_unique<MeetingPoint>(4);
  unpark();
  expect_traffic();
}

TEST_F(MadeAtOnce, ByOneThreadWhereTheDeviceGainsNothing) {
  park();
  behaviour.threads = 1;
  unpark();
  EXPECT_EQ(behaviour.makers, std::set<std::thread::id>{std::this_thread::get_id()});
  expect_traffic();
}

// What has been made by then goes, and the program goes on where it was.
TEST_F(MadeAtOnce, ARegionThatTheDeviceRefuses) {
  park();
  behaviour.regions_left = 2;
  EXPECT_EQ(context->unpark(context->place()), EDQUOT);
  EXPECT_GE(behaviour.refused, 1);
  EXPECT_EQ(behaviour.living, 0);
  behaviour.regions_left = -1;
  unpark();
  expect_traffic();
}

TEST_F(MadeAtOnce, AQpThatTheDeviceRefuses) {
  park();
  behaviour.qps_left = 3;
  EXPECT_EQ(context->unpark(context->place()), ENOSPC);
  EXPECT_EQ(behaviour.refused, 1);
  EXPECT_EQ(behaviour.living, 0);
  behaviour.qps_left = -1;
  unpark();
  expect_traffic();
}

TEST_F(MadeAtOnce, AgainAndAgain) {
  for (int i = 0; i < 5; ++i) {
    park();
    unpark();
  }
  expect_traffic();
}

}  // namespace
}  // namespace ferry::virt::testing
