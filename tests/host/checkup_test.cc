#include "host/checkup/checkup.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>

#include "ferry.grpc.pb.h"
#include "ferryd_here.h"
#include "host/checkup/reach.h"
#include "host/peers/peer.h"

// What ferryd says to `ferry doctor`, here and on other hosts.
namespace ferry::host {
namespace {

using std::chrono::seconds;
using test::failure_of;
using test::FerrydHere;

// A ferryd of another host that answers as a test wants.
struct PlayedFerryd : v1::Ferryd::Service {
  grpc::Status Probe(grpc::ServerContext*, const v1::ProbeRequest*,
                     v1::ProbeReply* reply) override {
    std::lock_guard lock(mutex);
    if (is_old) return {grpc::UNIMPLEMENTED, ""};
    *reply = answer;
    const auto now = std::chrono::system_clock::now() + ahead;
    reply->set_clock_ns(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count());
    return grpc::Status::OK;
  }

  PlayedFerryd() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server = builder.BuildAndStart();
  }
  // Changes what it answers; its threads may be about to read that.
  void change(const std::function<void()>& how) {
    std::lock_guard lock(mutex);
    how();
  }
  v1::Reached reached() const { return reach("127.0.0.1:" + std::to_string(port), "", nullptr); }

  std::mutex mutex;
  v1::ProbeReply answer;
  seconds ahead{0};
  bool is_old = false;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

TEST(Reach, TellsTheDifferenceOfTheClocks) {
  PlayedFerryd other;
  other.change([&] { other.ahead = seconds(-5); });
  const auto reached = other.reached();
  EXPECT_EQ(reached.problem(), "");
  EXPECT_GT(reached.round_trip_ms(), 0);
  EXPECT_GT(reached.clock_uncertainty_ms(), 0);
  EXPECT_NEAR(reached.clock_ahead_ms(), -5000, reached.clock_uncertainty_ms() + 1);
}

TEST(Reach, ShowsNoControlCharactersOfOthers) {
  PlayedFerryd other;
  other.change([&] {
    other.answer.set_host("h\x1b[31m2\nh3");
    other.answer.set_criu_problem("CRIU is\x07 missing");
  });
  const auto reached = other.reached();
  EXPECT_EQ(reached.name(), "h?[31m2");
  EXPECT_EQ(reached.criu_problem(), "CRIU is? missing");
}

TEST(Reach, SaysWhatFails) {
  PlayedFerryd other;
  EXPECT_EQ(other.reached().image_problem(), "it has no port for images");
  other.change([&] { other.answer.set_image_port(1); });
  EXPECT_NE(other.reached().image_problem().find("cannot connect to 127.0.0.1:1"),
            std::string::npos);
  other.change([&] { other.is_old = true; });
  EXPECT_NE(other.reached().problem().find("is of another version; install the same on both"),
            std::string::npos);
  other.server->Shutdown();
  EXPECT_NE(other.reached().problem().find("there is no ferryd on 127.0.0.1"), std::string::npos);
  EXPECT_NE(reach("no.such.host.invalid", "", nullptr).problem().find("unknown host"),
            std::string::npos);
}

struct CheckupTest : testing::Test {
  FerrydHere here{"here"}, there{"there"};
};

TEST_F(CheckupTest, AsksTheHostsThatAreNamed) {
  v1::ReachRequest request;
  request.add_hosts(there.host.address);
  request.add_hosts("127.0.0.1:1");
  const auto reply = here.checkup->reach(request);
  ASSERT_EQ(reply.hosts_size(), 2);
  const auto& reached = reply.hosts(0);
  EXPECT_EQ(reached.problem(), "");
  EXPECT_EQ(reached.host(), there.host.address);
  EXPECT_EQ(reached.name(), "there");
  EXPECT_EQ(reached.version(), kVersion);
  EXPECT_EQ(reached.criu_problem(), "");
  EXPECT_EQ(reached.image_port(), there.images.port());
  EXPECT_EQ(reached.image_problem(), "");
  for (const auto& rdma : reached.rdma()) EXPECT_EQ(rdma.address().size(), 16u);
  EXPECT_NE(reply.hosts(1).problem(), "");
}

TEST_F(CheckupTest, AsksTheHostsThatItKnowsUnlessSomeAreNamed) {
  EXPECT_EQ(here.checkup->reach({}).hosts_size(), 0);
  here.directory->met(there.host.address, "there");
  const auto reply = here.checkup->reach({});
  ASSERT_EQ(reply.hosts_size(), 1);
  EXPECT_EQ(reply.hosts(0).host(), "there");
  EXPECT_EQ(reply.hosts(0).problem(), "");
}

TEST_F(CheckupTest, AsksSoManyHostsAtOnceOnly) {
  v1::ReachRequest request;
  for (int i = 0; i < 65; ++i) request.add_hosts("127.0.0.1:1");
  EXPECT_NE(failure_of([&] { here.checkup->reach(request); }).find("more than 64 hosts"),
            std::string::npos);
}

TEST_F(CheckupTest, AsksNobodyWithoutCertificates) {
  ThisHost alone;
  alone.name = "alone";
  Checkup checkup(alone, *here.criu, *here.directory, {});
  v1::ReachRequest request;
  request.add_hosts(there.host.address);
  EXPECT_NE(failure_of([&] { checkup.reach(request); }).find("serves this host only"),
            std::string::npos);
}

TEST_F(CheckupTest, TellsTheStateOfTheHost) {
  const auto state = here.checkup->state();
  EXPECT_EQ(state.host(), "here");
  EXPECT_EQ(state.version(), kVersion);
  EXPECT_EQ(state.address(), here.host.address);
  EXPECT_EQ(state.image_port(), here.images.port());
  EXPECT_EQ(state.criu_problem(), "");
  EXPECT_FALSE(state.has_certificate());
  EXPECT_EQ(state.journal().path(), here.folder.path("state"));
  EXPECT_EQ(state.journal().problem(), "");
  EXPECT_GT(state.journal().free_bytes(), 0u);
  EXPECT_EQ(state.images().problem(), "No such file or directory");
}

// Any user may ask, as often as she likes.
TEST_F(CheckupTest, StartsOtherProgramsOnceInAWhileOnly) {
  const auto program = here.folder.script(
      "program", "echo run >>" + here.folder.path("runs") + "\necho version 7\n");
  Checkup checkup(here.host, *here.criu, *here.directory, {"/", {program, "/nonexistent"}, 0});
  for (int i = 0; i < 3; ++i) {
    const auto state = checkup.state();
    ASSERT_EQ(state.programs_size(), 2);
    EXPECT_EQ(state.programs(0).version(), "version 7");
    EXPECT_EQ(state.programs(1).version(), "");
  }
  EXPECT_EQ(here.folder.read("runs"), "run\n");
}

}  // namespace
}  // namespace ferry::host
