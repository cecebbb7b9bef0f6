#include "host/checkpoint/find/ferryd_hosts.h"

#include <gtest/gtest.h>

#include "base/failure.h"
#include "base/net.h"
#include "ferry.pb.h"
#include "ferryd_here.h"
#include "host/peers/peer.h"

// Whom a ferryd asks for the programs of a checkpoint.
namespace ferry::host {
namespace {

using test::failure_of;
using test::FerrydHere;

class FerrydHostsTest : public ::testing::Test {
 protected:
  FerrydHosts hosts_with(const std::vector<std::string>& named = {}) {
    return {here.host, [](const Question&) { return std::vector<FoundProgram>(); }, *here.carrier,
            *here.directory, named};
  }
  static std::string names(const std::vector<HostAnswer>& answers) {
    std::string text;
    for (const auto& answer : answers) text += (text.empty() ? "" : " ") + answer.host;
    return text;
  }
  static Question of_job() {
    Question question;
    question.job = "lu";
    return question;
  }
  // An address at which no ferryd listens.
  static std::string nobody() {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    return join_host_port("127.0.0.1", local_port(listener.get()));
  }

  FerrydHere here{"here"}, there{"there"};
};

TEST_F(FerrydHostsTest, ThoseThatThisFerrydKnows) {
  auto hosts = hosts_with();
  EXPECT_EQ(names(hosts.ask(of_job(), {})), "here");
  here.directory->met(there.host.address, "there");
  const auto answers = hosts.ask(of_job(), {});
  EXPECT_EQ(names(answers), "here there");
  EXPECT_EQ(answers[0].ferryd.address, "");
  EXPECT_EQ(answers[1].ferryd.address, there.host.address);
  EXPECT_EQ(names(hosts.ask(of_job(), "here")), "here");
  EXPECT_EQ(hosts.silent(), std::set<std::string>());
}

// The same ferryd at two addresses, or this one's at another address, is one host.
TEST_F(FerrydHostsTest, EachHostIsAskedOnce) {
  auto hosts = hosts_with({there.host.address, there.host.address, here.host.address});
  EXPECT_EQ(names(hosts.ask(of_job(), {})), "here there");
}

TEST_F(FerrydHostsTest, OneThatIsSilentIsNamedAndNotAskedAgain) {
  here.directory->met(nobody(), "gone");
  auto hosts = hosts_with();
  EXPECT_EQ(names(hosts.ask(of_job(), {})), "here");
  EXPECT_EQ(hosts.silent(), std::set<std::string>{"gone"});
  EXPECT_EQ(names(hosts.ask(of_job(), {})), "here");
}

TEST_F(FerrydHostsTest, OneThatTheUserNamesHasToAnswer) {
  const std::string gone = nobody();
  here.directory->met(there.host.address, "there");
  EXPECT_NE(failure_of([&] { hosts_with({gone}).ask(of_job(), {}); }).find(gone),
            std::string::npos);
  EXPECT_NE(failure_of([&] { hosts_with().ask(of_job(), gone); }).find(gone), std::string::npos);
}

// A peer that has gone elsewhere: the directory knows a host that this ferryd does not.
TEST_F(FerrydHostsTest, ThoseWhereTheDirectoryKnowsAPeer) {
  const port::Endpoint peer{port::Address::from_ipv4(0x7F4E0107), 40000};
  here.directory->renew({peer, peer, "there", there.host.address, 3});
  Question question;
  question.ends = {{{"127.78.1.7", 40000}, {}}};
  EXPECT_EQ(names(hosts_with().ask(question, {})), "here there");
}

TEST_F(FerrydHostsTest, AHostSaysWhatItCannotAnswer) {
  Peer peer(there.host.address, nullptr);
  v1::FindRequest request;
  v1::FindReply reply;
  request.set_job("lu");
  peer.call(request, &reply, std::chrono::seconds(5));
  EXPECT_EQ(reply.host(), "there");
  EXPECT_EQ(reply.version(), there.host.version);
  EXPECT_EQ(reply.programs_size(), 0);
  request.set_job("two words");
  EXPECT_EQ(failure_of([&] { peer.call(request, &reply, std::chrono::seconds(5)); }),
            peer.name() + ": malformed request");
}

}  // namespace
}  // namespace ferry::host
