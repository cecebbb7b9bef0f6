#include "host/custody/custody.h"

#include <gtest/gtest.h>

#include "base/failure.h"
#include "ferry.pb.h"
#include "ferryd_here.h"
#include "host/proc/process_tree.h"
#include "played_process.h"
#include "port/slot.h"

namespace ferry::host {
namespace {

using test::failure_of;
using test::FerrydHere;
using test::PlayedProcess;

TEST(CheckpointNote, IsReadAsItWasWritten) {
  const CheckpointNote note{0xfeedull << 48 | 7, "a program", "h1", "10.0.0.1:4780"};
  EXPECT_EQ(
      to_text(note),
      "ferry-checkpoint 1\nid feed000000000007\nprogram a program\nkeeper h1@10.0.0.1:4780\n");
  EXPECT_EQ(parse_note(to_text(note)), note);
  const CheckpointNote alone{1, "p", "h1", ""};
  EXPECT_EQ(parse_note(to_text(alone)), alone);
}

TEST(CheckpointNote, WhatIsNoneIsRefused) {
  for (const std::string text :
       {"", "ferry-checkpoint 2\nid 1\nprogram p\nkeeper h@a\n", "ferry-checkpoint 1\n",
        "ferry-checkpoint 1\nid 0\nkeeper h@a\n", "ferry-checkpoint 1\nid 1x\nkeeper h@a\n",
        "ferry-checkpoint 1\nid 1\nkeeper h\n", "ferry-checkpoint 1\nid 1\nkeeper @a\n",
        "ferry-checkpoint 1\nid\n"}) {
    EXPECT_FALSE(parse_note(text)) << text;
  }
}

struct CheckpointTest : testing::Test {
  FerrydHere here{"h1"};

  std::string stop(const PlayedProcess& process) {
    EXPECT_TRUE(test::eventually([&] { return here.control->processes().size() == 1; }));
    const agent::Done done = here.daemon->pause_tree(process.pid());
    EXPECT_EQ(done.code, 0) << done.error;
    return done.note;
  }
  // Of which the daemon knows nothing.
  Custody another_custody() {
    return {here.host,         *here.control,    here.stand_ins, here.decisions, *here.residents,
            *here.whereabouts, *here.departures, *here.arrivals, *here.accounts};
  }
};

TEST_F(CheckpointTest, TheImageNamesItsKeeper) {
  PlayedProcess process(here.folder.path("sock"), {.slot = 84});
  const auto note = parse_note(stop(process));
  ASSERT_TRUE(note);
  EXPECT_EQ(note->host, "h1");
  EXPECT_EQ(note->ferryd, here.host.address);
  EXPECT_EQ(here.daemon->dump_failed(process.pid()).code, 0);
  EXPECT_TRUE(test::eventually([&] { return process.seen().resumed == 1; }));
}

TEST_F(CheckpointTest, NobodyGoesOnFromOneWhoseProgramIsAlive) {
  PlayedProcess process(here.folder.path("sock"), {.slot = 85});
  const std::string note = stop(process);
  const std::string program = parse_note(note)->program;
  EXPECT_EQ(failure_of([&] { here.daemon->claim(1, note); }),
            "'" + program + "' cannot go on from this checkpoint: its program still runs on h1");
  EXPECT_EQ(here.daemon->dump_failed(process.pid()).code, 0);
  ASSERT_TRUE(test::eventually([&] { return process.seen().resumed == 1; }));
  ASSERT_TRUE(test::eventually([&] {
    return failure_of([&] { here.daemon->claim(1, note); }) ==
           "'" + program +
               "' cannot go on from this checkpoint: its program has gone on since, on h1 or "
               "elsewhere";
  }));
}

v1::ClaimRequest asked_by(const std::string& host, std::uint64_t checkpoint) {
  v1::ClaimRequest request;
  request.set_checkpoint(checkpoint);
  request.set_version(kVersion);
  request.set_host(host);
  return request;
}

TEST_F(CheckpointTest, OneOfAllRestoresGoesOn) {
  std::optional<PlayedProcess> process(std::in_place, here.folder.path("sock"),
                                       PlayedProcess::Behaviour{.slot = 86});
  const auto note = parse_note(stop(*process));
  ASSERT_TRUE(note);
  process.reset();  // by CRIU, at the end of its dump
  const auto claim = [&](const std::string& host) {
    return here.daemon->claimed(asked_by(host, note->id), host);
  };
  const auto reply = claim("h2");
  ASSERT_EQ(reply.processes_size(), 1);
  EXPECT_EQ(failure_of([&] { claim("h3"); }), "it is being restored on h2");
  v1::UnclaimRequest failed;
  failed.set_checkpoint(note->id);
  failed.set_host("h2");
  here.daemon->unclaimed(failed, "h2");
  claim("h3");
  // A ferryd that is killed keeps what it has on record.
  here.restart();
  claim("h3");
  v1::TakeRequest request;
  request.set_checkpoint(note->id);
  request.set_host("h3");
  request.set_ferryd("127.0.0.1:1");
  *request.mutable_processes() = reply.processes();
  here.daemon->taken(request, "h3");
  // Its answer had got lost: until h3 says that it has it, it is not forgotten.
  ::usleep(200'000);
  here.daemon->taken(request, "h3");
  for (const std::string host : {"h1", "h2", "h3"}) {
    EXPECT_EQ(failure_of([&] { claim(host); }), "it was restored on h3 already");
  }
  request.set_host("h2");
  EXPECT_EQ(failure_of([&] { here.daemon->taken(request, "h2"); }), "it is not kept any more");
}

// Its id is public (it is in the command lines of podman), and any process can have any pid of its
// own namespace: only CRIU, who has restored them, says which are its processes.
TEST_F(CheckpointTest, StrangersGetNothingOfIt) {
  std::optional<PlayedProcess> process(std::in_place, here.folder.path("sock"),
                                       PlayedProcess::Behaviour{.slot = 83});
  const std::string text = stop(*process);
  const auto id = parse_note(text)->id;
  const pid_t inner = innermost_pid(process->pid()).value();
  process.reset();
  here.daemon->claim(::getpid(), text);
  const pid_t restored = ::fork(), stranger = restored == 0 ? 0 : ::fork();
  if (restored == 0 || stranger == 0) {
    ::close_range(3, ~0u, 0);
    for (;;) ::pause();
  }
  EXPECT_EQ(failure_of([&] {
              here.daemon->restored({"ferry-checkpoint 1\nid 1\nkeeper h@a\n", restored});
            }),
            "the ferryd that knew of this restore is no more");
  here.daemon->restored({text, restored});
  agent::Awake awake;
  awake.move_id = id;
  agent::Resumed resumed;
  resumed.move_id = id;
  EXPECT_FALSE(here.daemon->awake(stranger, awake).resume);
  here.daemon->resumed(stranger, resumed);
  EXPECT_FALSE(here.daemon->awake(stranger, awake).resume);
  // It is there still for whom it is. (His pid is another here than in the image.)
  EXPECT_EQ(here.decisions.entries().size(), 1u);
  here.daemon->awake(restored, awake);
  EXPECT_NE(inner, restored);
  for (const pid_t pid : {restored, stranger}) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

// CRIU ends the processes that it has dumped; peers look for their RNICs all the same.
TEST_F(CheckpointTest, ItsRnicsEndWhenNobodyRestoresIt) {
  Custody custody = another_custody();
  const port::Endpoint origin{port::Address::from_ipv4(0x7F4E0009), port::udp_port_of_slot(3)};
  const port::Endpoint place{PlayedProcess::address(), port::udp_port_of_slot(90)};
  std::optional<PlayedProcess> process(
      std::in_place, here.folder.path("sock"),
      PlayedProcess::Behaviour{.slot = 90, .origin = origin, .epoch = 2});
  here.whereabouts->arrived(process->pid(), {{"lo", {{-1, place, 90, origin, 1, {}}}}});
  ASSERT_TRUE(test::eventually([&] { return here.control->processes().size() == 1; }));
  custody.stop(process->pid());
  process.reset();
  EXPECT_TRUE(here.residents->take_ended().empty());  // these would be told of as ended
  ASSERT_TRUE(here.directory->told(origin));
  EXPECT_FALSE(here.directory->told(origin)->ended);
  here.host.limits.checkpoint = std::chrono::milliseconds(0);
  custody.keep_house();
  EXPECT_TRUE(here.directory->told(origin)->ended);
}

TEST_F(CheckpointTest, ItIsForgottenWhenItsNewHostKnows) {
  FerrydHere there("h2");
  std::optional<PlayedProcess> process(std::in_place, here.folder.path("sock"),
                                       PlayedProcess::Behaviour{.slot = 87});
  const std::string text = stop(*process);
  const auto note = parse_note(text);
  ASSERT_TRUE(note);
  process.reset();
  there.daemon->claim(::getpid(), text);
  v1::TakeRequest request;
  request.set_checkpoint(note->id);
  request.set_host("h2");
  request.set_ferryd(there.host.address);
  *request.mutable_processes() = here.daemon->claimed(asked_by("h2", note->id), "h2").processes();
  here.daemon->taken(request, "h2");
  std::string reason;
  EXPECT_EQ(there.daemon->commit(note->id, "", &reason), Answer::kUnknown);
  ::usleep(200'000);
  EXPECT_EQ(failure_of([&] { here.daemon->claimed(asked_by("h3", note->id), "h3"); }),
            "it was restored on h2 already");
  // The restore is given up: nobody there asks any more.
  there.daemon->restore_failed(::getpid(), text);
  EXPECT_TRUE(test::eventually([&] {
    return failure_of([&] { here.daemon->claimed(asked_by("h3", note->id), "h3"); }) ==
           "its program has gone on since, on h1 or elsewhere";
  }));
}

TEST_F(CheckpointTest, NobodyIsBelievedToBeAnother) {
  EXPECT_EQ(failure_of([&] { here.daemon->claimed(asked_by("h2", 4711), "h3"); }),
            "refused: it calls itself 'h2', and its certificate is of h3; start its ferryd with "
            "--host h3");
  auto request = asked_by("h2", 4711);
  request.set_version("0");
  EXPECT_NE(failure_of([&] { here.daemon->claimed(request, "h2"); }).find("install the same"),
            std::string::npos);
}

TEST_F(CheckpointTest, ItsKeeperHasToBeThere) {
  const CheckpointNote note{7, "p", "h9", "127.0.0.1:1"};
  EXPECT_NE(failure_of([&] {
              here.daemon->claim(1, to_text(note));
            }).find("'p' cannot go on from this checkpoint: there is no ferryd on 127.0.0.1:1"),
            std::string::npos);
  EXPECT_EQ(failure_of([&] { here.daemon->claim(1, "else"); }),
            "ferry.img in the image is damaged");
}

}  // namespace
}  // namespace ferry::host
