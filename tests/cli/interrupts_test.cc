#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/protocol.h"
#include "base/failure.h"
#include "base/unique_fd.h"
#include "cli/checkpoint/checkpoint.h"
#include "cli/move/move.h"
#include "ferry.grpc.pb.h"
#include "temporary.h"

// Ctrl-C while `ferry move`, `ferry checkpoint` or `ferry restart` waits, before a ferryd that the test plays.
namespace ferry::cli {
namespace {

bool blocks_interrupts() {
  std::ifstream status("/proc/self/status");  // of the main thread, as /proc/PID shows it
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("SigBlk:", 0) == 0)
      return (std::stoull(line.substr(7), nullptr, 16) & 1 << (SIGINT - 1)) != 0;
  }
  return false;
}

// Gives every caller the same ticket.
class Tickets {
 public:
  explicit Tickets(const std::string& path) : listener_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~Tickets() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

 private:
  void serve() {
    for (;;) {
      connections_.emplace_back(::accept(listener_.get(), nullptr, nullptr));
      if (!connections_.back()) return;
      agent::Message question;
      agent::receive_message(connections_.back().get(), &question, 60'000);
      agent::send_message(connections_.back().get(), agent::MessageType::kTicket,
                          agent::encode(agent::Ticket{"ticket"}));
    }
  }

  UniqueFd listener_;
  std::vector<UniqueFd> connections_;
  std::thread thread_;
};

struct PlayedFerryd final : v1::Local::Service {
  grpc::Status Move(grpc::ServerContext*, const v1::MoveRequest*,
                    grpc::ServerWriter<v1::MoveEvent>* events) override {
    when_it_begins();
    v1::MoveEvent event;
    event.mutable_progress()->set_move_id(7);
    events->Write(event);
    return finish();
  }
  grpc::Status TakeCheckpoint(grpc::ServerContext*, const v1::CheckpointRequest*,
                              grpc::ServerWriter<v1::CheckpointEvent>* events) override {
    if (!knows_events) return {grpc::UNIMPLEMENTED, ""};
    v1::CheckpointEvent event;
    event.mutable_progress()->set_attempt(8);
    events->Write(event);
    const auto status = finish();
    event.mutable_report()->set_id("0123456789abcdef");
    if (status.ok()) events->Write(event);
    return status;
  }
  grpc::Status RestartCheckpoint(grpc::ServerContext*, const v1::RestartRequest*,
                                 grpc::ServerWriter<v1::RestartEvent>* events) override {
    v1::RestartEvent event;
    event.mutable_progress()->set_attempt(9);
    events->Write(event);
    return finish();
  }
  grpc::Status Cancel(grpc::ServerContext*, const v1::CancelRequest* request,
                      v1::CancelReply*) override {
    cancelled.set_value(*request);
    return cancel_status;
  }

  std::function<void()> when_it_begins;
  bool knows_events = true;
  grpc::Status cancel_status;
  std::function<grpc::Status()> finish = [] { return grpc::Status(); };
  std::promise<v1::CancelRequest> cancelled;
};

struct Interrupts : testing::Test {
  // Serves as `ferryd` says now: threads that are made here see it as it is, and get no SIGINT.
  void serve() {
    std::signal(SIGINT, SIG_DFL);
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &interrupt, nullptr);
    ::setenv("FERRYD_SOCKET", folder.path("control").c_str(), 1);
    ::setenv("FERRYD_API_SOCKET", folder.path("api").c_str(), 1);
    tickets = std::make_unique<Tickets>(folder.path("control"));
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + folder.path("api"), grpc::InsecureServerCredentials());
    builder.RegisterService(&ferryd);
    server = builder.BuildAndStart();
    ::pthread_sigmask(SIG_UNBLOCK, &interrupt, nullptr);
  }
  // What the user is told, and the ids of attempts that were to be given up, of a command that is interrupted.
  struct Told {
    std::string failure;
    std::vector<std::uint64_t> attempts;
  };
  // `end`: what the ferryd says at last.
  Told interrupted(const grpc::Status& end, const std::function<void()>& command) {
    std::promise<std::vector<std::uint64_t>> attempts;
    ferryd.finish = [&] {
      ::kill(::getpid(), SIGINT);
      const auto cancelled = ferryd.cancelled.get_future().get();
      attempts.set_value({cancelled.attempts().begin(), cancelled.attempts().end()});
      return end;
    };
    serve();
    const std::string failure = test::failure_of(command);
    return {failure, attempts.get_future().get()};
  }
  void SetUp() override {
    request.add_programs("program");
    request.set_to("there");
  }
  ~Interrupts() override {
    server->Shutdown();
    ::unsetenv("FERRYD_SOCKET");
    ::unsetenv("FERRYD_API_SOCKET");
  }

  test::Folder folder;
  PlayedFerryd ferryd;
  std::unique_ptr<Tickets> tickets;
  std::unique_ptr<grpc::Server> server;
  v1::MoveRequest request;
};

TEST_F(Interrupts, BeforeTheMoveHasAnIdGiveItUpLater) {
  ferryd.when_it_begins = [] {
    ::kill(::getpid(), SIGINT);
    for (sigset_t pending; ::sigpending(&pending) == 0 && sigismember(&pending, SIGINT) == 1;)
      ::usleep(1000);
  };
  ferryd.finish = [this] {
    const auto cancelled = ferryd.cancelled.get_future().get();
    EXPECT_EQ(cancelled.programs_size(), 0);
    EXPECT_EQ(std::vector(cancelled.move_ids().begin(), cancelled.move_ids().end()),
              std::vector<std::uint64_t>{7});
    return grpc::Status(grpc::ABORTED, "it was given up");
  };
  serve();
  try {
    move(request, false, false, {});
    ADD_FAILURE() << "it was not given up";
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(), "it was given up");
  }
}

TEST_F(Interrupts, GiveACheckpointUp) {
  v1::CheckpointRequest checkpoint_request;
  checkpoint_request.set_directory(folder.path(""));
  const auto told = interrupted({grpc::FAILED_PRECONDITION, "it is given up"},
                                [&] { checkpoint(checkpoint_request, false, false); });
  EXPECT_EQ(told.failure, "it is given up");
  EXPECT_EQ(told.attempts, std::vector<std::uint64_t>{8});
}

TEST_F(Interrupts, GiveARestartUp) {
  v1::RestartRequest restart_request;
  restart_request.set_directory(folder.path(""));
  const auto told = interrupted({grpc::FAILED_PRECONDITION, "it is given up"},
                                [&] { restart(restart_request, "", false, false); });
  EXPECT_EQ(told.failure, "it is given up");
  EXPECT_EQ(told.attempts, std::vector<std::uint64_t>{9});
}

// One that comes too late ends what goes on without end all the same.
TEST_F(Interrupts, EndPeriodicCheckpoints) {
  v1::CheckpointRequest checkpoint_request;
  checkpoint_request.set_directory(folder.path(""));
  ferryd.cancel_status = {grpc::FAILED_PRECONDITION, "it is complete"};
  const auto told = interrupted({}, [&] {
    EXPECT_EQ(checkpoint_every(checkpoint_request, std::chrono::hours(1), true, false), 0);
  });
  EXPECT_EQ(told.failure, "");
}

TEST_F(Interrupts, AnOlderFerrydStoresNothing) {
  ferryd.knows_events = false;
  serve();
  v1::CheckpointRequest checkpoint_request;
  checkpoint_request.set_directory(folder.path(""));
  EXPECT_EQ(test::failure_of([&] { checkpoint(checkpoint_request, false, false); }),
            "the ferryd of this host is of another version; start that of this version");
}

TEST_F(Interrupts, EndAnInquiryAtOnce) {
  std::atomic<bool> is_blocked{false};
  ferryd.when_it_begins = [&] { is_blocked = blocks_interrupts(); };
  serve();
  EXPECT_EQ(move(request, false, false, {}), 0);
  EXPECT_TRUE(is_blocked);
  request.set_dry_run(true);
  EXPECT_EQ(move(request, false, false, {}), 0);
  EXPECT_FALSE(is_blocked);
}

}  // namespace
}  // namespace ferry::cli
