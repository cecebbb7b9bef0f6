#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ferry.grpc.pb.h"
#include "host/checkpoint/restart/decision.h"
#include "host/checkpoint/restart/serve.h"
#include "host/checkpoint/take/serve.h"
#include "host/peers/conversation_here.h"
#include "host/peers/peer.h"
#include "host/peers/this_host.h"
#include "own_mounts.h"
#include "store/new_checkpoint.h"
#include "store/verdict.h"
#include "temporary.h"

// The host that takes a checkpoint, or restarts one, is lost at each point of it: its power, or the network to it. The
// programs of all other hosts end or go on alike.
namespace ferry::host {
namespace {

using test::Folder;

constexpr char kId[] = "00000000000000aa";
constexpr std::uint64_t kAttempt = 7;
constexpr std::size_t kHosts = 3;

// What has become of a host's programs.
struct Programs {
  std::atomic<bool> are_ended{false}, go_on{false};
};

class PlayedPart final : public HostPart {
 public:
  explicit PlayedPart(Programs& programs) : programs_(programs) {}
  ~PlayedPart() override { programs_.go_on = !programs_.are_ended; }
  std::vector<Connection> look(const std::string&, const std::string&, std::uint32_t,
                               const std::optional<store::ContentKey>&) override {
    return {};
  }
  void check() override {}
  void freeze() override {}
  void dump() override {}
  double end() override {
    programs_.are_ended = true;
    return 0;
  }
  std::vector<store::Program> store() override { return {}; }
  void give_up() override {}

 private:
  Programs& programs_;
};

class PlayedRestart final : public HostRestart {
 public:
  explicit PlayedRestart(Programs& programs) : programs_(programs) {}
  ~PlayedRestart() override { programs_.are_ended = !programs_.go_on; }
  void check() override {}
  std::vector<std::string> restore() override { return {}; }
  void go_on() override { programs_.go_on = true; }
  void give_up() override {}

 private:
  Programs& programs_;
};

// A host with programs, whose ferryd serves the steps.
class Host final : public v1::Ferryd::Service {
 public:
  Host() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    peer_.emplace("127.0.0.1:" + std::to_string(port), nullptr);
  }
  ~Host() override { server_->Shutdown(); }

  grpc::Status Cut(grpc::ServerContext* context,
                   grpc::ServerReaderWriter<v1::CutReply, v1::CutStep>* stream) override {
    ServedStream<v1::CutStep, v1::CutReply> steps(*context, *stream);
    return served([&] {
      serve_cut(
          [this](const auto&, bool, const auto&) { return std::make_unique<PlayedPart>(programs); },
          here, steps);
    });
  }
  grpc::Status RestartPart(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::RestartStepReply, v1::RestartStep>* stream) override {
    ServedStream<v1::RestartStep, v1::RestartStepReply> steps(*context, *stream);
    return served([&] {
      serve_restart(
          {[](const auto&) { return std::string(); },
           [this](const auto&, const auto&) { return std::make_unique<PlayedRestart>(programs); }},
          here, steps);
    });
  }

  Peer& peer() { return *peer_; }
  // Returns when no call is being served.
  void await_end() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return has_begun_ && serving_ == 0; });
  }

  Programs programs;
  ThisHost here;

 private:
  template <typename Serve>
  grpc::Status served(Serve serve) {
    {
      std::lock_guard lock(mutex_);
      has_begun_ = true;
      ++serving_;
    }
    const std::string failure = test::failure_of(serve);
    std::lock_guard lock(mutex_);
    --serving_;
    changed_.notify_all();
    return failure.empty() ? grpc::Status::OK : grpc::Status(grpc::ABORTED, failure);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_begun_ = false;
  int serving_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::optional<Peer> peer_;
};

// The steps that a host that is lost tells others. Its conversations end with it.
template <typename Step, typename Reply>
class Lost {
 public:
  explicit Lost(std::vector<Host>& hosts) {
    for (auto& host : hosts) steps_.push_back(host.peer().converse<Step, Reply>());
  }
  // To the first so many hosts.
  void tell(const Step& step, std::size_t hosts = kHosts) {
    for (std::size_t i = 0; i < hosts; ++i) steps_[i]->ask(step);
  }

 private:
  std::vector<std::unique_ptr<Conversation<Step, Reply>>> steps_;
};

class LostHost : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::getuid() != 0) GTEST_SKIP() << "needs root";
    std::filesystem::create_directory(store_);
  }

  v1::CutStep cut(v1::CutStep::Kind kind) const {
    v1::CutStep step;
    step.set_kind(kind);
    step.set_directory(store_);
    step.set_id(kId);
    step.set_stop(true);
    return step;
  }
  v1::RestartStep restart(v1::RestartStep::Kind kind) const {
    v1::RestartStep step;
    step.set_kind(kind);
    step.set_directory(store_);
    step.set_id(kId);
    step.set_attempt(kAttempt);
    return step;
  }
  // Takes a checkpoint with which the programs end, until so many hosts have stored theirs, and ended them.
  void stop(std::vector<Host>& hosts, std::size_t stored, bool is_complete, std::size_t ended) {
    using Step = v1::CutStep;
    store::NewCheckpoint fresh(store_, kId);
    {
      Lost<Step, v1::CutReply> lost(hosts);
      for (const auto kind : {Step::LOOK, Step::CHECK, Step::FREEZE, Step::DUMP}) {
        lost.tell(cut(kind));
      }
      lost.tell(cut(Step::STORE), stored);
      if (is_complete) fresh.complete("1.2.3", {{"p", "h1", {{"kind", "process"}}, {}, {}}});
      lost.tell(cut(Step::END), ended);
    }
    for (auto& host : hosts) host.await_end();
  }
  // Restarts it, until so many hosts have restored theirs, and let them go on.
  void start(std::vector<Host>& hosts, std::size_t restored, bool is_decided, std::size_t going) {
    using Step = v1::RestartStep;
    const store::Verdict verdict(store_, kId, kAttempt);
    verdict.open();
    {
      Lost<Step, v1::RestartStepReply> lost(hosts);
      lost.tell(restart(Step::CHECK));
      lost.tell(restart(Step::RESTORE), restored);
      if (is_decided) verdict.go_on();
      lost.tell(restart(Step::GO_ON), going);
    }
    for (auto& host : hosts) host.await_end();
  }

  const Folder folder_;
  const std::string store_ = folder_.path("store");
};

TEST_F(LostHost, InACheckpointThatIsNotCompleteAllProgramsGoOn) {
  for (std::size_t stored = 0; stored <= kHosts; ++stored) {
    std::vector<Host> hosts(kHosts);
    stop(hosts, stored, false, 0);
    for (const auto& host : hosts) EXPECT_TRUE(host.programs.go_on) << stored;
    EXPECT_FALSE(std::filesystem::exists(store_ + "/" + kId));
  }
}

TEST_F(LostHost, InACheckpointThatIsCompleteAllProgramsEnd) {
  for (std::size_t ended = 0; ended <= kHosts; ++ended) {
    std::vector<Host> hosts(kHosts);
    stop(hosts, kHosts, true, ended);
    for (const auto& host : hosts) EXPECT_TRUE(host.programs.are_ended) << ended;
    EXPECT_TRUE(std::filesystem::exists(store_ + "/" + kId));
    std::filesystem::remove_all(store_ + "/" + kId);
  }
}

TEST_F(LostHost, InARestartThatIsNotDecidedNoProgramGoesOn) {
  for (std::size_t restored = 0; restored <= kHosts; ++restored) {
    std::vector<Host> hosts(kHosts);
    start(hosts, restored, false, 0);
    for (const auto& host : hosts) EXPECT_TRUE(host.programs.are_ended) << restored;
    // Nor would one here, if this host was only cut off.
    EXPECT_EQ(store::Verdict(store_, kId, kAttempt).go_on(), restored == 0) << restored;
  }
}

TEST_F(LostHost, InARestartThatIsDecidedAllProgramsGoOn) {
  for (std::size_t going = 0; going <= kHosts; ++going) {
    std::vector<Host> hosts(kHosts);
    start(hosts, kHosts, true, going);
    for (const auto& host : hosts) EXPECT_TRUE(host.programs.go_on) << going;
  }
}

TEST_F(LostHost, IsWaitedForUntilTheStoreTells) {
  const std::string file = store_ + "/00000000000000aa.restart-0000000000000007";
  std::vector<Host> hosts(1);
  {
    Lost<v1::RestartStep, v1::RestartStepReply> lost(hosts);
    lost.tell(restart(v1::RestartStep::CHECK), 1);
    lost.tell(restart(v1::RestartStep::RESTORE), 1);
    std::filesystem::create_directory(file);  // a store that says neither yes nor no
  }
  for (const int look : {1, 2, 3}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(hosts[0].programs.go_on || hosts[0].programs.are_ended) << look;
  }
  std::filesystem::rename(file, file + ".goes-on");
  hosts[0].await_end();
  EXPECT_TRUE(hosts[0].programs.go_on);
}

// So the decision of a restart is not there: it is given up.
TEST_F(LostHost, IsNotWaitedForWhereTheStoreCannotBeWritten) {
  test::with_own_mounts([&] {
    ASSERT_EQ(::mount(store_.c_str(), store_.c_str(), nullptr, MS_BIND, nullptr), 0);
    ASSERT_EQ(::mount(nullptr, store_.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr),
              0);
    EXPECT_FALSE(store::Verdict(store_, kId, kAttempt).goes_on());
  });
}

// Who leads is here, and has failed with the store: it has nobody to wait for.
TEST_F(LostHost, IsNoneWhereTheLeaderIsHere) {
  test::with_own_mounts([&] {
    ASSERT_EQ(::mount(store_.c_str(), store_.c_str(), nullptr, MS_BIND, nullptr), 0);
    const store::NewCheckpoint fresh(store_, kId);
    Programs programs;
    {
      const ThisHost here;
      ConversationHere<v1::CutStep, v1::CutReply> steps([&](auto& served) {
        serve_cut(
            [&](const auto&, bool, const auto&) { return std::make_unique<PlayedPart>(programs); },
            here, served);
      });
      using Step = v1::CutStep;
      for (const auto kind : {Step::LOOK, Step::CHECK, Step::FREEZE, Step::DUMP, Step::STORE}) {
        steps.ask(cut(kind));
      }
      ASSERT_EQ(
          ::mount(nullptr, store_.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr), 0);
    }
    EXPECT_TRUE(programs.go_on);
    EXPECT_FALSE(programs.are_ended);
  });
}

TEST_F(LostHost, IsNotWaitedForByAFerrydThatEnds) {
  std::vector<Host> hosts(1);
  {
    Lost<v1::RestartStep, v1::RestartStepReply> lost(hosts);
    lost.tell(restart(v1::RestartStep::CHECK), 1);
    lost.tell(restart(v1::RestartStep::RESTORE), 1);
    std::filesystem::create_directory(store_ + "/00000000000000aa.restart-0000000000000007");
    hosts[0].here.stopping = true;
  }
  hosts[0].await_end();
  EXPECT_TRUE(hosts[0].programs.are_ended);
}

TEST_F(LostHost, GivesItsOwnRestartUpUntilItIsDecided) {
  const ThisHost here;
  const store::Verdict verdict(store_, kId, kAttempt);
  { const RestartDecision decision(here, store_, kId, kAttempt); }
  EXPECT_FALSE(verdict.go_on());
  {
    RestartDecision decision(here, store_, kId, kAttempt);
    decision.go_on();
  }
  EXPECT_TRUE(verdict.goes_on());
  RestartDecision decision(here, store_, kId, kAttempt);
  EXPECT_FALSE(verdict.goes_on());
  EXPECT_EQ(test::failure_of([&] { decision.go_on(); }),
            "a host has lost this one, and has given the restart up; try again");
}

}  // namespace
}  // namespace ferry::host
