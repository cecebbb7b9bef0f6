#include "host/checkpoint/lead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ferry.pb.h"
#include "host/checkpoint/step_kinds.h"
#include "host/peers/conversation_here.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using test::failure_of;
using Step = v1::CutStep;
using Reply = v1::CutReply;

// A host that answers as it is told to, in a thread of its own.
class Answering {
 public:
  // `answer`: may throw; may wait until `is_over`.
  using Answer = std::function<void(const Step& step, Served<Step, Reply>& steps)>;
  explicit Answering(Answer answer)
      : steps([this, answer = std::move(answer)](Served<Step, Reply>& served) {
          for (Step step; served.read(&step);) {
            kinds.push_back(step.kind());
            answer(step, served);
            if (!served.write({})) return;
          }
        }) {}

  std::vector<Step::Kind> kinds;  // that it was told; after its answer
  ConversationHere<Step, Reply> steps;
};

void answer(const Step&, Served<Step, Reply>&) {}
void wait_for_end(const Step&, Served<Step, Reply>& steps) {
  while (!steps.is_over()) std::this_thread::yield();
}

// Notes what becomes of it.
class Noting final : public Leader<Step, Reply> {
 public:
  void begins(CourseStep step) override { trace += name(step) + "["; }
  Step told(CourseStep step, std::size_t host) override {
    if (step == unsaid) throw Failure("there is nothing to tell");
    trace += std::to_string(host);
    Step message;
    message.set_kind(cut_kind(step));
    return message;
  }
  void answered(CourseStep, std::size_t host, const Reply&) override {
    if (host == disliked) throw Failure("a malformed answer");
  }
  void taken(CourseStep) override { trace += "] "; }
  void decide() override {
    if (!store.empty()) throw Failure(store);
    trace += "decided ";
  }
  void need_wanted() override {
    if (is_unwanted) throw Failure("it is given up");
  }

  std::string trace, store;
  std::optional<CourseStep> unsaid;
  std::optional<std::size_t> disliked;
  std::atomic<bool> is_unwanted{false};

 private:
  static std::string name(CourseStep step) {
    const std::string names[] = {"look",  "check", "freeze",  "dump",
                                 "store", "end",   "restore", "go_on"};
    return names[static_cast<std::size_t>(step)];
  }
};

class LeadTest : public ::testing::Test {
 protected:
  Answering& add(Answering::Answer how = answer) {
    return *hosts.emplace_back(std::make_unique<Answering>(std::move(how)));
  }
  std::string run(const Course& course) {
    std::vector<LedHost<Step, Reply>> led;
    for (auto& host : hosts) {
      led.push_back({host->steps, [this](const StepBytes& bytes) { told.push_back(bytes.done); }});
    }
    Lead lead(course, std::move(led), leader);
    const std::string failure = failure_of([&] { lead.run(); });
    is_decided = lead.is_decided();
    return failure;
  }

  std::vector<std::unique_ptr<Answering>> hosts;
  Noting leader;
  std::vector<std::uint64_t> told;
  bool is_decided = false;
};

TEST_F(LeadTest, AllHostsTakeEachStep) {
  add();
  add();
  EXPECT_EQ(run(kStopCourse), "");
  EXPECT_EQ(leader.trace, "look[01] check[01] freeze[01] dump[01] store[01] decided end[01] ");
  EXPECT_TRUE(is_decided);
}

TEST_F(LeadTest, WhenOneFailsTheOthersAreGivenUp) {
  add(wait_for_end);
  add([](const Step&, auto&) { throw Failure("the disk is full"); });
  EXPECT_EQ(run(kStopCourse), "the disk is full");
  EXPECT_EQ(leader.trace, "look[01");
  EXPECT_FALSE(is_decided);
}

TEST_F(LeadTest, AHostThatFailsAfterTheDecisionStopsNoOther) {
  add([](const Step& step, auto&) {
    if (step.kind() == Step::END) throw Failure("it is lost");
  });
  auto& other = add();
  EXPECT_EQ(run(kStopCourse), "it is lost");
  EXPECT_TRUE(is_decided);
  EXPECT_EQ(other.kinds.back(), Step::END);
}

// The ferryd ends while a host has not answered yet.
TEST_F(LeadTest, IsUnwantedAlsoAfterAHostHasFailed) {
  add([](const Step& step, auto&) {
    if (step.kind() == Step::END) throw Failure("it is lost");
  });
  add([this](const Step& step, auto& steps) {
    if (step.kind() != Step::END) return;
    leader.is_unwanted = true;
    wait_for_end(step, steps);
  });
  const std::string failure = run(kStopCourse);
  EXPECT_TRUE(failure == "it is lost" || failure == "it is given up") << failure;
  EXPECT_TRUE(is_decided);
}

// As END, when the checkpoint is complete and this ferryd ends.
TEST(ConversationHere, WhatWasSentBeforeTheEndIsTaken) {
  std::vector<Step::Kind> kinds;
  {
    std::promise<void> end;
    ConversationHere<Step, Reply> steps([&](Served<Step, Reply>& served) {
      end.get_future().wait();
      for (Step step; served.read(&step);) kinds.push_back(step.kind());
    });
    Step step;
    step.set_kind(Step::END);
    steps.send(step);
    steps.cancel();
    end.set_value();
  }
  EXPECT_EQ(kinds, (std::vector<Step::Kind>{Step::END}));
}

TEST_F(LeadTest, WhatNobodyWantsIsGivenUp) {
  add([this](const Step& step, auto& steps) {
    leader.is_unwanted = true;
    wait_for_end(step, steps);
  });
  EXPECT_EQ(run(kCheckpointCourse), "it is given up");
}

TEST_F(LeadTest, WhatTheStoreDoesNotTakeIsGivenUp) {
  auto& host = add();
  leader.store = "the store is full";
  EXPECT_EQ(run(kStopCourse), "the store is full");
  EXPECT_EQ(leader.trace, "look[0] check[0] freeze[0] dump[0] store[0] ");
  EXPECT_FALSE(is_decided);
  EXPECT_EQ(host.kinds.back(), Step::STORE);
}

TEST_F(LeadTest, AnAnswerThatDoesNotDoEndsIt) {
  add();
  add();
  leader.disliked = 1;
  EXPECT_EQ(run(kStopCourse), "a malformed answer");
  EXPECT_EQ(leader.trace, "look[01");
}

TEST_F(LeadTest, WhatCannotBeToldEndsIt) {
  add();
  leader.unsaid = CourseStep::kFreeze;
  EXPECT_EQ(run(kStopCourse), "there is nothing to tell");
  EXPECT_EQ(leader.trace, "look[0] check[0] freeze[");
}

TEST_F(LeadTest, PassesOnHowFarAStepIs) {
  add([](const Step& step, auto& steps) {
    if (step.kind() != Step::CHECK) return;
    for (const std::uint64_t done : {1, 2, 3}) {
      Reply news;
      news.mutable_progress()->set_done(done);
      steps.write(news);
    }
  });
  EXPECT_EQ(run(kCheckpointCourse), "");
  EXPECT_EQ(told, (std::vector<std::uint64_t>{1, 2, 3}));
}

}  // namespace
}  // namespace ferry::host
