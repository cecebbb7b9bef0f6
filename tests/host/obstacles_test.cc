#include "host/units/obstacles.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/if_tun.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "host/units/rdma_cm.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using test::Folder;

// A child that holds something until it is killed. `hold` gives false for what this machine does not have.
class Holder {
 public:
  enum class FirstThread { kStays, kEnds };
  explicit Holder(const std::function<bool()>& hold, FirstThread then = FirstThread::kStays) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const char has = hold() ? 1 : 0;
      if (::write(ready[1], &has, 1) != 1) ::_exit(1);
      if (then == FirstThread::kEnds) ::syscall(SYS_exit, 0);
      for (;;) ::pause();
    }
    char has = 0;
    EXPECT_EQ(::read(ready[0], &has, 1), 1);
    has_ = has != 0;
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Holder() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  bool has() const { return has_; }

 private:
  pid_t pid_ = 0;
  bool has_ = false;
};

testing::AssertionResult says(const std::string& line, const std::string& text) {
  if (line.find(text) != std::string::npos && line.find('\n') == std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "'" << line << "' has no '" << text << "'";
}

int new_io_uring() {
  io_uring_params parameters{};
  return static_cast<int>(::syscall(SYS_io_uring_setup, 4, &parameters));
}

int new_bpf_map() {
  bpf_attr map{};
  map.map_type = BPF_MAP_TYPE_ARRAY;
  map.key_size = map.value_size = 4;
  map.max_entries = 1;
  return static_cast<int>(::syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map));
}

int new_perf_event() {
  perf_event_attr event{};
  event.type = PERF_TYPE_SOFTWARE;
  event.size = sizeof event;
  event.config = PERF_COUNT_SW_PAGE_FAULTS;
  event.exclude_kernel = 1;
  return static_cast<int>(::syscall(SYS_perf_event_open, &event, 0, -1, -1, 0));
}

void* rests(void*) {
  for (;;) ::pause();
}

// What a process does only after a while.
std::string await_obstacle(pid_t pid) {
  std::string found;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (found.empty() && std::chrono::steady_clock::now() < deadline)
    found = find_obstacle(pid, OuterStreams::kRuntimes);
  return found;
}

TEST(Obstacles, AProcessWithOrdinaryDescriptorsHasNone) {
  const Folder folder;
  const Holder holder([&] {
    int pipe[2], pair[2];
    const bool all = ::eventfd(0, 0) >= 0 && ::epoll_create1(0) >= 0 && ::inotify_init() >= 0 &&
                     ::timerfd_create(CLOCK_MONOTONIC, 0) >= 0 && ::pipe(pipe) == 0 &&
                     ::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0 &&
                     ::socket(AF_INET, SOCK_STREAM, 0) >= 0 &&
                     ::socket(AF_INET6, SOCK_DGRAM, 0) >= 0 &&
                     ::socket(AF_NETLINK, SOCK_RAW, 0) >= 0 && ::memfd_create("memory", 0) >= 0 &&
                     ::open("/dev/null", O_RDWR) >= 0 && ::open("/dev/urandom", O_RDONLY) >= 0 &&
                     ::open("/dev/zero", O_RDWR) >= 0 && ::open("/proc/self/ns/net", 0) >= 0 &&
                     ::syscall(SYS_pidfd_open, ::getpid(), 0) >= 0 &&
                     ::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY) >= 0;
    sigset_t signals;
    ::sigemptyset(&signals);
    const int shared = ::open((folder.path() + "/gone").c_str(), O_RDWR | O_CREAT, 0600);
    ::unlink((folder.path() + "/gone").c_str());
    return all && ::signalfd(-1, &signals, 0) >= 0 && shared >= 0 &&
           ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED &&
           ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, shared, 0) != MAP_FAILED;
  });
  ASSERT_TRUE(holder.has());
  EXPECT_EQ(find_obstacle(holder.pid(), OuterStreams::kRuntimes), "");
}

struct Kind {
  const char* name;
  std::function<bool()> hold;
  const char* text;
};

class KindOfDescriptor : public ::testing::TestWithParam<Kind> {};

TEST_P(KindOfDescriptor, IsNamed) {
  const Holder holder(GetParam().hold);
  if (!holder.has()) GTEST_SKIP() << "this machine has no " << GetParam().name;
  const std::string found = find_obstacle(holder.pid(), OuterStreams::kRuntimes);
  EXPECT_TRUE(says(found, "process " + std::to_string(holder.pid()) + " (host_test): "));
  EXPECT_TRUE(says(found, GetParam().text));
}

bool holds(int descriptor) {
  return descriptor >= 0;
}
bool holds_socket(int domain, int type, int protocol) {
  return holds(::socket(domain, type, protocol));
}

INSTANTIATE_TEST_SUITE_P(
    All, KindOfDescriptor,
    ::testing::Values(
        Kind{"io_uring", [] { return holds(new_io_uring()); },
             " (anon_inode:[io_uring]) is of a kind that CRIU cannot move"},
        Kind{"mapped_io_uring",
             [] {
               const int ring = new_io_uring();
               const bool is_mapped =
                   ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, ring, 0) != MAP_FAILED;
               ::close(ring);
               return is_mapped;
             },
             " (anon_inode:[io_uring]) is of a kind that CRIU cannot move"},
        Kind{"bpf", [] { return holds(new_bpf_map()); },
             "(anon_inode:bpf-map) is of a kind that CRIU cannot move"},
        Kind{"perf_event", [] { return holds(new_perf_event()); },
             "(anon_inode:[perf_event]) is of a kind that CRIU cannot move"},
        Kind{"userfaultfd", [] { return holds(int(::syscall(SYS_userfaultfd, 1))); },
             "(anon_inode:[userfaultfd]) is of a kind that CRIU cannot move"},
        Kind{"fuse", [] { return holds(::open("/dev/fuse", O_RDWR)); },
             "(/dev/fuse) is a device that CRIU does not know, 10:229"},
        Kind{"path_of_loop", [] { return holds(::open("/dev/loop-control", O_PATH)); },
             "(/dev/loop-control) is a device that CRIU does not know, 10:237"},
        Kind{"block_device", [] { return holds(::open("/dev/loop0", O_RDONLY)); },
             "(/dev/loop0) is a device that CRIU does not know, 7:0"},
        Kind{"vsock", [] { return holds_socket(AF_VSOCK, SOCK_STREAM, 0); },
             "(AF_VSOCK socket) is of a protocol that CRIU cannot move"},
        Kind{"mptcp", [] { return holds_socket(AF_INET, SOCK_STREAM, 262); },
             "(MPTCP socket) is of a protocol that CRIU cannot move"},
        Kind{"sctp", [] { return holds_socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP); },
             "(SCTP socket) is of a protocol that CRIU cannot move"},
        Kind{"algorithm", [] { return holds_socket(AF_ALG, SOCK_SEQPACKET, 0); },
             "(ALG socket) is of a protocol that CRIU cannot move"},
        Kind{"thread", [] { return holds(int(::syscall(SYS_pidfd_open, ::getpid(), O_EXCL))); },
             "(anon_inode:[pidfd]) is of a thread, not of a process"},
        Kind{"packets",
             [] {
               int ends[2];
               return ::pipe2(ends, O_DIRECT) == 0;
             },
             "]) is a pipe in packet mode"},
        Kind{"secret",
             [] {
               const int secret = static_cast<int>(::syscall(SYS_memfd_secret, 0));
               return secret >= 0 && ::ftruncate(secret, 4096) == 0;
             },
             "(/secretmem (deleted)) is secret memory"},
        Kind{"tun",
             [] {
               const int tun = ::open("/dev/net/tun", O_RDWR);
               ifreq request{};
               request.ifr_flags = IFF_TUN;
               return ::unshare(CLONE_NEWNET) == 0 && ::ioctl(tun, TUNSETIFF, &request) == 0;
             },
             "(/dev/net/tun) holds the interface tun0, which does not move along"},
        Kind{"shared_memory",
             [] {
               const int id = ::shmget(IPC_PRIVATE, 4096, 0600);
               const bool is_there = ::shmat(id, nullptr, 0) != reinterpret_cast<void*>(-1);
               ::shmctl(id, IPC_RMID, nullptr);
               return is_there;
             },
             "has System V shared memory, and no IPC namespace of its own"}),
    [](const auto& kind) { return kind.param.name; });

TEST(Obstacles, AFileLockIsOne) {
  const Folder folder;
  const std::string path = folder.path() + "/lock";
  const Holder holder(
      [&] { return ::flock(::open(path.c_str(), O_RDWR | O_CREAT, 0600), LOCK_EX) == 0; });
  ASSERT_TRUE(holder.has());
  EXPECT_TRUE(
      says(find_obstacle(holder.pid(), OuterStreams::kRuntimes), "(" + path + ") has a file lock"));
}

TEST(Obstacles, ADeletedFileIsOneWhenItHasOtherNamesOrIsLarge) {
  const Folder folder;
  const std::string path = folder.path() + "/file", other = folder.path() + "/other";
  const auto create = [&] { return ::open(path.c_str(), O_RDWR | O_CREAT, 0600); };
  const Holder linked([&] {
    create();
    return ::link(path.c_str(), other.c_str()) == 0 && ::unlink(path.c_str()) == 0;
  });
  ASSERT_TRUE(linked.has());
  EXPECT_TRUE(says(find_obstacle(linked.pid(), OuterStreams::kRuntimes),
                   "(" + path + " (deleted)) was deleted, but lives on under another name"));
  const auto write_and_delete = [&](std::size_t size) {
    const std::vector<char> content(size, 'x');
    return ::write(create(), content.data(), size) == static_cast<ssize_t>(size) &&
           ::unlink(path.c_str()) == 0;
  };
  const Holder small([&] { return write_and_delete(1 << 20); });
  ASSERT_TRUE(small.has());
  EXPECT_EQ(find_obstacle(small.pid(), OuterStreams::kRuntimes), "");
  const Holder large([&] { return write_and_delete((1 << 20) + 4096); });
  ASSERT_TRUE(large.has());
  EXPECT_TRUE(says(find_obstacle(large.pid(), OuterStreams::kRuntimes),
                   "CRIU takes deleted files of 1 MiB at most"));
  const Holder mapped([&] {
    const int file = create();
    const bool is_mapped = ::ftruncate(file, 2 << 20) == 0 &&
                           ::posix_fallocate(file, 0, 2 << 20) == 0 &&
                           ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file, 0) != MAP_FAILED;
    ::close(file);
    return is_mapped && ::unlink(path.c_str()) == 0;
  });
  ASSERT_TRUE(mapped.has());
  EXPECT_TRUE(says(find_obstacle(mapped.pid(), OuterStreams::kRuntimes), "memory at "));
}

TEST(Obstacles, AUnixConnectionOutOfTheProgramIsOne) {
  const Folder folder;
  const std::string path = folder.path() + "/outside";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  // Whoever listens is neither the program nor we.
  const Holder outside([&] {
    static int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
    static const auto accepts = [](void*) -> void* {
      ::accept(listener, nullptr, nullptr);
      return rests(nullptr);
    };
    pthread_t thread;
    return ::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
           ::listen(listener, 1) == 0 && ::pthread_create(&thread, nullptr, accepts, nullptr) == 0;
  });
  ASSERT_TRUE(outside.has());
  const auto connects = [&] {
    return ::connect(::socket(AF_UNIX, SOCK_STREAM, 0), reinterpret_cast<sockaddr*>(&address),
                     sizeof address) == 0;
  };
  const Holder holder(connects);
  ASSERT_TRUE(holder.has());
  EXPECT_TRUE(says(await_obstacle(holder.pid()),
                   "(UNIX socket) is connected with " + path + ", outside of the program"));
}

// Pipes that this test was started with, whose other ends are somebody's. A child is to leave them.
std::vector<int> inherited_pipes() {
  std::vector<int> pipes;
  for (int fd = 0; fd < 1024; ++fd) {
    char target[16] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (::readlink(link.c_str(), target, sizeof target - 1) > 0 &&
        std::string(target).starts_with("pipe:[")) {
      pipes.push_back(fd);
    }
  }
  return pipes;
}
bool leave(const std::vector<int>& descriptors) {
  const int null = ::open("/dev/null", O_RDWR);
  for (const int fd : descriptors) {
    if (::dup2(null, fd) != fd) return false;
  }
  return true;
}

// It would end with SIGPIPE, or read the end of its input, at the destination.
TEST(Obstacles, APipeToAProcessThatStaysIsOne) {
  auto others = inherited_pipes();
  int out[2], in[2];
  ASSERT_EQ(::pipe(out), 0);
  ASSERT_EQ(::pipe(in), 0);
  const auto hold = [&](int kept) {
    for (const int end : {out[0], out[1], in[0], in[1]}) {
      if (end != kept) others.push_back(end);
    }
    return leave(others);
  };
  const Holder writer([&] { return hold(out[1]); });
  const Holder reader([&] { return hold(in[0]); });
  const std::string us = " is a pipe to process " + std::to_string(::getpid()) + " (";
  EXPECT_TRUE(says(find_obstacle(writer.pid(), OuterStreams::kStay),
                   "descriptor " + std::to_string(out[1]) + us));
  EXPECT_TRUE(says(find_obstacle(reader.pid(), OuterStreams::kStay),
                   "descriptor " + std::to_string(in[0]) + us));
  EXPECT_EQ(find_obstacle(reader.pid(), OuterStreams::kRuntimes),
            "");  // runtimes make the pipes of containers anew
  ::close(out[0]);
  EXPECT_EQ(find_obstacle(writer.pid(), OuterStreams::kStay), "");  // nothing is lost of it
  for (const int end : {out[1], in[0], in[1]}) ::close(end);
}

// What --stdio takes is none with it, and without it the line says so; other descriptors are not for it.
TEST(Obstacles, AStandardStreamIsNoneWhenItIsReplaced) {
  const auto others = inherited_pipes();
  int out[2], other[2];
  ASSERT_EQ(::pipe(out), 0);
  ASSERT_EQ(::pipe(other), 0);
  const auto hold = [&](bool other_too) {
    const bool left = leave(others) && ::dup2(out[1], 1) == 1;
    const int last = other_too ? other[0] : other[1];
    return left && leave({out[0], out[1], last, other_too ? last : other[0]});
  };
  const Holder printer([&] { return hold(false); });
  EXPECT_TRUE(says(find_obstacle(printer.pid(), OuterStreams::kStay),
                   "; give it a file or /dev/null, or move it with --stdio FILE"));
  EXPECT_EQ(find_obstacle(printer.pid(), OuterStreams::kReplaced), "");
  const Holder both([&] { return hold(true); });
  EXPECT_TRUE(says(find_obstacle(both.pid(), OuterStreams::kReplaced),
                   "descriptor " + std::to_string(other[1]) + " is a pipe to process "));
  for (const int end : {out[0], out[1], other[0], other[1]}) ::close(end);
}

// Or it would be moved, and whoever asked would wait for output that goes elsewhere.
TEST(Obstacles, NothingThatCouldBeReplacedIsOne) {
  const auto others = inherited_pipes();
  const Holder holder([&] { return leave(others) && leave({0, 1, 2}); });
  EXPECT_EQ(find_obstacle(holder.pid(), OuterStreams::kStay), "");
  EXPECT_TRUE(says(find_obstacle(holder.pid(), OuterStreams::kReplaced),
                   " has nothing that --stdio could take: its input and output stay its own"));
}

// Its terminal can be replaced; /dev/tty is that of its session, whose leader stays.
TEST(Obstacles, TheControllingTerminalIsOneThatCannotBeReplaced) {
  const auto others = inherited_pipes();
  int master = -1, slave = -1, dev_tty = -1;
  ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
  const auto hold = [&](bool opens_it) {
    bool all = leave(others) && leave({master}) && ::setsid() > 0;
    all = all && ::ioctl(slave, TIOCSCTTY, 0) == 0;
    for (const int fd : {0, 1, 2}) all = all && ::dup2(slave, fd) == fd;
    if (opens_it) dev_tty = ::open("/dev/tty", O_RDWR);
    return all && (!opens_it || dev_tty >= 0);
  };
  const Holder without([&] { return hold(false); });
  ASSERT_TRUE(without.has());
  EXPECT_EQ(find_obstacle(without.pid(), OuterStreams::kReplaced), "");
  ::close(slave);
  ::close(master);
  ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
  const Holder with([&] { return hold(true); });
  ASSERT_TRUE(with.has());
  const std::string found = find_obstacle(with.pid(), OuterStreams::kReplaced);
  EXPECT_TRUE(says(found, " (/dev/tty) is its controlling terminal, outside of the program"));
  EXPECT_TRUE(says(found, "; start it with setsid, so that it has none"));
  ::close(slave);
  ::close(master);
  // One of the program's own, as script(1) has one for what it runs.
  const Holder inside([&] {
    int opened[2];
    char byte = 0;
    if (::pipe(opened) != 0) return false;
    const pid_t child = ::forkpty(&master, nullptr, nullptr, nullptr);
    if (child != 0) {
      return child > 0 && leave(others) && leave({0, 1, 2}) && ::read(opened[0], &byte, 1) == 1;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!leave(others) || ::open("/dev/tty", O_RDWR) < 0 || ::write(opened[1], &byte, 1) != 1) {
      ::_exit(1);
    }
    for (;;) ::pause();
  });
  ASSERT_TRUE(inside.has());
  EXPECT_TRUE(says(find_obstacle(inside.pid(), OuterStreams::kReplaced),
                   " has nothing that --stdio could take"));
}

TEST(Obstacles, APipeWithBothEndsInsideIsNone) {
  const auto others = inherited_pipes();
  const Holder holder([&] {
    int ends[2];
    return leave(others) && ::pipe(ends) == 0;
  });
  EXPECT_EQ(find_obstacle(holder.pid(), OuterStreams::kStay), "");
}

TEST(Obstacles, WhoIsTracedCannotMove) {
  const Holder holder([] { return true; });
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, holder.pid(), nullptr, nullptr), 0);
  EXPECT_TRUE(says(find_obstacle(holder.pid(), OuterStreams::kRuntimes),
                   "is traced by process " + std::to_string(::getpid()) + " (host_test)"));
  EXPECT_EQ(::kill(holder.pid(), SIGKILL), 0);
}

TEST(Obstacles, AProcessWhoseFirstThreadHasEndedCannotMove) {
  const auto second_thread = [] {
    pthread_t thread;
    return ::pthread_create(&thread, nullptr, rests, nullptr) == 0;
  };
  const Holder whole(second_thread);
  EXPECT_EQ(find_obstacle(whole.pid(), OuterStreams::kRuntimes), "");
  const Holder headless(second_thread, Holder::FirstThread::kEnds);
  EXPECT_TRUE(says(await_obstacle(headless.pid()), "its first thread has ended, and others go on"));
}

TEST(Obstacles, ANamespaceInsideOfTheProgramIsOne) {
  const Holder holder([] {
    int ready[2];
    char byte = 0;
    if (::pipe(ready) != 0) return false;
    if (::fork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      byte = ::unshare(CLONE_NEWUTS) == 0;
      if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    return ::read(ready[0], &byte, 1) == 1 && byte == 1;
  });
  if (!holder.has()) GTEST_SKIP() << "no namespaces without privileges";
  EXPECT_TRUE(says(find_obstacle(holder.pid(), OuterStreams::kRuntimes),
                   "has a namespace (uts) of its own"));
}

TEST(Obstacles, ADescriptorOfAMountThatNobodySeesIsOne) {
  Descriptor file;
  file.target = "/data";
  file.mount = 7;
  file.file.mode = S_IFREG;
  EXPECT_EQ(obstacle_in(file, {5, 7}), "");
  EXPECT_TRUE(says(obstacle_in(file, {5}), "is of a mount that the program does not see"));
  file.target = "/memfd:data (deleted)";
  EXPECT_EQ(obstacle_in(file, {5}), "");
}

// The program itself is asked what of a device of the kernel and of rdma_cm does not move.
TEST(Obstacles, OfRdmaOfTheKernelDevicesAndRdmaCmMove) {
  Descriptor file;
  file.target = "/dev/infiniband/uverbs0";
  file.file.mode = S_IFCHR;
  file.file.major = 231;
  file.file.minor = 192;
  EXPECT_EQ(obstacle_in(file, {}), "");
  Mapping doorbell;
  doorbell.target = "/dev/infiniband/uverbs0";
  EXPECT_EQ(obstacle_in(doorbell), "");
  Descriptor events;
  events.target = "anon_inode:[infinibandevent]";
  EXPECT_EQ(obstacle_in(events, {}), "");
  file.target = "/dev/infiniband/rdma_cm";
  EXPECT_EQ(obstacle_in(file, {}), "");
  file.target = "/dev/infiniband/umad0";
  EXPECT_TRUE(says(obstacle_in(file, {}), "start the program with ferry run --device ferry0"));
  file.target = "/dev/infiniband_of_mine";
  EXPECT_TRUE(says(obstacle_in(file, {}), "is a device that CRIU does not know, 231:192"));
}

// What a process tells of rdma_cm of the kernel.
TEST(Obstacles, OfRdmaCmAreNamed) {
  const auto refusal = [](const agent::RdmaCmStatus& status, bool address_moves) -> std::string {
    try {
      need_movable_rdma_cm("rping", ::getpid(), {}, status, address_moves);
      return {};
    } catch (const Failure& failure) {
      return failure.what();
    }
  };
  agent::RdmaCmStatus status;
  status.channels = 1;
  EXPECT_EQ(refusal(status, false), "");
  status.half_made = "a connection that is being made";
  EXPECT_EQ(refusal(status, false), "") << "it may be made soon";
  for (const std::uint32_t address : {0u, 0x7F000001u})
    status.bound.push_back({0x106, {port::Address::from_ipv4(address), 7174}});
  EXPECT_EQ(refusal(status, false), "") << "each host has them";
  status.bound.push_back({0x106, {port::Address::from_ipv4(0x0A4F0001), 7174}});
  EXPECT_TRUE(says(refusal(status, false), "has bound an rdma_cm ID to 10.79.0.1"));
  EXPECT_EQ(refusal(status, true), "");
  status.obstacle = "a group";
  EXPECT_TRUE(says(refusal(status, true), "'rping' has a group, which cannot move along"));
}

// rdma_cm of the kernel gives them to who has the right only.
TEST(Obstacles, OfPortsBelow1024AreNamed) {
  const Holder holder([] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3]{};
    return ::syscall(SYS_capset, &header, none) == 0;
  });
  agent::RdmaCmStatus status;
  status.channels = 1;
  status.bound.push_back({0x106, {port::Address::from_ipv4(INADDR_ANY), 1024}});
  need_movable_rdma_cm("rping", holder.pid(), {}, status, true);
  status.bound.push_back({0x106, {port::Address::from_ipv4(INADDR_ANY), 1023}});
  const auto refusal = [&](pid_t pid) {
    try {
      need_movable_rdma_cm("rping", pid, {}, status, true);
      return std::string();
    } catch (const Failure& failure) {
      return std::string(failure.what());
    }
  };
  EXPECT_EQ(refusal(holder.pid()),
            "'rping' has port 1023 of rdma_cm, which it has no right to have again "
            "(CAP_NET_BIND_SERVICE)");
  if (::geteuid() == 0) EXPECT_EQ(refusal(::getpid()), "");
}

TEST(NeededFiles, AreThoseThatAreOpenOrMapped) {
  const Folder folder;
  const std::string open = folder.path() + "/open", mapped = folder.path() + "/mapped",
                    gone = folder.path() + "/gone";
  const Holder holder([&] {
    const auto create = [](const std::string& path) {
      return ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    };
    const int map = create(mapped);
    const bool is_mapped = ::ftruncate(map, 4096) == 0 &&
                           ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, map, 0) != MAP_FAILED;
    ::close(map);
    create(gone);
    ::unlink(gone.c_str());
    return is_mapped && holds(create(open)) && ::chdir(folder.path().c_str()) == 0;
  });
  ASSERT_TRUE(holder.has());
  const auto files = needed_files(holder.pid());
  for (const auto& file : {open, mapped, folder.path(), std::string("/")}) {
    EXPECT_TRUE(files.contains(file)) << file;
  }
  for (const auto& file : files) {
    EXPECT_FALSE(file.starts_with(gone) || file.starts_with("/proc/")) << file;
  }
  ::unlink(open.c_str());
  EXPECT_EQ(missing_files({mapped, open, folder.path()}), std::vector{open});
}

TEST(MissingFile, OfALibraryThatAnUpgradeHasReplacedHasAWayOut) {
  EXPECT_EQ(missing_file("h2", "/srv/data", "db"), "h2 has no /srv/data, which 'db' uses");
  EXPECT_EQ(missing_file("h2", "/var/lib/ferry-library/0123/libferry.so", "db"),
            "h2 has no /var/lib/ferry-library/0123/libferry.so, which 'db' uses: install there the "
            "version of Ferry with which it was started, or copy that folder there");
}

}  // namespace
}  // namespace ferry::host
