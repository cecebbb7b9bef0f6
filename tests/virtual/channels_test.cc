#include <poll.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "channel_rnic.h"

// Descriptors of events that stay when the device is left: the application's threads wait in them.
namespace ferry::virt::testing {
namespace {

using r::Send;
using r::wait_completion;

struct Channels : ::testing::Test, Program {
  ChannelRnic* channels = nullptr;
  device::Channel* channel = nullptr;
  device::Qp* a = nullptr;
  device::Qp* b = nullptr;
  device::Mr* mr = nullptr;
  std::array<std::uint64_t, 4> memory{};

  void SetUp() override {
    auto inner = std::make_unique<ChannelRnic>();
    channels = inner.get();
    rnic = std::make_unique<Rnic>(std::move(inner));
    int error = 0;
    context = rnic->open_movable(sink, moves, &error);
    ASSERT_NE(context, nullptr);
    ASSERT_EQ(context->alloc_pd(&pd), 0);
    ASSERT_EQ(context->create_channel(&channel), 0);
    device::CqInit init{1000};
    init.channel = channel;
    ASSERT_EQ(context->create_cq(init, &cq), 0);
    a = create_qp();
    b = create_qp();
    connect(a, b);
    mr = reg(memory.data(), sizeof memory);
  }
  // One message from a to b: two completions.
  void send() {
    ASSERT_EQ(r::post_receive(b, 1, &memory[1], 8, mr), 0);
    ASSERT_EQ(Send(IBV_WR_SEND, 2, &memory[0], 8, mr, IBV_SEND_SIGNALED).post(a), 0);
  }
  void take_completions() {
    for (int i = 0; i < 2; ++i) EXPECT_EQ(wait_completion(cq).status, IBV_WC_SUCCESS);
  }
  bool is_readable(int timeout_ms = 0) const {
    pollfd wanted{channel->descriptor(), POLLIN, 0};
    return ::poll(&wanted, 1, timeout_ms) == 1;
  }
  void set_nonblocking(bool on) {
    ASSERT_EQ(::fcntl(channel->descriptor(), F_SETFL, on ? O_NONBLOCK : 0), 0);
  }
  // In the device's channel.
  void await_somebody_inside() {
    const auto& inside = static_cast<PipeChannel*>(behind(channel))->inside;
    while (inside == 0) std::this_thread::yield();
  }
  device::Cq* take() {
    device::Cq* raised = nullptr;
    EXPECT_EQ(channel->take(&raised), 0);
    if (raised != nullptr) raised->acknowledge();
    return raised;
  }
};

TEST_F(Channels, AThreadThatWaitsDoesNotHoldUpAMove) {
  ASSERT_EQ(cq->arm(false), 0);
  device::Cq* raised = nullptr;
  std::thread application([&] { raised = take(); });
  await_somebody_inside();
  for (int i = 0; i < 3; ++i) move();
  send();
  application.join();
  EXPECT_EQ(raised, cq);
  take_completions();
}

TEST_F(Channels, ManyThreadsWait) {
  ASSERT_EQ(cq->arm(false), 0);
  std::atomic<int> raised{0};
  std::vector<std::thread> application;
  for (int i = 0; i < 4; ++i) application.emplace_back([&] { raised += take() == cq ? 1 : 0; });
  await_somebody_inside();
  move();
  for (int i = 1; i <= 4; ++i) {
    send();
    while (raised < i) std::this_thread::yield();
    take_completions();
    ASSERT_EQ(cq->arm(false), 0);
  }
  for (std::thread& thread : application) thread.join();
}

TEST_F(Channels, ACompletionInTheStopRaisesItsEvent) {
  ASSERT_EQ(cq->arm(false), 0);
  send();
  ASSERT_EQ(quiesce(), 0);
  EXPECT_TRUE(is_readable());
  device::Parcel parcel;
  ASSERT_EQ(context->park(&parcel), 0);
  EXPECT_TRUE(is_readable());
  EXPECT_EQ(take(), cq);
  EXPECT_FALSE(is_readable());
  ASSERT_EQ(context->unpark(parcel), 0);
  context->resume(false);
  take_completions();
}

TEST_F(Channels, MarkersRaiseNothing) {
  ASSERT_EQ(cq->arm(false), 0);
  move();
  EXPECT_FALSE(is_readable());
  send();
  EXPECT_TRUE(is_readable(10000));
  EXPECT_EQ(take(), cq);
  take_completions();
}

TEST_F(Channels, APollerSeesTheSameDescriptor) {
  ASSERT_EQ(cq->arm(false), 0);
  const int descriptor = channel->descriptor();
  std::atomic<bool> seen{false};
  std::thread application([&] { seen = is_readable(60000); });
  move();
  EXPECT_EQ(channel->descriptor(), descriptor);
  EXPECT_FALSE(seen);
  send();
  application.join();
  EXPECT_TRUE(seen);
  EXPECT_EQ(take(), cq);
  take_completions();
}

TEST_F(Channels, AnEventThatIsNotAcknowledgedDoesNotHoldUpAMove) {
  ASSERT_EQ(cq->arm(false), 0);
  send();
  device::Cq* raised = nullptr;
  ASSERT_EQ(channel->take(&raised), 0);
  move();
  take_completions();
  ASSERT_EQ(context->destroy(a), 0);
  ASSERT_EQ(context->destroy(b), 0);
  std::atomic<bool> destroyed{false};
  std::thread application([&] {
    EXPECT_EQ(context->destroy(cq), 0);
    destroyed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(destroyed) << "its event is not acknowledged";
  raised->acknowledge();
  application.join();
}

TEST_F(Channels, BlocksAsTheApplicationHasSet) {
  device::Cq* raised = nullptr;
  set_nonblocking(true);
  EXPECT_EQ(channel->take(&raised), EAGAIN);
  move();
  EXPECT_EQ(channel->take(&raised), EAGAIN);
  ASSERT_EQ(quiesce(), 0);
  EXPECT_EQ(channel->take(&raised), EAGAIN);
  device::Parcel parcel;
  ASSERT_EQ(context->park(&parcel), 0);
  EXPECT_EQ(channel->take(&raised), EAGAIN);
  ASSERT_EQ(context->unpark(parcel), 0);
  context->resume(false);
  set_nonblocking(false);
  ASSERT_EQ(cq->arm(false), 0);
  std::thread application([&] { EXPECT_EQ(take(), cq); });
  await_somebody_inside();
  send();
  application.join();
  take_completions();
}

// As read(2), in which a program waits without Ferry.
TEST_F(Channels, SignalsEndAWaitAsTheirHandlersSay) {
  struct sigaction before {
  }, action{};
  action.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<int> error{0};
  std::atomic<bool> over{false};
  std::thread application([&] {
    device::Cq* raised = nullptr;
    error = channel->take(&raised);
    over = true;
  });
  await_somebody_inside();
  while (!over) {
    ::pthread_kill(application.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  application.join();
  EXPECT_EQ(error, EINTR);

  action.sa_flags = SA_RESTART;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
  ASSERT_EQ(cq->arm(false), 0);
  std::thread restarted([&] { EXPECT_EQ(take(), cq); });
  await_somebody_inside();
  for (int i = 0; i < 10; ++i) ::pthread_kill(restarted.native_handle(), SIGUSR1);
  send();
  restarted.join();
  take_completions();
  ASSERT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

TEST_F(Channels, AsynchronousEventsAreKeptForTheApplication) {
  channels->last->events.push({IBV_EVENT_COMM_EST, behind(a), 1});
  channels->last->events.push({IBV_EVENT_PORT_ERR, nullptr, 1});
  ASSERT_EQ(quiesce(), 0);
  device::Parcel parcel;
  ASSERT_EQ(context->park(&parcel), 0);
  device::AsynchronousEvent event;
  ASSERT_EQ(context->take_asynchronous(&event), 0);
  EXPECT_EQ(event.object, a);
  context->acknowledge(event);
  ASSERT_EQ(context->unpark(parcel), 0);
  context->resume(false);
  ASSERT_EQ(context->take_asynchronous(&event), 0);
  EXPECT_EQ(event.type, IBV_EVENT_PORT_ERR);
}

TEST_F(Channels, AThreadThatWaitsForAsynchronousEventsDoesNotHoldUpAMove) {
  std::atomic<int> type{-1};
  std::thread application([&] {
    device::AsynchronousEvent event;
    EXPECT_EQ(context->take_asynchronous(&event), 0);
    type = event.type;
    context->acknowledge(event);
  });
  move();
  channels->last->events.push({IBV_EVENT_QP_FATAL, behind(b), 1});
  application.join();
  EXPECT_EQ(type, IBV_EVENT_QP_FATAL);
}

TEST_F(Channels, EventsOfDestroyedObjectsAreForgotten) {
  channels->last->events.push({IBV_EVENT_QP_FATAL, behind(a), 1});
  channels->last->events.push({IBV_EVENT_PORT_ERR, nullptr, 1});
  move();
  ASSERT_EQ(context->destroy(a), 0);
  device::AsynchronousEvent event;
  ASSERT_EQ(context->take_asynchronous(&event), 0);
  EXPECT_EQ(event.type, IBV_EVENT_PORT_ERR);
}

// --- Devices without channels, as ours: a program moves to one, and back

struct Fallback : Channels {
  void move_to(const std::string& device) {
    ASSERT_EQ(quiesce(), 0);
    device::Parcel parcel;
    ASSERT_EQ(context->park(&parcel), 0);
    ASSERT_EQ(context->unpark(device::to_parcel(device)), 0);
    context->resume(false);
  }
  void fall_back() { move_to(ChannelRnic::kPlain); }
  void return_home() { move_to("lo"); }
  // A message raises the event of the CQ, and no other.
  void exchange() {
    ASSERT_EQ(cq->arm(false), 0);
    EXPECT_FALSE(is_readable());
    send();
    ASSERT_TRUE(is_readable(10'000));
    EXPECT_EQ(take(), cq);
    take_completions();
  }
  bool has_asynchronous() const {
    pollfd wanted{context->asynchronous_descriptor(), POLLIN, 0};
    return ::poll(&wanted, 1, 0) == 1;
  }
};

TEST_F(Fallback, TheDescriptorOfAChannelStaysAndTellsOfEvents) {
  const int descriptor = channel->descriptor();
  exchange();
  fall_back();
  exchange();
  exchange();
  return_home();
  exchange();
  fall_back();
  fall_back();
  exchange();
  EXPECT_EQ(channel->descriptor(), descriptor);
}

// Waits until the kernel says that the thread sleeps.
void await_sleep(const std::atomic<pid_t>& thread) {
  for (char state = 0; state != 'S';) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string skipped;
    std::getline(file, skipped, ')');
    file >> state;
  }
}

TEST_F(Fallback, AThreadThatWaitsGetsItsEventFromEitherDevice) {
  for (const bool back : {false, true}) {
    ASSERT_EQ(cq->arm(false), 0);
    std::atomic<pid_t> thread = 0;
    std::thread application([&] {
      thread = ::gettid();
      EXPECT_EQ(take(), cq);
    });
    if (back) {
      while (thread == 0) std::this_thread::yield();
      await_sleep(thread);
      return_home();
    } else {
      await_somebody_inside();
      fall_back();
    }
    send();
    application.join();
    take_completions();
  }
}

TEST_F(Fallback, AnEventThatWasNotTakenIsThereOnTheNextDevice) {
  fall_back();
  ASSERT_EQ(cq->arm(false), 0);
  send();
  ASSERT_TRUE(is_readable(10'000));
  return_home();
  EXPECT_TRUE(is_readable());
  EXPECT_EQ(take(), cq);
  EXPECT_FALSE(is_readable());
  take_completions();
}

TEST_F(Fallback, ANonblockingChannelSaysThatThereIsNoEvent) {
  fall_back();
  set_nonblocking(true);
  device::Cq* raised = nullptr;
  EXPECT_EQ(channel->take(&raised), EAGAIN);
}

TEST_F(Fallback, AChannelThatIsMadeWithoutTheDevicesHelpGetsOneLater) {
  fall_back();
  device::Channel* second = nullptr;
  ASSERT_EQ(context->create_channel(&second), 0);
  device::CqInit init{10};
  init.channel = second;
  device::Cq* other = nullptr;
  ASSERT_EQ(context->create_cq(init, &other), 0);
  std::swap(cq, other);
  device::Qp* const c = create_qp();
  std::swap(cq, other);
  device::Qp* const d = create_qp();
  connect(c, d);
  for (const bool back : {false, true}) {
    if (back) return_home();
    ASSERT_EQ(other->arm(false), 0);
    ASSERT_EQ(r::post_receive(c, 1, &memory[1], 8, mr), 0);
    ASSERT_EQ(Send(IBV_WR_SEND, 2, &memory[0], 8, mr, 0).post(d), 0);
    device::Cq* raised = nullptr;
    ASSERT_EQ(second->take(&raised), 0);
    EXPECT_EQ(raised, other);
    raised->acknowledge();
    EXPECT_EQ(wait_completion(other).status, IBV_WC_SUCCESS);
  }
  ASSERT_EQ(context->destroy(c), 0);
  ASSERT_EQ(context->destroy(other), 0);
  EXPECT_EQ(context->destroy(second), 0);
}

TEST_F(Fallback, AChannelWithoutTheDevicesHelpIsDestroyed) {
  fall_back();
  device::Channel* second = nullptr;
  ASSERT_EQ(context->create_channel(&second), 0);
  EXPECT_EQ(context->destroy(second), 0);
}

TEST_F(Fallback, AsynchronousEventsOfEitherDeviceComeByTheSameDescriptor) {
  const int descriptor = context->asynchronous_descriptor();
  fall_back();
  EXPECT_EQ(context->asynchronous_descriptor(), descriptor);
  channels->told->asynchronous(IBV_EVENT_COMM_EST, behind(a));
  EXPECT_TRUE(has_asynchronous());
  device::AsynchronousEvent event;
  ASSERT_EQ(context->take_asynchronous(&event), 0);
  EXPECT_EQ(event.object, a);
  context->acknowledge(event);
  EXPECT_FALSE(has_asynchronous());
  channels->told->asynchronous(IBV_EVENT_PORT_ERR, nullptr);
  return_home();
  ASSERT_EQ(context->take_asynchronous(&event), 0);
  EXPECT_EQ(event.type, IBV_EVENT_PORT_ERR);
}

// The device has fewer completion vectors, and no moderation.
TEST_F(Fallback, ACqKeepsNeitherItsVectorNorItsModeration) {
  device::CqInit init{10};
  init.vector = 0;
  device::Cq* other = nullptr;
  ASSERT_EQ(context->create_cq(init, &other), 0);
  init.vector = 63;
  ASSERT_EQ(context->create_cq(init, &other), 0);
  fall_back();
  ASSERT_EQ(other->moderate(4, 100), 0);
  return_home();
  fall_back();
}

// A device without a descriptor tells of events while its QPs are flushed.
TEST_F(Fallback, EventsOfTheFlushAreNotForTheApplication) {
  LoopbackRnic loopback;
  int error = 0;
  const auto plain = loopback.open(sink, &error);
  ASSERT_NE(plain, nullptr);
  AsynchronousEvents events;
  ASSERT_EQ(events.open(*plain), 0);
  const auto tell = [&](ibv_event_type type) { events.keep({type, nullptr, 1}); };
  tell(IBV_EVENT_LID_CHANGE);
  events.drain(AsynchronousEvents::Use::kKeep);
  events.keep({IBV_EVENT_QP_LAST_WQE_REACHED, a, 1});
  events.drain(AsynchronousEvents::Use::kDrop);
  events.keep({IBV_EVENT_QP_LAST_WQE_REACHED, a, 1});
  tell(IBV_EVENT_PORT_ACTIVE);
  events.leave();
  ASSERT_EQ(events.enter(*plain), 0);
  tell(IBV_EVENT_PORT_ERR);
  for (const auto type : {IBV_EVENT_LID_CHANGE, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR}) {
    device::AsynchronousEvent event;
    ASSERT_EQ(events.take(&event), 0);
    EXPECT_EQ(event.type, type);
  }
  events.leave();
}

std::ptrdiff_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST_F(Channels, NoDescriptorIsLeftBehind) {
  constexpr int kMoves = 20;
  move();
  const auto before = descriptors();
  for (int i = 0; i < kMoves; ++i) move();
  // Those of the RNICs behind come and go by themselves; a leak would be one for each move.
  EXPECT_LT(descriptors(), before + kMoves / 2);
}

}  // namespace
}  // namespace ferry::virt::testing
