#include "host/checkpoint/find/closure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/failure.h"
#include "ferry.pb.h"
#include "host/checkpoint/find/find_message.h"
#include "temporary.h"

// Which programs a checkpoint is of that names none of them one by one.
namespace ferry::host {
namespace {

using ferry::test::failure_of;

Connection::End at(const std::string& address, std::uint16_t port = 4791) {
  return {address, port};
}

// Hosts whose programs are played. A question reaches all but the silent ones.
class PlayedHosts final : public Hosts {
 public:
  std::string here() const override { return "h1"; }
  std::vector<HostAnswer> ask(const Question& question, const std::string& only) override {
    ++questions;
    std::vector<HostAnswer> answers;
    for (const auto& [host, programs] : all) {
      if (silent_hosts.contains(host) || (!only.empty() && host != only)) continue;
      HostAnswer answer{host, {host == "h1" ? "" : host + ":4780", host}, {}};
      for (const auto& program : programs) {
        if (is_asked_for(program, question)) answer.programs.push_back(program);
      }
      answers.push_back(std::move(answer));
    }
    return answers;
  }
  std::set<std::string> silent() const override { return silent_hosts; }

  // A program with a QP from each of these places to another; by its address alone.
  void add(const std::string& host, const std::string& name, const std::string& address,
           const std::vector<std::string>& peers, const std::string& job = {}, uid_t user = 0) {
    FoundProgram program{++pids, name, job, user, {}};
    for (const auto& peer : peers)
      program.connections.push_back({name, 0x11, at(address), at(peer)});
    if (peers.empty()) program.connections.push_back({name, 0x11, at(address), {}});
    all[host].push_back(std::move(program));
  }

  std::map<std::string, std::vector<FoundProgram>> all;
  std::set<std::string> silent_hosts;
  int questions = 0;

 private:
  static bool is_asked_for(const FoundProgram& program, const Question& question) {
    if (!question.job.empty() && program.job == question.job &&
        program.user == question.user.value_or(program.user)) {
      return true;
    }
    if (!question.program.empty() &&
        (program.name == question.program || std::to_string(program.pid) == question.program)) {
      return true;
    }
    return std::any_of(program.connections.begin(), program.connections.end(),
                       [&](const auto& each) { return question.ends.contains(own_end(each)); });
  }

  pid_t pids = 100;
};

// "h1: a b; h2: c".
std::string text_of(const std::vector<HostAnswer>& answers) {
  std::string text;
  for (const auto& answer : answers) {
    text += (text.empty() ? "" : "; ") + answer.host + ":";
    for (const auto& program : answer.programs) text += " " + program.name;
  }
  return text;
}

class ClosureTest : public ::testing::Test {
 protected:
  std::string of_job(const std::string& job, std::optional<uid_t> user = {}) {
    return text_of(find_closure(hosts, {job, user, {}}));
  }
  std::string connected_to(const std::string& program) {
    return text_of(find_closure(hosts, {{}, {}, program}));
  }
  std::string failure_of_job(const std::string& job, std::optional<uid_t> user = {}) {
    return failure_of([&] { of_job(job, user); });
  }
  std::string failure_of_program(const std::string& program) {
    return failure_of([&] { connected_to(program); });
  }

  PlayedHosts hosts;
};

TEST_F(ClosureTest, FollowsConnectionsFromHostToHost) {
  hosts.add("h1", "a", "10.0.0.1", {"10.0.0.2"});
  hosts.add("h2", "b", "10.0.0.2", {"10.0.0.1", "10.0.0.3"});
  hosts.add("h3", "c", "10.0.0.3", {"10.0.0.2", "10.0.0.4"});
  hosts.add("h3", "d", "10.0.0.4", {"10.0.0.3"});
  hosts.add("h2", "other", "10.0.0.9", {"10.0.0.8"});
  EXPECT_EQ(connected_to("a"), "h1: a; h2: b; h3: c d");
  EXPECT_EQ(connected_to("d@h3"), "h1: a; h2: b; h3: d c");
  const auto answers = find_closure(hosts, {{}, {}, "a"});
  EXPECT_EQ(answers[0].ferryd.address, "");
  EXPECT_EQ(answers[2].ferryd.address, "h3:4780");
}

TEST_F(ClosureTest, ARingIsAskedAboutOnce) {
  hosts.add("h1", "a", "10.0.0.1", {"10.0.0.2", "10.0.0.3"});
  hosts.add("h2", "b", "10.0.0.2", {"10.0.0.1", "10.0.0.3"});
  hosts.add("h3", "c", "10.0.0.3", {"10.0.0.1", "10.0.0.2"});
  EXPECT_EQ(connected_to("a"), "h1: a; h2: b; h3: c");
  EXPECT_EQ(hosts.questions, 2);
}

TEST_F(ClosureTest, FollowsConnectionsOfTcp) {
  hosts.add("h1", "rank", "10.0.0.1", {});
  hosts.add("h2", "launcher", "10.0.0.2", {});
  const auto from = at("10.77.0.1", 40000), to = at("10.77.0.2", 5000);
  hosts.all["h1"][0].connections.push_back({"rank", 0, from, to});
  hosts.all["h2"][0].connections.push_back({"launcher", 0, to, from});
  EXPECT_EQ(connected_to("rank"), "h1: rank; h2: launcher");
  // Somebody else's connection to the same server.
  hosts.all["h2"][0].connections.back().peer.port = 40001;
  EXPECT_EQ(connected_to("rank"), "h1: rank");
  // Who has closed it may have ended.
  hosts.all["h1"][0].connections.back().is_closed = true;
  hosts.all["h2"][0].connections.back().peer.port = 40000;
  EXPECT_EQ(connected_to("rank"), "h1: rank");
}

TEST_F(ClosureTest, AJobIsFoundOnAllHostsThatAreKnown) {
  hosts.add("h1", "rank0", "10.0.0.1", {}, "lu");
  hosts.add("h2", "rank1", "10.0.0.2", {}, "lu");
  hosts.add("h2", "rank1", "10.0.0.3", {}, "ep");
  hosts.add("h3", "other", "10.0.0.4", {});
  EXPECT_EQ(of_job("lu"), "h1: rank0; h2: rank1");
  EXPECT_EQ(of_job("ep"), "h2: rank1");
}

// Two hosts have a program of the same name: they are two programs.
TEST_F(ClosureTest, ProgramsOfOneNameAreToldApart) {
  hosts.add("h1", "rank", "10.0.0.1", {"10.0.0.2"}, "lu");
  hosts.add("h2", "rank", "10.0.0.2", {"10.0.0.1"}, "lu");
  EXPECT_EQ(of_job("lu"), "h1: rank; h2: rank");
  EXPECT_EQ(connected_to("rank"), "h1: rank; h2: rank");  // that of h1 is meant
  hosts.add("h1", "rank", "10.0.0.3", {});
  EXPECT_EQ(failure_of_program("rank"), "'rank' is ambiguous on h1; give a pid: ferry ps");
  EXPECT_EQ(connected_to("103"), "h1: rank");
}

TEST_F(ClosureTest, AProgramOfAnotherHostNeedsNoHostIfThereIsOneOnly) {
  hosts.all["h1"];
  hosts.add("h2", "server", "10.0.0.2", {});
  EXPECT_EQ(connected_to("server"), "h2: server");
  hosts.add("h3", "server", "10.0.0.3", {});
  EXPECT_EQ(failure_of_program("server"),
            "there is a program 'server' on h2, h3 each: give one, as server@h2");
  EXPECT_EQ(connected_to("server@h3"), "h3: server");
}

TEST_F(ClosureTest, WhatIsNotThereIsNamed) {
  hosts.add("h1", "a", "10.0.0.1", {}, "lu");
  hosts.add("h2", "b", "10.0.0.2", {});
  EXPECT_EQ(failure_of_job("ep"), "no program of job 'ep' on h1, h2; see: ferry ps --job");
  EXPECT_EQ(failure_of_job("lu", 1000),
            "no program of job 'lu' of user 1000 on h1, h2; see: ferry ps --job");
  EXPECT_EQ(failure_of_program("nobody"),
            "there is no program 'nobody' on any host that was asked; see: ferry ps");
  EXPECT_EQ(failure_of_program("102"), "there is no program '102' on h1; see: ferry ps");  // b's
  EXPECT_EQ(failure_of_program("a@h2"), "there is no program 'a' on h2; see: ferry ps");
  EXPECT_EQ(failure_of_program("a@"), "'a@' is no program, nor PROGRAM@HOST");
  EXPECT_EQ(failure_of_program("@h1"), "'@h1' is no program, nor PROGRAM@HOST");
  hosts.silent_hosts = {"h3"};
  EXPECT_EQ(failure_of_job("ep"),
            "no program of job 'ep' on h1, h2 (h3 does not answer); see: ferry ps --job");
}

TEST_F(ClosureTest, APeerThatNoHostHasIsNamed) {
  hosts.add("h1", "a", "10.0.0.1", {"10.0.0.2"}, "lu");
  hosts.add("h2", "b", "10.0.0.2", {"10.0.0.1"}, "lu");
  hosts.silent_hosts = {"h2"};
  const std::string text =
      "QP 0x000011 of 'a' on h1 is connected with 10.0.0.2, port 4791, which no program has on the "
      "hosts that were asked (h2 does not answer); name that one's host with --hosts";
  EXPECT_EQ(failure_of_job("lu"), text);
  EXPECT_EQ(failure_of_program("a"), text);
}

TEST_F(ClosureTest, AProgramOfAnotherJobIsNamed) {
  hosts.add("h1", "a", "10.0.0.1", {"10.0.0.2"}, "lu");
  hosts.add("h2", "b", "10.0.0.2", {"10.0.0.1"}, "ep");
  EXPECT_EQ(failure_of_job("lu"),
            "'b' on h2 is of job 'ep', not of job 'lu', and connected with 'a' on h1; name one "
            "program with --connected-to for all");
  hosts.all["h2"][0].job.clear();
  EXPECT_EQ(
      failure_of_job("lu"),
      "'b' on h2 is of no job, not of job 'lu', and connected with 'a' on h1; name one program "
      "with --connected-to for all");
  EXPECT_EQ(connected_to("a"), "h1: a; h2: b");
}

TEST_F(ClosureTest, AProgramOfAnotherUserIsNamed) {
  hosts.add("h1", "a", "10.0.0.1", {"10.0.0.2"}, "lu", 1000);
  hosts.add("h2", "b", "10.0.0.2", {"10.0.0.1"}, "ep", 1001);
  const std::string text =
      "'b' on h2 is user 1001's, not user 1000's, and connected with 'a' on h1";
  EXPECT_EQ(failure_of_job("lu"), text);
  EXPECT_EQ(failure_of_program("a"), text);
}

// A job belongs to one user.
TEST_F(ClosureTest, JobsOfOneNameAreToldApartByTheirUsers) {
  hosts.add("h1", "a", "10.0.0.1", {}, "lu", 1000);
  hosts.add("h2", "b", "10.0.0.2", {}, "lu", 0);
  EXPECT_EQ(failure_of_job("lu"),
            "job 'lu' is user 0's, and another of this name user 1000's: say whose with --user");
  EXPECT_EQ(of_job("lu", 1000), "h1: a");
  EXPECT_EQ(of_job("lu", 0), "h2: b");
}

// An address that two hosts use for their containers, each for itself.
TEST_F(ClosureTest, APeerThatTwoHostsHaveIsNamed) {
  hosts.add("h1", "a", "10.0.0.1", {"10.88.0.2"}, "lu");
  hosts.add("h1", "b", "10.88.0.2", {"10.0.0.1"}, "lu");
  hosts.add("h2", "c", "10.88.0.2", {}, "lu");
  EXPECT_EQ(failure_of_job("lu"),
            "'a' on h1 is connected with 10.88.0.2, port 4791, which both 'b' on h1 and 'c' on h2 "
            "have; name the programs of the checkpoint one by one");
  // Nobody is connected with it.
  hosts.all["h1"].erase(hosts.all["h1"].begin());
  hosts.all["h1"][0].connections[0].peer = {};
  EXPECT_EQ(of_job("lu"), "h1: b; h2: c");
}

// --- messages

Question question() {
  Question question;
  question.job = "lu";
  question.user = 1000;
  question.ends = {{at("10.0.0.2"), {}}, {at("10.77.0.2", 5000), at("10.77.0.1", 40000)}};
  return question;
}

v1::FindReply reply_with(const FoundProgram& program) {
  v1::FindReply reply;
  to_message(program, reply.add_programs());
  return reply;
}

FoundProgram rank() {
  return {77, "rank1", "lu", 1000, {{"rank1", 0x11, at("10.0.0.2"), at("10.0.0.1")}}};
}

TEST(FindMessage, GoesThereAndBack) {
  const auto asked = from_message(to_message(question()));
  EXPECT_EQ(asked.job, "lu");
  EXPECT_EQ(asked.user, std::optional<uid_t>(1000));
  EXPECT_EQ(asked.ends, question().ends);
  EXPECT_EQ(from_message(to_message(Question())).user, std::nullopt);
  const auto found = from_message(reply_with(rank()), question());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].pid, 77);
  EXPECT_EQ(found[0].user, 1000u);
  EXPECT_EQ(own_end(found[0].connections[0]), own_end(rank().connections[0]));
}

TEST(FindMessage, ARequestThatIsMalformedIsRefused) {
  const auto refusal = [](auto change) {
    auto message = to_message(question());
    change(message);
    return failure_of([&] { from_message(message); });
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_EQ(refusal([](auto& m) { m.set_job("two words"); }), "malformed request");
  EXPECT_EQ(refusal([](auto& m) { m.mutable_qps(0)->set_address("h2"); }), "malformed request");
  EXPECT_EQ(refusal([](auto& m) { m.mutable_qps(0)->clear_address(); }), "malformed request");
  EXPECT_EQ(refusal([](auto& m) { m.mutable_qps(0)->set_port(65536); }), "malformed request");
  EXPECT_EQ(refusal([](auto& m) { m.mutable_tcp(0)->clear_peer(); }), "malformed request");
  EXPECT_EQ(refusal([](auto& m) { m.mutable_tcp(0)->set_qpn(1); }), "malformed request");
}

TEST(FindMessage, AnAnswerThatIsMalformedIsRefused) {
  const auto refusal = [](auto change) {
    auto message = reply_with(rank());
    change(*message.mutable_programs(0));
    return failure_of([&] { from_message(message, question()); });
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  const std::string malformed = "a malformed program";
  EXPECT_EQ(refusal([](auto& p) { p.set_pid(0); }), malformed);
  EXPECT_EQ(refusal([](auto& p) { p.clear_name(); }), malformed);
  EXPECT_EQ(refusal([](auto& p) { p.set_job("a\nb"); }), malformed);
  EXPECT_EQ(refusal([](auto& p) { p.mutable_connections(0)->set_qpn(1 << 24); }), malformed);
  EXPECT_EQ(refusal([](auto& p) { p.mutable_connections(0)->clear_local(); }), "");
  EXPECT_EQ(refusal([](auto& p) { p.mutable_connections(0)->set_qpn(0); }), "");
  EXPECT_EQ(refusal([](auto& p) {
              p.mutable_connections(0)->set_qpn(0);
              p.mutable_connections(0)->clear_peer();
            }),
            malformed);
  EXPECT_EQ(
      refusal([](auto& p) { p.mutable_connections(0)->mutable_peer()->set_address("\x1b[2J"); }),
      malformed);
}

// A host may not put programs into the checkpoint that nobody has asked for.
TEST(FindMessage, AnAnswerWithOtherProgramsIsRefused) {
  const auto refusal = [](const FoundProgram& program) {
    return failure_of([&] { from_message(reply_with(program), question()); });
  };
  auto other = rank();
  other.job = "ep";
  EXPECT_EQ(refusal(other), "");  // it has an end that was asked for
  other.connections[0].local.port = 4792;
  EXPECT_EQ(refusal(other), "'rank1', for which nobody has asked");
  other.job = "lu";
  EXPECT_EQ(refusal(other), "");
  other.user = 0;
  EXPECT_EQ(refusal(other), "'rank1', for which nobody has asked");
  other.name = "a\x1b[2Jb";
  EXPECT_EQ(refusal(other), "'a?[2Jb', for which nobody has asked");
}

}  // namespace
}  // namespace ferry::host
