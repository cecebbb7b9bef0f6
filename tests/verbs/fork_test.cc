#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "rig.h"
#include "verbs/objects.h"

namespace ferry::verbs {
namespace {

// Runs `body` in a child, and gives its exit code, or minus the signal that has ended it: SIGALRM after 60 s, SIGKILL
// if it does not get out of fork() within 60 s.
template <typename Body>
int in_child(Body body) {
  int out_of_fork[2];
  if (::pipe(out_of_fork) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::close(out_of_fork[0]);
    ::close(out_of_fork[1]);
    ::_exit(body());
  }
  ::close(out_of_fork[1]);
  pollfd end{out_of_fork[0], POLLIN, 0};
  if (::poll(&end, 1, 60'000) == 0) ::kill(child, SIGKILL);
  ::close(out_of_fork[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(FullRig, AChildsCallsFailAndDoNotHang) {
  const int code = in_child([&] {
    if (ibv_alloc_pd(context) || errno != ENODEV) return 1;
    if (ibv_reg_mr(pd, memory, 8, 0) || errno != ENODEV) return 2;
    if (ibv_create_cq(context, 1, nullptr, nullptr, 0) || errno != ENODEV) return 3;
    ibv_qp_attr attributes{};
    if (ibv_modify_qp(qp, &attributes, 0) != ENODEV) return 4;
    ibv_cq* from;
    void* its_context;
    if (ibv_get_cq_event(channel, &from, &its_context) != -1 || errno != ENODEV) return 5;
    if (ibv_destroy_qp(qp) != ENODEV) return 6;
    ibv_device_attr device;
    if (ibv_query_device(context, &device) != ENODEV) return 7;
    if (fake_log()->count("abandon") != 1) return 8;
    return 0;
  });
  EXPECT_EQ(code, 0);
  // The parent goes on.
  EXPECT_EQ(log.count("abandon"), 0u);
  ibv_pd* another = ibv_alloc_pd(context);
  ASSERT_NE(another, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(another), 0);
}

// Makes an ID, and looks whether it is there.
struct CmCommand {
  rdma_ucm_create_id_resp answer{};
  struct {
    rdma_ucm_cmd_hdr header{RDMA_USER_CM_CMD_CREATE_ID, sizeof(rdma_ucm_create_id),
                            sizeof(rdma_ucm_create_id_resp)};
    rdma_ucm_create_id body{};
  } command;
  CmCommand() {
    command.body.uid = 1;
    command.body.ps = RDMA_PS_TCP;
    command.body.response = reinterpret_cast<std::uintptr_t>(&answer);
  }
  bool works(int cm) {
    return ::write(cm, &command, sizeof command) == static_cast<ssize_t>(sizeof command);
  }
  // Whether the ID that `works` made is there still.
  bool remains(int cm) {
    rdma_ucm_destroy_id_resp gone{};
    struct {
      rdma_ucm_cmd_hdr header{RDMA_USER_CM_CMD_DESTROY_ID, sizeof(rdma_ucm_destroy_id),
                              sizeof gone};
      rdma_ucm_destroy_id body{};
    } destroy;
    destroy.body.id = answer.id;
    destroy.body.response = reinterpret_cast<std::uintptr_t>(&gone);
    return ::write(cm, &destroy, sizeof destroy) == static_cast<ssize_t>(sizeof destroy);
  }
};

TEST_F(FullRig, RdmaCmOfTheParentFailsInAChild) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "TSan does not let a child start threads";
#endif
  const int cm = ::open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
  ASSERT_GE(cm, 0);
  CmCommand parent;
  ASSERT_TRUE(parent.works(cm));
  const int code = in_child([&] {
    auto& command = parent.command;
    if (::write(cm, &command, sizeof command) != -1 || errno != ENODEV) return 1;
    command.header.cmd = RDMA_USER_CM_CMD_GET_EVENT;
    if (::write(cm, &command, sizeof command) != -1 || errno != ENODEV) return 2;
    command.header.cmd = RDMA_USER_CM_CMD_CREATE_ID;
    if (::close(cm) != 0) return 3;
    const int own = ::open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
    if (own < 0) return 4;
    return parent.works(own) ? 0 : 5;
  });
  EXPECT_EQ(code, 0);
  struct stat status;
  ASSERT_EQ(::fstat(cm, &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  EXPECT_TRUE(parent.works(cm));  // it goes on
  // Whatever has its number afterwards is left alone.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::dup2(ends[1], cm), cm);
  EXPECT_EQ(::write(cm, "abc", 3), 3);
  ::close(cm);
  ::close(ends[0]);
  ::close(ends[1]);
}

// As launchers of programs do before they execute another: posix_spawn, and JDK 11's Runtime.exec.
TEST_F(FullRig, WhatAChildAfterVforkClosesStaysOpen) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "TSan does not know threads that it did not start";
#endif
  const int cm = ::open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
  CmCommand parent;
  ASSERT_TRUE(parent.works(cm));
  alignas(16) static char stack[1 << 16];
  const pid_t child = ::clone(
      [](void* descriptor) {
        const int number = *static_cast<int*>(descriptor);
        ::close(number);
        if (::open("/dev/null", O_WRONLY) != number) return 1;
        return ::write(number, "abc", 3) == 3 ? 0 : 2;
      },
      stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, const_cast<int*>(&cm));
  ASSERT_GT(child, 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(parent.remains(cm));
  EXPECT_EQ(::close(cm), 0);
}

// Its number belongs to something else, which is closed; the channel lives on under another one.
TEST_F(FullRig, AnotherFilesEndUnderItsNumberIsNotItsOwn) {
  const int cm = ::open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
  CmCommand command;
  ASSERT_TRUE(command.works(cm));
  const int kept = ::dup(cm);
  const int null = ::open("/dev/null", O_WRONLY);
  ASSERT_EQ(::dup2(null, cm), cm);
  EXPECT_EQ(::close(cm), 0);
  ASSERT_EQ(::dup2(kept, cm), cm);  // back again: as a launcher does that saves its descriptors
  EXPECT_EQ(::close(kept), 0);
  EXPECT_TRUE(command.remains(cm));
  EXPECT_EQ(::close(cm), 0);
  EXPECT_EQ(::close(null), 0);
}

TEST_F(FullRig, AChildsCallsFailWhateverTheParentHeld) {
  ibv_mr* mr = ibv_reg_mr(pd, memory, 8, 0);
  ibv_srq_init_attr srq_attributes{nullptr, {4, 1, 0}};
  ibv_srq* srq = ibv_create_srq(pd, &srq_attributes);
  ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  ibv_xrcd_init_attr xrcd_attributes{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1,
                                     O_CREAT};
  ibv_xrcd* xrcd = ibv_open_xrcd(context, &xrcd_attributes);
  ASSERT_TRUE(mr && srq && mw && xrcd);
  std::promise<void> held, forked;
  std::thread holder([&] {
    std::lock_guard lock(context_of(context)->mutex);
    held.set_value();
    forked.get_future().wait();
  });
  held.get_future().wait();
  const int code = in_child([&] {
    if (ibv_dealloc_pd(pd) != ENODEV || ibv_dereg_mr(mr) != ENODEV) return 1;
    if (ibv_destroy_srq(srq) != ENODEV || ibv_dealloc_mw(mw) != ENODEV) return 2;
    if (ibv_close_xrcd(xrcd) != ENODEV || ibv_open_xrcd(context, &xrcd_attributes)) return 3;
    if (ibv_create_srq(pd, &srq_attributes) || ibv_alloc_mw(pd, IBV_MW_TYPE_1)) return 4;
    if (ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0) == 0) return 5;
    if (ibv_import_pd(context, pd->handle) || ibv_import_mr(pd, mr->handle)) return 6;
    ibv_unimport_mr(mr);
    ibv_unimport_pd(pd);
    ibv_values_ex values{};
    if (ibv_query_rt_values_ex(context, &values) != ENODEV) return 7;
    ibv_td_init_attr thread{};
    if (ibv_alloc_td(context, &thread) || errno != ENODEV) return 8;
    ibv_ah_attr ah{};
    ah.is_global = 1;
    if (ibv_create_ah(pd, &ah) || errno != ENODEV) return 9;
    return ibv_close_device(context) == 0 ? 0 : 10;
  });
  EXPECT_EQ(code, 0);
  forked.set_value();
  holder.join();
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Rig, AChildCanOpenADeviceOfItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "TSan does not let a child start threads";
#endif
  EXPECT_EQ(in_child([&] {
              ibv_context* own = ibv_open_device(context->device);
              if (!own) return 1;
              if (!ibv_alloc_pd(own)) return 2;
              return ibv_close_device(context) == 0 ? 0
                                                    : 3;  // giving the parent's away is harmless
            }),
            0);
}

TEST_F(Rig, AChildFindsDevicesWhateverThreadsDidInTheParent) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers do not let a child go on after fork() from several threads";
#endif
  const auto look = [] { return ::access("/sys/class/infiniband/fake0", F_OK); };
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done.load()) look();
  });
  for (int i = 0; i < 50; ++i) EXPECT_EQ(in_child(look), 0);
  done.store(true);
  other.join();
}

// A context with a device of the kernel, which a child has as well, but not while the parent's is away.
struct ForkBesideAMove : Rig {
  ibv_pd* pd = nullptr;
  void SetUp() override {
    set_own_descriptors(true);
    set_virtual(true);
    Rig::SetUp();
    set_virtual(false);
    set_own_descriptors(false);
    pd = ibv_alloc_pd(context);
    ASSERT_NE(pd, nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    Rig::TearDown();
  }
  device::MovableContext& device() const { return *context_of(context)->device; }
  int quiesce() const {
    std::uint32_t unacked = 0;
    return device().quiesce(std::chrono::seconds(10), &unacked);
  }
  int works_in_child() const {
    return in_child([&] {
      ibv_pd* own = ibv_alloc_pd(context);
      return own != nullptr && ibv_dealloc_pd(own) == 0 ? 0 : 1;
    });
  }
  int fails_in_child() const {
    return in_child([&] {
      if (ibv_alloc_pd(context) || errno != ENODEV) return 1;
      if (ibv_dealloc_pd(pd) != ENODEV) return 2;
      ibv_device_attr attributes;
      if (ibv_query_device(context, &attributes) != ENODEV) return 3;
      return ibv_close_device(context) == 0 ? 0 : 4;
    });
  }
};

TEST_F(ForkBesideAMove, AChildDoesNotWaitForADeviceThatIsAway) {
  EXPECT_EQ(works_in_child(), 0);
  ASSERT_EQ(quiesce(), 0);
  EXPECT_EQ(fails_in_child(), 0) << "nobody would end the stop in the child";
  device::Parcel parcel;
  ASSERT_EQ(device().park(&parcel), 0);
  EXPECT_EQ(fails_in_child(), 0);
  ASSERT_EQ(device().unpark(parcel), 0);
  EXPECT_EQ(fails_in_child(), 0);
  device().resume(false);
  EXPECT_EQ(works_in_child(), 0);
}

// The child is without the thread that waits, and does not wait for it either.
TEST_F(ForkBesideAMove, AChildEndsAContextThatAThreadOfTheParentWaitsFor) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "TSan does not let a child go on after fork() from several threads";
#endif
  ASSERT_EQ(quiesce(), 0);
  auto made = std::async(std::launch::async, [&] { return ibv_alloc_pd(context); });
  EXPECT_EQ(made.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(fails_in_child(), 0);
  device().resume(true);
  ibv_pd* other = made.get();
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(ForkBesideAMove, AChildHasADeviceThatThreadsWereUsing) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers do not let a child go on after fork() from several threads";
#endif
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done.load()) device().checks_requests();
  });
  for (int i = 0; i < 50; ++i) {
    const int code = in_child([&] { return device().checks_requests() ? 0 : 1; });
    EXPECT_EQ(code, 0);
  }
  done.store(true);
  other.join();
}

TEST(Fork, InitSucceeds) {
  EXPECT_EQ(ibv_fork_init(), 0);
}

}  // namespace
}  // namespace ferry::verbs
