#include "host/ferryd/daemon.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include "base/net.h"
#include "ferry.pb.h"
#include "ferryd_here.h"
#include "host/move/settle.h"
#include "host/peers/peer.h"
#include "host/proc/kernel_devices.h"
#include "host/proc/process_tree.h"
#include "host/standin/stand_in_term.h"
#include "played_process.h"
#include "port/slot.h"
#include "port/udp_port.h"
#include "temporary.h"
#include "transport/stopped.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::eventually;
using test::failure_of;
using test::FerrydHere;
using test::Folder;
using test::PlayedProcess;

// A child that does nothing, and has nothing any more of what the ferryd in this process has open:
// its lock would be held still when the next one starts.
pid_t fork_idle() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close_range(3, ~0u, 0);
    ::raise(SIGSTOP);
    for (;;) ::pause();
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ::kill(child, SIGCONT);
  return child;
}

// A program that CRIU would have restored.
pid_t paused_child() {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::pause();
  ::_exit(0);
}

struct DaemonTest : testing::Test {
  FerrydHere here{"here"}, there{"there"};
  Peer peer{there.host.address, nullptr};

  v1::CheckRequest good_check() {
    v1::CheckRequest request;
    request.set_version(kVersion);
    request.set_host("here");
    request.set_program("p");
    request.set_kind("process");
    request.set_resident_bytes(1 << 20);
    request.add_netdevs("lo");
    return request;
  }
  // The threads of its gRPC server, which read the limits, begin afterwards.
  void limit_there(std::chrono::milliseconds Limits::*limit) {
    there.stop();
    there.host.limits.*limit = milliseconds(50);
    there.restart();
  }
  // A CRIU whose restore waits until the file is there, and fails then.
  void restore_fails_after(const std::string& file) {
    there.folder.script("criu",
                        "[ $1 != --version ] || echo Version: 4.2.1\n"
                        "[ $1 = restore ] || exit 0\n"
                        "until [ -e " +
                            file + " ]; do sleep 0.01; done; exit 1\n");
  }
  // Without gRPC: a test changes the host between two checks.
  std::string check(const v1::CheckRequest& request) {
    v1::CheckReply reply;
    return failure_of([&] { there.daemon->check(request, "", &reply); });
  }
  // A source that does not answer leaves an arrival in peace for a minute.
  v1::PrepareReply prepare(std::uint64_t move_id, const std::string& source = "127.0.0.1:1",
                           const std::string& container = {}) {
    return prepare(v1::PrepareRequest(), move_id, source, container);
  }
  // One of two that arrive together.
  v1::PrepareReply prepare_in_group(std::uint64_t group, unsigned program) {
    v1::PrepareRequest request;
    request.mutable_group()->set_id(group);
    request.mutable_group()->set_programs(2);
    request.mutable_group()->set_program(program);
    return prepare(request, group + program, "127.0.0.1:1", {});
  }
  v1::PrepareReply prepare(v1::PrepareRequest request, std::uint64_t move_id,
                           const std::string& source, const std::string& container) {
    v1::PrepareReply reply;
    request.set_kind(container.empty() ? "process" : "lab");
    request.set_details(container);
    request.set_move_id(move_id);
    request.set_program("p");
    request.set_version(kVersion);
    request.set_source(source);
    request.add_inner_pids(5);
    peer.call(request, &reply, seconds(5));
    return reply;
  }
  // As the source does after Prepare.
  static void send_image(const v1::PrepareReply& reply, const Folder& image) {
    ImageToken token;
    std::memcpy(token.data(), reply.image_token().data(), token.size());
    ImageSender("127.0.0.1", static_cast<std::uint16_t>(reply.image_port()), token)
        .send(image_files(image.path()));
  }
  static v1::RestoreRequest restore() {
    v1::RestoreRequest request;
    request.set_limit_ms(10'000);
    return request;
  }
  std::string step(auto request, auto reply, std::uint64_t move_id) {
    request.set_move_id(move_id);
    return failure_of([&] { peer.call(request, &reply, seconds(10)); });
  }
};

// Its ids are always those of the image. Who waits for its programs looks at the arrival before a moment longer.
TEST_F(DaemonTest, ACheckpointIsRestartedAgainWhileTheRestartBeforeIsLookedAt) {
  v1::PrepareRequest request;
  request.set_kind("process");
  request.set_version(kVersion);
  request.set_source(there.host.address);
  request.add_inner_pids(5);
  request.mutable_group()->set_id(31);
  request.mutable_group()->set_programs(2);
  const auto prepare_program = [&](unsigned program) {
    request.set_move_id(31 + program);
    request.set_program("p" + std::to_string(program));
    request.mutable_group()->set_program(program);
    return there.arrivals->prepare_restart(request);
  };
  const std::shared_ptr<Arrival> before[] = {prepare_program(0), prepare_program(1)};
  before[0]->abort("it is given up");
  EXPECT_EQ(failure_of([&] { prepare_program(0), prepare_program(1); }), "");
  there.arrivals->find(31)->abort("this one as well");
  EXPECT_TRUE(there.arrivals->find(32)->is_over()) << "both are of one group";
}

// rxe7 is not there any more when the sockets are to be bound.
TEST_F(DaemonTest, AProgramGetsTheDeviceThatTheCheckHasChosen) {
  v1::PrepareRequest request;
  auto* chosen = request.add_chosen_devices();
  chosen->set_name("rxe0");
  chosen->set_there("rxe7");
  prepare(request, 21, "127.0.0.1:1", {});
  const auto bind = [&](const std::string& device) {
    v1::BindRequest request_to_bind;
    auto* process = request_to_bind.add_processes();
    process->set_inner_pid(5);
    process->add_contexts()->set_device_behind(device);
    return step(request_to_bind, v1::BindReply(), 21);
  };
  EXPECT_NE(bind("rxe0").find("there is no RDMA device rxe7"), std::string::npos);
  EXPECT_NE(bind("rxe1").find("'p' has opened rxe1 since"), std::string::npos);
}

TEST_F(DaemonTest, RefusesADeviceThatIsNotThere) {
  auto request = good_check();
  auto* device = request.add_kernel_devices();
  device->set_name("rxe0");
  device->set_wanted("rxe7");
  EXPECT_NE(check(request).find("there is no RDMA device rxe7"), std::string::npos);
}

TEST_F(DaemonTest, AProgramCanGoOnWithADeviceOfFerrysOwn) {
  auto request = good_check();
  auto* device = request.add_kernel_devices();
  device->set_name("rxe0");
  device->set_wanted("ferry977");
  EXPECT_NE(check(request).find("there is no device ferry977 of Ferry's here"), std::string::npos);
  device->set_wanted("ferry0");
  device->set_needs("pds 1\n");
  if (kernel_devices().empty() && !std::filesystem::exists("/sys/module/rdma_rxe")) {
    EXPECT_EQ(check(request), "");
    // A program that has one of Ferry's own keeps it where the kernel has none.
    device->clear_wanted();
    EXPECT_NE(check(request).find("no other with an active port"), std::string::npos);
    device->set_name("ferry0");
    EXPECT_EQ(check(request), "");
    device->set_needs("mrs 16777216\n");
    EXPECT_NE(check(request).find("ferry0 has not what the program needs: it has not as many MRs"),
              std::string::npos);
    device->set_wanted("ferry0");
  }
  device->set_node("uverbs0 (231:192)");
  EXPECT_NE(check(request).find("as containers have, goes on with a device of the kernel only"),
            std::string::npos);
}

TEST_F(DaemonTest, ChecksBeforeAnythingMoves) {
  EXPECT_EQ(check(good_check()), "");
  auto request = good_check();
  request.set_version("9.9");
  EXPECT_NE(check(request).find("there runs Ferry " FERRY_VERSION ", here runs Ferry 9.9"),
            std::string::npos);
  request = good_check();
  request.set_host("there");
  EXPECT_NE(check(request).find("'p' is on there already"), std::string::npos);
  request = good_check();
  request.set_resident_bytes(1ull << 50);
  EXPECT_NE(check(request).find("not enough memory on there"), std::string::npos);
  there.room.emplace(there.folder.path("images"), "there", 1 << 20);
  EXPECT_NE(check(good_check()).find("not enough memory on there"), std::string::npos);
  there.room.emplace(there.folder.path("images"), "there");
  request = good_check();
  request.add_netdevs("nodev0");
  EXPECT_NE(check(request).find("there has no network interface nodev0"), std::string::npos);
  request = good_check();
  request.set_kind("lab");
  EXPECT_NE(check(request).find("no --network-hook"), std::string::npos);
  there.folder.script("criu", "echo Version: 3.17");
  there.criu.emplace(CriuRunner::Paths{there.criu_path, "", "", "", ""});
  EXPECT_NE(check(good_check()).find("CRIU 3.17"), std::string::npos);
}

TEST_F(DaemonTest, AnArrivalThatIsAbortedLeavesNothing) {
  prepare(11);
  EXPECT_TRUE(std::filesystem::exists(there.room->folder_of(11)));
  EXPECT_EQ(step(v1::AbortRequest{}, v1::AbortReply{}, 11), "");
  EXPECT_FALSE(std::filesystem::exists(there.room->folder_of(11)));
  EXPECT_FALSE(there.decisions.decision(11, Side::kDestination));
  EXPECT_NE(step(v1::CommitRequest{}, v1::CommitReply{}, 11), "");
}

// Whose ferryd has ended in the middle of a move, and started again.
TEST_F(DaemonTest, AnArrivalThatItsSourceHasForgottenGoesAway) {
  prepare(15, here.host.address);
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(there.room->folder_of(15)); }));
}

// CRIU dies between its last word and ours. The program cannot go on any more: everybody must learn
// that it has ended.
TEST_F(DaemonTest, AProgramWhoseCriuDiesInTheCommitHasEnded) {
  const std::string die = there.folder.path("die");
  restore_fails_after(die);
  const std::string hook =
      there.folder.script("hook",
                          "[ $1 != prepare ] || cat >/dev/null\n[ $1 != prepare ] || echo "
                          "'{\"name\": \"p\", \"instance\": \"p.1\"}'\n"
                          "[ $1 != activate ] || { touch " +
                              die + "; sleep 0.5; }\n");
  there.containers = LabRuntime(there.folder.path("containers"), hook);
  const pid_t root = paused_child();
  Folder image;
  image.write("x.img", "x");
  const auto reply = prepare(16, "127.0.0.1:1", "{}");
  send_image(reply, image);
  std::atomic<bool> restored{false};
  std::thread post_restore([&] {
    while (there.daemon->action({"post-restore", root, 16}).code != 0 && !restored) ::usleep(1000);
  });
  EXPECT_EQ(step(restore(), v1::RestoreReply{}, 16), "");
  restored = true;
  EXPECT_EQ(step(v1::CommitRequest{}, v1::CommitReply{}, 16), "");
  post_restore.join();
  EXPECT_TRUE(eventually([&] { return there.containers.find("p")->state == "exited"; }));
  EXPECT_TRUE(eventually([&] { return there.folder.read("containers/p/exit") == "137\n"; }));
  EXPECT_FALSE(std::filesystem::exists(there.room->folder_of(16)));
  EXPECT_NE(::kill(root, 0), 0);
}

// It still is at its source.
TEST_F(DaemonTest, AProgramThatIsKilledWhileItIsHeldIsNotCommitted) {
  const std::string undo = there.folder.path("undo");
  restore_fails_after(undo);
  const pid_t root = paused_child();
  Folder image;
  image.write("x.img", "x");
  send_image(prepare(18), image);
  std::atomic<bool> restored{false};
  std::thread post_restore([&] {
    do ::usleep(1000);
    while (there.daemon->action({"post-restore", root, 18}).code != 0 && !restored);
    std::ofstream(undo).close();
  });
  EXPECT_EQ(step(restore(), v1::RestoreReply{}, 18), "");
  restored = true;
  ::kill(root, SIGKILL);
  siginfo_t end{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(root), &end, WEXITED | WNOWAIT), 0);
  const std::string reason = step(v1::CommitRequest{}, v1::CommitReply{}, 18);
  EXPECT_NE(reason.find("was killed before it went on"), std::string::npos) << reason;
  EXPECT_FALSE(there.decisions.decision(18, Side::kDestination));
  post_restore.join();
  ::waitpid(root, nullptr, 0);
}

// Nobody has to ask for it: its source may be waiting for the others of its group.
TEST_F(DaemonTest, WhatIsHeldIsGoneWithItsCriu) {
  const std::string die = there.folder.path("die");
  restore_fails_after(die);
  Folder image;
  image.write("x.img", "x");
  send_image(prepare(17), image);
  std::atomic<bool> restored{false};
  std::thread post_restore([&] {
    while (there.daemon->action({"post-restore", ::getpid(), 17}).code != 0 && !restored) {
      ::usleep(1000);
    }
  });
  EXPECT_EQ(step(restore(), v1::RestoreReply{}, 17), "");
  restored = true;
  EXPECT_TRUE(std::filesystem::exists(there.room->folder_of(17)));
  std::ofstream(die).close();
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(there.room->folder_of(17)); }));
  post_restore.join();
  EXPECT_NE(step(v1::CommitRequest{}, v1::CommitReply{}, 17), "");
}

TEST_F(DaemonTest, AGroupOfWhichOneIsMissingCannotBeCommitted) {
  prepare_in_group(51, 0);
  prepare_in_group(51, 1);
  EXPECT_NE(
      step(v1::CommitRequest{}, v1::CommitReply{}, 51).find("not all is here that was to go on"),
      std::string::npos);
  for (const std::uint64_t id : {51, 52}) {
    EXPECT_FALSE(there.decisions.decision(id, Side::kDestination));
    EXPECT_FALSE(std::filesystem::exists(there.room->folder_of(id)));
  }
}

TEST_F(DaemonTest, WhoGivesUpOneProgramGivesUpItsGroup) {
  prepare_in_group(53, 0);
  prepare_in_group(53, 1);
  EXPECT_EQ(step(v1::AbortRequest{}, v1::AbortReply{}, 54), "");
  EXPECT_FALSE(std::filesystem::exists(there.room->folder_of(53)));
  EXPECT_EQ(step(v1::AbortRequest{}, v1::AbortReply{}, 53), "");
  // Another group's size, or a program that is none of it.
  prepare_in_group(55, 0);
  v1::PrepareRequest request;
  request.mutable_group()->set_id(55);
  request.mutable_group()->set_programs(3);
  EXPECT_NE(failure_of([&] { prepare(request, 57, "127.0.0.1:1", {}); }).find("refused"),
            std::string::npos);
  request.mutable_group()->set_program(3);
  EXPECT_NE(failure_of([&] { prepare(request, 57, "127.0.0.1:1", {}); }).find("malformed"),
            std::string::npos);
  // The same one of its programs again.
  request.mutable_group()->set_programs(2);
  request.mutable_group()->set_program(0);
  EXPECT_NE(failure_of([&] { prepare(request, 57, "127.0.0.1:1", {}); }).find("arrives already"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(there.room->folder_of(57)));
  EXPECT_EQ(step(v1::AbortRequest{}, v1::AbortReply{}, 55), "");
}

// The source takes the first reason that it hears for the cause.
TEST_F(DaemonTest, WhoIsGivenUpForAnotherOfItsGroupSaysWhy) {
  there.folder.script(
      "criu",
      "[ $1 != --version ] || echo Version: 4.2.1\n"
      "[ $1 = restore ] || exit 0\n"
      "while [ $1 != --images-dir ]; do shift; done\n"
      "[ -e $2/unlucky.img ] || { echo yes >" +
          there.folder.path("restoring") +
          "; exec sleep 60; }\n"
          "echo '(00.000001) Error (criu/x.c:1): no luck today' >$2/restore.log; exit 1\n");
  Folder lucky, unlucky;
  lucky.write("x.img", "x");
  unlucky.write("unlucky.img", "x");
  send_image(prepare_in_group(63, 0), lucky);
  send_image(prepare_in_group(63, 1), unlucky);
  std::string said;
  std::thread waits([&] { said = step(restore(), v1::RestoreReply{}, 63); });
  EXPECT_TRUE(eventually([&] { return there.folder.read("restoring") == "yes\n"; }));
  EXPECT_NE(step(restore(), v1::RestoreReply{}, 64).find("cannot restore 'p': "),
            std::string::npos);
  waits.join();
  EXPECT_NE(said.find("cannot restore 'p': cannot go on with 'p': "), std::string::npos) << said;
  EXPECT_NE(said.find("no luck today"), std::string::npos) << said;
}

// The record of both is one; each is committed by the word on the other.
TEST_F(DaemonTest, AGroupIsCommittedAsOne) {
  const std::string end = there.folder.path("end");
  there.folder.script("criu",
                      "[ $1 != --version ] || echo Version: 4.2.1\n"
                      "[ $1 = restore ] || exit 0\n"
                      "until [ -e " +
                          end + " ]; do sleep 0.01; done\n");
  std::vector<pid_t> roots;
  std::vector<std::thread> scripts;
  std::atomic<int> passed{0};
  Folder image;
  image.write("x.img", "x");
  for (unsigned program = 0; program < 2; ++program) {
    const auto reply = prepare_in_group(61, program);
    const pid_t root = roots.emplace_back(::fork());
    if (root == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::pause();
      ::_exit(0);
    }
    send_image(reply, image);
    scripts.emplace_back([&, root, program] {
      // Refused until the restore has begun, and then held until the decision.
      while (there.daemon->action({"post-restore", root, 61 + program}).code != 0) ::usleep(1000);
      ++passed;
    });
    EXPECT_EQ(step(restore(), v1::RestoreReply{}, 61 + program), "");
    EXPECT_EQ(passed, 0);
    const auto shown = there.daemon->ps(0);
    EXPECT_EQ(shown.programs_size(), static_cast<int>(program) + 1);
    EXPECT_EQ(shown.programs(0).state(), "arriving");
    EXPECT_EQ(shown.programs(0).group(), 61u);
  }
  EXPECT_EQ(step(v1::CommitRequest{}, v1::CommitReply{}, 62), "");
  for (auto& script : scripts) script.join();
  EXPECT_EQ(there.decisions.find(61, Side::kDestination)->moves,
            (std::vector<std::uint64_t>{61, 62}));
  EXPECT_EQ(there.decisions.decision(62, Side::kDestination), Decision::kCommitted);
  there.folder.write("end", "");
  for (const pid_t root : roots) ::kill(root, SIGKILL);
  EXPECT_TRUE(eventually([&] { return there.daemon->arrival_from(61, "") == nullptr; }));
}

TEST_F(DaemonTest, AFailedRestoreIsReportedAndCannotBeCommitted) {
  Folder image;
  image.write("x.img", "x");
  const auto reply = prepare(12);
  send_image(reply, image);
  EXPECT_NE(step(restore(), v1::RestoreReply{}, 12)
                .find("cannot restore 'p': criu restore ended with status 1"),
            std::string::npos);
  EXPECT_NE(step(v1::CommitRequest{}, v1::CommitReply{}, 12), "");
  EXPECT_FALSE(there.decisions.decision(12, Side::kDestination));
}

// The limits of docs/settings.md.
TEST_F(DaemonTest, AnImageThatDoesNotComeIsNotWaitedForAnyLonger) {
  limit_there(&Limits::transfer);
  prepare(16);
  EXPECT_NE(step(restore(), v1::RestoreReply{}, 16).find("the transfer of the image does not end"),
            std::string::npos);
}

TEST_F(DaemonTest, ARestoreThatHangsIsNotWaitedForAnyLonger) {
  const std::string enough = there.folder.path("enough");
  there.folder.script("criu",
                      "[ $1 != --version ] || echo Version: 4.2.1\n"
                      "[ $1 = restore ] || exit 0\n"
                      "until [ -e " +
                          enough + " ]; do sleep 0.01; done; exit 1\n");
  limit_there(&Limits::restore);
  Folder image;
  image.write("x.img", "x");
  const auto reply = prepare(17);
  send_image(reply, image);
  EXPECT_NE(step(restore(), v1::RestoreReply{}, 17).find("criu restore does not end"),
            std::string::npos);
  there.folder.write("enough", "");
  EXPECT_EQ(step(v1::AbortRequest{}, v1::AbortReply{}, 17), "");
}

TEST_F(DaemonTest, ASourceThatIsSilentForLongIsGivenUp) {
  limit_there(&Limits::source);
  prepare(18);
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(there.room->folder_of(18)); }));
  EXPECT_FALSE(there.decisions.decision(18, Side::kDestination));
}

TEST_F(DaemonTest, AnUnknownMoveIsAbortedForGood) {
  v1::CommitRequest request;
  v1::CommitReply reply;
  request.set_move_id(13);
  const auto status = peer.try_call(request, &reply, seconds(5));
  EXPECT_EQ(status.error_code(), grpc::ABORTED);
  EXPECT_FALSE(there.decisions.decision(13, Side::kDestination));
  // What a former ferryd committed stays so.
  there.decisions.record(Side::kDestination, {Decision::kCommitted, "p", "", {14}});
  request.set_move_id(14);
  EXPECT_TRUE(peer.try_call(request, &reply, seconds(5)).ok());
}

TEST_F(DaemonTest, DecisionsAreOnRecord) {
  v1::DecisionRequest request;
  v1::DecisionReply reply;
  there.decisions.record(Side::kSource, {Decision::kCommitted, "p", "", {21}});
  request.set_move_id(21);
  peer.call(request, &reply, seconds(5));
  EXPECT_EQ(reply.decision(), v1::DecisionReply::COMMITTED);
  request.set_move_id(22);
  peer.call(request, &reply, seconds(5));
  EXPECT_EQ(reply.decision(), v1::DecisionReply::ABORTED);
}

TEST_F(DaemonTest, ScriptsOfAFerrydThatIsNoMoreGetWhatIsOnRecord) {
  here.decisions.record(Side::kSource, {Decision::kConfirmed, "p", "", {31}});
  here.restart();
  EXPECT_EQ(here.daemon->action({"post-dump", 1, 31}).code, 0);
  EXPECT_EQ(here.daemon->action({"post-dump", 1, 32}).code, 1);
  EXPECT_EQ(here.daemon->action({"post-restore", 1, 33}).code, 1);
  EXPECT_FALSE(here.decisions.decision(33, Side::kDestination));
  EXPECT_EQ(here.daemon->action({"pre-dump", 1, 34}).code, 0);
  EXPECT_FALSE(here.decisions.decision(34, Side::kSource));
  EXPECT_EQ(here.daemon->action({"post-dump", 1, 0}).code, 0);  // somebody else's CRIU
}

// The destination may have lost what it had restored before it heard of the promise.
TEST_F(DaemonTest, APromiseOfAFerrydThatIsNoMoreIsAskedAbout) {
  const std::string peer_address = there.host.address;
  here.decisions.record(Side::kSource, {Decision::kCommitted, "p", peer_address, {41}});
  there.decisions.record(Side::kDestination, {Decision::kCommitted, "p", "", {41}});
  here.restart();
  EXPECT_EQ(here.daemon->action({"post-dump", 1, 41}).code, 0);
  EXPECT_EQ(here.decisions.decision(41, Side::kSource), Decision::kConfirmed);

  here.decisions.record(Side::kSource, {Decision::kCommitted, "p", peer_address, {42}});
  here.restart();
  EXPECT_EQ(here.daemon->action({"post-dump", 1, 42}).code, 1);
  EXPECT_FALSE(here.decisions.decision(42, Side::kSource));
  EXPECT_FALSE(there.decisions.decision(42, Side::kDestination));
}

TEST_F(DaemonTest, APromiseWhoseDestinationIsSilentWaitsForAnOperator) {
  here.decisions.record(Side::kSource, {Decision::kCommitted, "p", "127.0.0.1:1", {43}});
  here.restart();
  std::atomic<int> answer{-1};
  std::thread script([&] { answer = here.daemon->action({"post-dump", 1, 43}).code; });
  EXPECT_TRUE(eventually([&] {
    const auto ps = here.daemon->ps(0);
    return ps.programs_size() == 1 && ps.programs(0).state() == "in doubt";
  }));
  EXPECT_NE(failure_of([&] { here.daemon->resolve(0, 43, true); }), "");
  EXPECT_EQ(answer, -1);
  here.daemon->resolve(0, 43, false);
  script.join();
  EXPECT_EQ(answer, 1);
  EXPECT_NE(failure_of([&] { here.daemon->resolve(0, 43, false); }).find("is in doubt"),
            std::string::npos);
  // A ferryd that ends leaves the question to its successor.
  here.decisions.record(Side::kSource, {Decision::kCommitted, "p", "127.0.0.1:1", {44}});
  here.restart();
  std::thread next([&] { answer = here.daemon->action({"post-dump", 1, 44}).code; });
  ::usleep(1000);
  here.host.stopping = true;
  next.join();
  EXPECT_EQ(answer, EAGAIN);
}

// --- A ferryd that was killed and started again.

// What was stopped and is not on record as committed gets its socket back, into its slot.
TEST_F(DaemonTest, WhatAFormerFerrydStoppedGoesOn) {
  PlayedProcess process(here.folder.path("sock"), {.slot = 74});
  ASSERT_TRUE(eventually([&] { return here.control->processes().size() == 1; }));
  const auto paused = here.daemon->pause_tree(process.pid());
  ASSERT_EQ(paused.code, 0) << paused.error;
  EXPECT_EQ(process.seen().stopped, 1);
  EXPECT_EQ(process.seen().resumed, 0);
  here.restart();
  // What somebody dumps of it now would have no sockets.
  EXPECT_NE(here.daemon->frozen(process.pid()).code, 0);
  EXPECT_TRUE(eventually([&] { return process.seen().resumed == 1; }));
  EXPECT_TRUE(process.seen().rollback);
  EXPECT_TRUE(process.seen().same_socket);
  EXPECT_TRUE(eventually([&] { return here.decisions.entries().empty(); }));
}

TEST_F(DaemonTest, WhoTookTheSlotMeanwhileKeepsIt) {
  PlayedProcess process(here.folder.path("sock"), {.slot = 75});
  ASSERT_TRUE(eventually([&] { return here.control->processes().size() == 1; }));
  EXPECT_EQ(here.daemon->pause_tree(process.pid()).code, 0);
  here.stop();
  int error = 0;
  const auto other = port::UdpPort::bind(PlayedProcess::address(), 75, &error);
  ASSERT_NE(other, nullptr) << error;
  here.restart();
  EXPECT_TRUE(eventually([&] { return process.seen().resumed == 1; }));
  EXPECT_TRUE(process.seen().rollback);
  EXPECT_FALSE(process.seen().same_socket);
}

// What a former ferryd took off its network, for a move that comes to nothing, is on it again: CRIU
// may be no more and not ask for it. If it asks, it gets it once more, also when all is over: the
// former's `hold` may have ended last.
TEST_F(DaemonTest, TheContainerOfAnAbortedMoveIsOnItsNetworkAgain) {
  constexpr std::uint64_t kMove = 0x61;
  const auto hook = here.folder.script("hook", "echo \"$1 $2\" >>" + here.folder.path("hooked"));
  std::destroy_at(&here.containers);
  std::construct_at(&here.containers, here.folder.path("containers"), hook);
  const pid_t root = fork_idle();
  std::filesystem::create_directories(here.folder.path("containers/p"));
  here.folder.write("containers/p/config.json",
                    "{\"name\": \"p\", \"pid\": " + std::to_string(root) +
                        ", \"state\": \"running\", \"netns\": \"\", \"instance\": \"p.1\"}");
  const auto hooked = [&] { return here.folder.read("hooked"); };
  Held held;
  held.program = "p";
  held.instance = "p.1";
  held.peer = "there@" + there.host.address;
  held.boot = stamp_now().boot;
  held.root = root;
  held.started = start_time(root);
  held.processes.push_back({root, held.started, 0, {5, {}}});
  here.decisions.note(Journal::held(kMove, Side::kSource, held));
  here.restart();
  EXPECT_TRUE(eventually([&] { return hooked() == "activate p.1\n"; }));
  EXPECT_EQ(here.daemon->action({"network-unlock", root, kMove}).code, 0);
  EXPECT_EQ(hooked(), "activate p.1\nactivate p.1\n");
  here.decisions.over(kMove, Side::kSource);
  here.restart();
  EXPECT_EQ(here.daemon->action({"network-unlock", root, kMove}).code, 0);
  EXPECT_EQ(hooked(), "activate p.1\nactivate p.1\nactivate p.1\n");
  // Somebody else's process.
  EXPECT_EQ(here.daemon->action({"network-unlock", root + 1, kMove}).code, 0);
  EXPECT_EQ(hooked(), "activate p.1\nactivate p.1\nactivate p.1\n");
  ::kill(root, SIGKILL);
  ::waitpid(root, nullptr, 0);
}

// A program that has left, from a slot that its RNIC was opened in.
struct LeftTest : DaemonTest {
  static constexpr std::uint64_t kMove = 0x51;
  const port::Address address = PlayedProcess::address();
  rnic::Slot old, now;
  Held held;
  void leave(std::uint32_t slot, bool at_origin,
             transport::Time paused_limit = transport::MigrationSettings().paused_limit) {
    old.local = {address, port::udp_port_of_slot(slot)};
    old.slot = slot;
    old.epoch = 1;
    if (at_origin) {
      old.origin = old.local;
    } else {
      // A peer that has to be told.
      transport::StoppedEnd qp;
      qp.wire_qpn = port::make_qpn(slot, 99);
      qp.peer_class = transport::PeerClass::kFerry;
      qp.paused_limit = paused_limit;
      wire::ByteWriter out(&old.entries.emplace_back());
      qp.save(out);
    }
    now = old;
    now.entries.clear();
    now.local.address = port::Address::from_ipv4(0x7F4E0002);
    held.program = "p";
    held.peer = "there@" + there.host.address;
    held.processes.push_back({1 << 30, 1, 0, {5, {{"lo", {old}}}}});
    here.decisions.note(Journal::held(kMove, Side::kSource, held));
    here.decisions.note(Journal::going(kMove, {"there", {{5, {{"lo", {now}}}}}}));
    here.decisions.record(Side::kSource, {Decision::kConfirmed, "p", held.peer, {kMove}});
  }
  bool is_free() {
    int error = 0;
    return port::UdpPort::bind(address, old.slot, &error) != nullptr;
  }
  bool is_forgotten() { return here.decisions.entries().empty(); }
};

TEST_F(LeftTest, ItsSlotIsKeptUntilItEnds) {
  leave(76, true);
  EXPECT_TRUE(is_free());
  here.restart();
  EXPECT_FALSE(is_free());
  EXPECT_TRUE(eventually([&] { return here.origins->kept(address).size() == 1; }));
  // No peer is left to be told: only the origin is kept, also by the next ferryd.
  EXPECT_TRUE(eventually([&] {
    const auto entries = here.decisions.entries();
    return entries.size() == 1 && entries.begin()->second.over;
  }));
  here.restart();
  EXPECT_FALSE(is_free());
  ASSERT_EQ(here.origins->kept(address).size(), 1u);
  EXPECT_EQ(here.origins->kept(address).front().location, now.local);
  EXPECT_EQ(here.origins->kept(address).front().host, "there");
  // It is moved on, and that is remembered.
  Place next{old.origin, now.local, "there", there.host.address, 2, false};
  next.location.address = port::Address::from_ipv4(0x7F4E0003);
  there.directory->put(next);
  EXPECT_TRUE(eventually([&] { return here.origins->kept(address).front().epoch == 2; }));
  here.restart();
  EXPECT_EQ(here.origins->kept(address).front().location, next.location);
  there.directory->remove(next);
  EXPECT_TRUE(eventually([&] { return is_forgotten(); }));
  EXPECT_TRUE(eventually([&] { return is_free(); }));
}

// Whoever has its process id later has another network.
TEST_F(LeftTest, ANetworkThatIsNamedAfterAProcessIsGoneWithIt) {
  const pid_t process = fork_idle();
  held.boot = stamp_now().boot;
  held.netns = "/proc/" + std::to_string(process) + "/ns/net";
  held.root = process;
  held.started = start_time(process);
  leave(79, true);
  here.restart();
  EXPECT_FALSE(is_free());
  held.started += 1;
  here.decisions.note(Journal::held(kMove, Side::kSource, held));
  here.restart();
  EXPECT_TRUE(is_free());
  EXPECT_TRUE(eventually([&] { return is_forgotten(); }));
  ::kill(process, SIGKILL);
  ::waitpid(process, nullptr, 0);
}

TEST_F(LeftTest, TheTermGoesOnFromWhereItWas) {
  leave(77, false);
  Stamp since = stamp_now();
  here.decisions.note(Journal::since(kMove, since));
  here.restart();
  EXPECT_FALSE(is_free());
  EXPECT_FALSE(is_forgotten());
  here.restart();
  EXPECT_FALSE(is_free());
  since.up -= Limits().stand_in;
  here.decisions.note(Journal::since(kMove, since));
  here.restart();
  EXPECT_TRUE(eventually([&] { return is_forgotten(); }));
  EXPECT_TRUE(eventually([&] { return is_free(); }));
}

// Whoever reports to us has gone before: a minute for peers that move as well.
TEST_F(LeftTest, TheEndOfTheTermGoesOnFromWhereItWas) {
  leave(78, false);
  here.decisions.note(Journal::since(kMove, stamp_now()));
  Stamp left = stamp_now();
  left.up -= transport::MigrationSettings().paused_limit;
  here.decisions.note(Journal::left(kMove, left));
  here.restart();
  EXPECT_TRUE(eventually([&] { return is_forgotten(); }));
  EXPECT_TRUE(eventually([&] { return is_free(); }));
}

// A program may set its Paused limit.
TEST_F(LeftTest, ALongPausedLimitMakesTheEndOfTheTermLonger) {
  constexpr auto kLimit = std::chrono::minutes(5);
  leave(79, false, kLimit);
  here.decisions.note(Journal::since(kMove, stamp_now()));
  Stamp left = stamp_now();
  left.up -= kLimit - std::chrono::minutes(1);
  here.decisions.note(Journal::left(kMove, left));
  here.restart();
  EXPECT_FALSE(is_free());
  EXPECT_FALSE(is_forgotten());
  left.up -= std::chrono::minutes(1);
  here.decisions.note(Journal::left(kMove, left));
  here.restart();
  EXPECT_TRUE(eventually([&] { return is_forgotten(); }));
  EXPECT_TRUE(eventually([&] { return is_free(); }));
}

TEST_F(LeftTest, ANetworkThatIsGoneIsGivenUp) {
  old.slot = 78;
  Held entry;
  entry.program = "p";
  entry.peer = "there@" + there.host.address;
  entry.netns = here.folder.path("no-such-namespace");
  rnic::Slot slot;
  slot.local = slot.origin = {address, port::udp_port_of_slot(78)};
  slot.slot = 78;
  rnic::Slot there_slot = slot;
  there_slot.local.address = port::Address::from_ipv4(0x7F4E0002);
  entry.processes.push_back({1 << 30, 1, 0, {5, {{"lo", {slot}}}}});
  here.decisions.note(Journal::held(kMove, Side::kSource, entry));
  here.decisions.note(Journal::going(kMove, {"there", {{5, {{"lo", {there_slot}}}}}}));
  here.decisions.record(Side::kSource, {Decision::kConfirmed, "p", entry.peer, {kMove}});
  here.restart();
  EXPECT_TRUE(eventually([&] { return is_forgotten(); }));
  EXPECT_TRUE(here.origins->kept(address).empty());
}

// A program that was restored here, and committed; it asks for its socket when its ferryd is
// another.
TEST_F(DaemonTest, WhatAFormerFerrydCommittedGoesOn) {
  const pid_t root = fork_idle();
  rnic::Slot slot;
  slot.local = {PlayedProcess::address(), port::udp_port_of_slot(79)};
  slot.slot = 79;
  Held held;
  held.program = "p";
  held.peer = "@" + here.host.address;
  held.boot = stamp_now().boot;
  held.root = root;
  held.started = start_time(root);
  held.processes.push_back({root, held.started, 0, {root, {{"lo", {slot}}}}});
  there.decisions.note(Journal::held(61, Side::kDestination, held));
  there.decisions.record(Side::kDestination, {Decision::kCommitted, "p", "", {61}});
  v1::PastMove begun;
  begun.set_move_id(61);
  there.accounts->begun(Side::kDestination, begun);
  there.restart();
  EXPECT_EQ(there.history.under_way().size(), 1u);
  EXPECT_EQ(there.daemon->action({"post-restore", root, 61}).code, 0);
  int error = 0;
  EXPECT_EQ(port::UdpPort::bind(PlayedProcess::address(), 79, &error), nullptr);
  EXPECT_FALSE(there.daemon->awake(::getpid(), {61, {}}).resume);  // not its move
  const auto answer = there.daemon->awake(root, {61, {}});
  ASSERT_TRUE(answer.resume);
  EXPECT_FALSE(answer.resume->rollback);
  EXPECT_EQ(answer.resume->contexts.at(0).slots.at(0).local, slot.local);
  UniqueFd given(answer.resume->contexts[0].slots[0].descriptor);
  EXPECT_TRUE(given);
  there.daemon->resumed(root, {61, 0, 1, 1});
  // Whoever watches hears all of it, also who comes late.
  EXPECT_TRUE(there.first_event(61).has_resumed());
  EXPECT_EQ(there.history.moves().at(0).outcome(), "moved");
  // Its source has forgotten the move: when the program has ended, so can we.
  EXPECT_TRUE(there.decisions.decision(61, Side::kDestination));
  ::kill(root, SIGKILL);
  ::waitpid(root, nullptr, 0);
  EXPECT_TRUE(eventually([&] { return there.decisions.entries().empty(); }));
}

// No user, operator or other host has given it up.
TEST_F(DaemonTest, AnArrivalThatEndsWithItsFerrydHasFailed) {
  prepare(62);
  there.restart();
  const auto move = there.history.moves().at(0);
  EXPECT_EQ(move.outcome(), "failed");
  EXPECT_EQ(move.step(), "prepare");
  EXPECT_EQ(move.reason(), "ferryd ends");
}

// What was not committed when its ferryd was killed is taken down by the next one.
TEST_F(DaemonTest, AnArrivalThatWasNotCommittedIsClearedUp) {
  const std::string released = there.folder.path("released");
  const std::string hook =
      there.folder.script("hook", "[ $1 != release ] || echo $2 >" + released + "\n");
  there.containers = LabRuntime(there.folder.path("containers"), hook);
  std::filesystem::create_directories(there.folder.path("containers/p"));
  there.folder.write("containers/p/config.json",
                     R"({"name": "p", "state": "restoring", "restored": true, "instance": "p.7"})");
  there.restart();
  EXPECT_EQ(there.folder.read("released"), "p.7\n");
  EXPECT_FALSE(there.containers.find("p"));
}

// Its name is free again as soon as anybody is told that ferryd would take a program of that name.
TEST_F(DaemonTest, NobodyIsCheckedWhileAnArrivalIsClearedUp) {
  const std::string begun = there.folder.path("begun");
  const std::string go = there.folder.path("go");
  const std::string hook =
      there.folder.script("hook", "[ $1 = release ] || exit 0\ntouch " + begun + "\nuntil [ -e " +
                                      go + " ]; do sleep 0.02; done\n");
  there.containers = LabRuntime(there.folder.path("containers"), hook);
  std::filesystem::create_directories(there.folder.path("containers/p"));
  there.folder.write("containers/p/config.json",
                     R"({"name": "p", "state": "restoring", "restored": true, "instance": "p.7"})");
  const std::string address = there.host.address;
  std::thread restart([&] { there.restart(); });
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(begun); }));
  auto request = good_check();
  request.set_kind("lab");
  auto refused = std::async(std::launch::async, [&] {
    v1::CheckReply reply;
    return failure_of([&] { Peer(address, nullptr).call(request, &reply, seconds(20)); });
  });
  refused.wait_for(milliseconds(300));  // who does not wait has answered by now
  there.folder.write("go", "");
  EXPECT_EQ(refused.get(), "");
  restart.join();
}

// podman is asked for that by a thread of its own.
TEST_F(DaemonTest, NobodyIsCheckedWhileAContainerOfPodmansIsRemoved) {
  const std::string begun = there.folder.path("begun");
  const std::string go = there.folder.path("go");
  const std::string removed = there.folder.path("removed");
  there.folder.script(
      "podman", "[ \"$1\" = rm ] || { echo 'no such container' >&2; exit 125; }\ntouch " + begun +
                    "\nuntil [ -e " + go + " ]; do sleep 0.02; done\ntouch " + removed + "\n");
  PodmanNotes(there.folder.path("state")).arrives("a-token", {"c5213a56e362", "web", {}, ""});
  there.restart();
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(begun); }));
  auto request = good_check();
  request.set_kind("podman");
  request.set_details(R"({"id": "c5213a56e362", "name": "web", "image": "", "image_name": "",
                          "sources": [], "networks": [], "volumes": [], "network_mode": "host",
                          "resident_bytes": 0})");
  const std::string address = there.host.address;
  auto is_removed = std::async(std::launch::async, [&] {
    v1::CheckReply reply;
    // What it answers depends on whether this machine has CRIU's plugin.
    failure_of([&] { Peer(address, nullptr).call(request, &reply, seconds(20)); });
    return std::filesystem::exists(removed);
  });
  is_removed.wait_for(milliseconds(300));  // who does not wait has answered by now
  there.folder.write("go", "");
  EXPECT_TRUE(is_removed.get());
}

TEST_F(DaemonTest, WhatIsCommittedCannotBeAborted) {
  there.decisions.record(Side::kDestination, {Decision::kCommitted, "p", "", {45}});
  std::string reason;
  EXPECT_EQ(ask_to_abort(peer, 45, &reason), Answer::kCommitted);
  EXPECT_EQ(ask_to_abort(peer, 46, &reason), Answer::kAborted);
  EXPECT_EQ(ask_to_commit(peer, 46, &reason), Answer::kAborted);
  Peer nobody("127.0.0.1:1", nullptr);
  EXPECT_EQ(ask_to_commit(nobody, 46, &reason), Answer::kUnknown);
  EXPECT_EQ(ask_to_abort(nobody, 46, &reason), Answer::kUnknown);
}

TEST_F(DaemonTest, AFerrydThatIsBeingKilledIsNotThere) {
  UniqueFd listener = listen_tcp("127.0.0.1", 0);
  Peer dying(join_host_port("127.0.0.1", local_port(listener.get())), nullptr);
  // The kernel still accepts for it: the call, and the look at why that failed.
  std::thread killed([&] {
    for (int i = 0; i < 2; ++i) UniqueFd(::accept(listener.get(), nullptr, nullptr));
    listener.reset();
  });
  v1::CheckReply reply;
  EXPECT_NE(failure_of([&] {
              dying.call(good_check(), &reply, seconds(20));
            }).find("there is no ferryd on 127.0.0.1:"),
            std::string::npos);
  killed.join();
}

TEST_F(DaemonTest, FailuresLeaveTheProgramWhereItIs) {
  PlayedProcess process(here.folder.path("sock"), {.slot = 71});
  ASSERT_TRUE(eventually([&] { return here.control->processes().size() == 1; }));
  const auto quiet = [](const v1::MoveProgress&) {};
  const std::string pid = std::to_string(process.pid());
  EXPECT_NE(failure_of([&] {
              here.daemon->move(0, {pid}, "no.such.host.invalid", {}, quiet);
            }).find("unknown host"),
            std::string::npos);
  EXPECT_NE(failure_of([&] {
              here.daemon->move(0, {pid}, "127.0.0.1:1", {}, quiet);
            }).find("there is no ferryd on 127.0.0.1:1"),
            std::string::npos);
  EXPECT_NE(failure_of([&] {
              here.daemon->move(0, {std::to_string(::getpid()) + "0000"}, there.host.address, {},
                                quiet);
            }),
            "");
  EXPECT_NE(failure_of([&] {
              here.daemon->move(0, {"nothing-of-that-name"}, there.host.address, {}, quiet);
            }).find("there is no program 'nothing-of-that-name' on here"),
            std::string::npos);
  EXPECT_NE(failure_of([&] {
              here.daemon->move(0, {pid, pid}, there.host.address, {}, quiet);
            }).find("are of one program"),
            std::string::npos);
  EXPECT_NE(failure_of([&] {
              here.daemon->move(0, {pid, "nothing-of-that-name"}, there.host.address, {}, quiet);
            }).find("programs that move together are all on one host"),
            std::string::npos);
  // CRIU ends without having dumped: nothing was stopped, the destination is told.
  EXPECT_NE(failure_of([&] {
              here.daemon->move(0, {pid}, there.host.address, {}, quiet);
            }).find("was not moved: criu dump ended too early"),
            std::string::npos);
  EXPECT_EQ(process.seen().stopped, 0);
  EXPECT_TRUE(std::filesystem::is_empty(there.folder.path("images")));
  EXPECT_TRUE(std::filesystem::is_empty(here.folder.path("images")));
  const auto ps = here.daemon->ps(0);
  ASSERT_EQ(ps.programs_size(), 1);
  EXPECT_EQ(ps.programs(0).state(), "running");
  EXPECT_EQ(ps.programs(0).devices(0).name(), "played0");
}

// A runtime's CRIU with our plugin, and no move of ours.
TEST_F(DaemonTest, AForeignCheckpointStopsAndGivesBack) {
  EXPECT_EQ(here.daemon->pause_tree(::getpid()).code, 0);  // no Ferry process in the tree
  PlayedProcess process(here.folder.path("sock"), {.slot = 72});
  ASSERT_TRUE(eventually([&] { return here.control->processes().size() == 1; }));
  EXPECT_EQ(here.daemon->pause_tree(process.pid()).code, 0);
  EXPECT_EQ(process.seen().stopped, 1);
  EXPECT_EQ(here.daemon->frozen(process.pid()).code, 0);
  EXPECT_TRUE(eventually([&] { return process.seen().resumed == 1; }));
  EXPECT_TRUE(process.seen().rollback);
  EXPECT_TRUE(process.seen().same_socket);
}

// On a busy machine: the daemon keeps house three times while the process stops.
TEST_F(DaemonTest, AForeignCheckpointMayTakeLongToStop) {
  PlayedProcess process(here.folder.path("sock"), {.slot = 73, .stop_ms = 700});
  ASSERT_TRUE(eventually([&] { return here.control->processes().size() == 1; }));
  EXPECT_EQ(here.daemon->pause_tree(process.pid()).code, 0);
  EXPECT_EQ(here.daemon->frozen(process.pid()).code, 0);
  EXPECT_TRUE(eventually([&] { return process.seen().resumed == 1; }));
  EXPECT_TRUE(process.seen().same_socket);
}

}  // namespace
}  // namespace ferry::host
