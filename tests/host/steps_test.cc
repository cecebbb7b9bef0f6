#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/together.h"
#include "ferry.pb.h"
#include "ferryd_here.h"
#include "host/checkpoint/facts.h"
#include "host/peers/peer.h"
#include "host/proc/process_tree.h"

// What a ferryd does step by step for another host's, which takes a checkpoint or restarts one.
namespace ferry::host {
namespace {

using test::failure_of;
using test::FerrydHere;

class Steps : public ::testing::Test {
 protected:
  // What the ferryd says to these steps of a checkpoint.
  std::string cut(const std::vector<v1::CutStep::Kind>& kinds) {
    const auto steps = peer.converse<v1::CutStep, v1::CutReply>();
    return failure_of([&] {
      for (const auto kind : kinds) {
        v1::CutStep step;
        step.set_kind(kind);
        steps->ask(step);
      }
    });
  }
  std::string restart(const std::vector<v1::RestartStep>& all) {
    const auto steps = peer.converse<v1::RestartStep, v1::RestartStepReply>();
    return failure_of([&] {
      for (const auto& step : all) steps->ask(step);
    });
  }
  static v1::RestartStep of_kind(v1::RestartStep::Kind kind) {
    v1::RestartStep step;
    step.set_kind(kind);
    return step;
  }
  // Of a program of which a process runs, or ran, on this host.
  static Facts facts(pid_t pid, std::uint64_t started) {
    Facts facts;
    facts.move_id = 77;
    facts.check.set_program("p");
    facts.boot = stamp_now().boot;
    facts.processes = {{pid, started}};
    return facts;
  }
  std::string running(const Facts& facts, bool force = false) {
    auto step = of_kind(v1::RestartStep::LOOK);
    step.add_facts(json_text(to_json(facts)));
    step.set_force(force);
    return peer.converse<v1::RestartStep, v1::RestartStepReply>()->ask(step).running();
  }

  FerrydHere there{"there"};
  Peer peer{there.host.address, nullptr};
};

TEST_F(Steps, OfACheckpointComeInTheirOrder) {
  using Step = v1::CutStep;
  const std::string name = peer.name() + ": ";
  for (const auto first : {Step::CHECK, Step::FREEZE, Step::DUMP, Step::STORE, Step::END}) {
    EXPECT_EQ(cut({first}), name + "malformed request: a step is missing");
  }
  EXPECT_EQ(cut({Step::LOOK}), name + "no program is named");
  EXPECT_EQ(cut({static_cast<Step::Kind>(99)}), name + "malformed request");
}

TEST_F(Steps, OfARestartComeInTheirOrder) {
  using Step = v1::RestartStep;
  const std::string name = peer.name() + ": ";
  EXPECT_EQ(restart({of_kind(Step::RESTORE)}), name + "malformed request: a step is missing");
  EXPECT_EQ(restart({of_kind(Step::LOOK), of_kind(Step::GO_ON)}),
            name + "malformed request: a step is missing");
  auto check = of_kind(Step::CHECK);
  check.set_directory("/nowhere");
  EXPECT_EQ(restart({check}), name + "cannot read /nowhere: No such file or directory");
}

// By the same process of the same boot; that there is one with its number is not enough.
TEST_F(Steps, AProgramThatRunsIsNamed) {
  const auto started = start_time(::getpid());
  EXPECT_EQ(running(facts(::getpid(), started)),
            "'p' still runs on there, as process " + std::to_string(::getpid()) + ":");
  EXPECT_EQ(running(facts(::getpid(), started + 1)), "");
  auto before = facts(::getpid(), started);
  ++before.boot;
  EXPECT_EQ(running(before), "");
}

// After a move, or another restart, it has another process, and maybe another boot.
TEST_F(Steps, AProgramThatHasComeHereSinceIsNamed) {
  rnic::Slot slot;
  slot.local.address = slot.origin.address = port::Address::from_ipv4(0x7F4E0101);
  slot.local.udp_port = slot.origin.udp_port = 40000;
  Facts moved = facts(1, 1);
  ++moved.boot;
  moved.places = {{12, {{"eth0", {slot}}}}};
  EXPECT_EQ(running(moved), "");
  Place place{slot.origin, slot.local, "there", there.host.address, 3};
  there.directory->put(place);
  EXPECT_EQ(running(moved), "'p' still runs on there, as a program that has come here since:");
  EXPECT_EQ(running(moved, /*force=*/true), "");  // it is another one, by what the user says
  place.ferryd = "192.0.2.7:4780";
  place.epoch = 4;
  there.directory->left(place);
  EXPECT_EQ(running(moved), "");
}

struct PlayedPart {
  void give_up() {
    std::lock_guard lock(mutex);
    is_given_up = true;
    changed.notify_all();
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool is_given_up = false;
};

std::vector<std::unique_ptr<PlayedPart>> two_parts() {
  std::vector<std::unique_ptr<PlayedPart>> parts;
  for (int i = 0; i < 2; ++i) parts.push_back(std::make_unique<PlayedPart>());
  return parts;
}

// The other one would wait for ever.
TEST(Together, WhenOneFailsAllAreGivenUp) {
  const auto parts = two_parts();
  EXPECT_EQ(failure_of([&] {
              together(
                  parts, [] {},
                  [&](PlayedPart& part) {
                    if (&part == parts[1].get()) throw Failure("the disk is full");
                    std::unique_lock lock(part.mutex);
                    part.changed.wait(lock, [&] { return part.is_given_up; });
                    throw Failure("given up");
                  });
            }),
            "the disk is full");
}

TEST(Together, WhoIsNotToGoOnGivesAllUp) {
  const auto parts = two_parts();
  const auto need_go_on = [] { throw Failure("this ferryd is ending"); };
  EXPECT_EQ(failure_of([&] {
              together(parts, need_go_on, [&](PlayedPart& part) {
                std::unique_lock lock(part.mutex);
                part.changed.wait(lock, [&] { return part.is_given_up; });
              });
            }),
            "this ferryd is ending");
}

}  // namespace
}  // namespace ferry::host
