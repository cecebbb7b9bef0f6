#include "precopy/page_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <stdexcept>
#include <thread>

namespace ferry::precopy {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kPages = 64;
constexpr std::uint64_t kManyPages = 20 << 8;  // 20 MiB

// What criu restore does: memory of a process, a userfaultfd of it, and the words at the socket.
struct PageServerTest : testing::Test {
  std::string folder = "/tmp/ferry-pages-XXXXXX";
  PageStore store{1 << 26};
  char* memory = nullptr;
  std::uint64_t mapped = 0;  // bytes of it
  int userfaultfd = -1, connection = -1;

  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    make_memory(kPages, 0);
  }
  // `features`: what the userfaultfd tells of.
  void make_memory(std::uint64_t count, std::uint64_t features) {
    drop_memory();
    mapped = count * kPage;
    memory = static_cast<char*>(
        ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    userfaultfd = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1));
    if (userfaultfd < 0) GTEST_SKIP() << "no userfaultfd here";
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = features;
    ASSERT_EQ(::ioctl(userfaultfd, UFFDIO_API, &api), 0);
    uffdio_register request{{start(), mapped}, UFFDIO_REGISTER_MODE_MISSING, 0};
    ASSERT_EQ(::ioctl(userfaultfd, UFFDIO_REGISTER, &request), 0);
  }
  void drop_memory() {
    if (userfaultfd >= 0) ::close(std::exchange(userfaultfd, -1));
    if (memory != nullptr) ::munmap(std::exchange(memory, nullptr), mapped);
  }
  void TearDown() override {
    drop_memory();
    if (connection >= 0) ::close(connection);
    std::filesystem::remove_all(folder);
  }

  std::uint64_t start() const { return reinterpret_cast<std::uint64_t>(memory); }
  std::map<std::int32_t, PageRanges> pages(std::uint64_t first, std::uint64_t count) {
    PageRanges ranges;
    ranges.add(start() + first * kPage, start() + (first + count) * kPage);
    return {{7, ranges}};
  }
  void copy_ahead(std::uint64_t first, std::uint64_t count, int byte) {
    const auto to = start() + (first + count) * kPage;
    for (auto from = start() + first * kPage; from < to;) {
      const auto place = store.put(7, from, to);
      std::memset(place.data(), byte, place.size());
      from += place.size();
    }
  }
  void connect() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (folder + "/lazy-pages.socket").copy(address.sun_path, sizeof address.sun_path - 1);
    connection = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  void say(std::int32_t word) {
    ASSERT_EQ(::send(connection, &word, sizeof word, MSG_NOSIGNAL), 4);
  }
  void send_userfaultfd() {
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &userfaultfd, sizeof userfaultfd);
    ASSERT_EQ(::sendmsg(connection, &message, MSG_NOSIGNAL), 1);
    ::close(std::exchange(userfaultfd, -1));
  }
};

TEST_F(PageServerTest, AllPagesAreThereAndTheServerIsNoLongerNeeded) {
  copy_ahead(0, kPages / 2, 5);
  {
    PageServer server(folder, store, pages(0, kPages / 2));
    connect();
    say(-1);  // a zombie
    say(7);
    send_userfaultfd();
    server.fill(10s);
    say(0x52535446);
  }
  for (std::uint64_t page = 0; page < kPages; ++page) {
    EXPECT_EQ(memory[page * kPage + 9], page < kPages / 2 ? 5 : 0);  // would hang for ever
  }
}

// CRIU says at last that it is done, and kills what it has restored if it cannot: the server may have died meanwhile.
TEST_F(PageServerTest, GoodbyeCanBeSaidToAServerThatIsNotThereAnyMore) {
  copy_ahead(0, kPages, 5);
  {
    PageServer server(folder, store, pages(0, kPages));
    connect();
    say(7);
    send_userfaultfd();
    server.fill(10s);
  }
  say(0x52535446);
}

TEST_F(PageServerTest, WhatIsTouchedBeforeIsServedAtOnce) {
  copy_ahead(0, 4, 5);
  PageServer server(folder, store, pages(0, 4));
  connect();
  say(7);
  send_userfaultfd();
  memory[2 * kPage] += 1;
  EXPECT_EQ(memory[2 * kPage], 6);
  EXPECT_EQ(memory[8 * kPage], 0);  // never had content
  server.fill(10s);
  EXPECT_EQ(memory[2 * kPage], 6);  // not overwritten
  EXPECT_EQ(memory[3 * kPage], 5);
}

// Another process, with the connection: says these words.
void says(int connection, std::initializer_list<std::int32_t> words) {
  const pid_t other = ::fork();
  if (other == 0) {
    for (const std::int32_t word : words) {
      if (::send(connection, &word, sizeof word, MSG_NOSIGNAL) != 4) ::_exit(1);
    }
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  ASSERT_EQ(status, 0);
}

// Each process says its pid and sends its userfaultfd by itself, at the same time as others do.
TEST_F(PageServerTest, ProcessesAreToldApartAlthoughTheySpeakAtTheSameTime) {
  copy_ahead(0, 4, 5);
  PageServer server(folder, store, pages(0, 4));
  connect();
  say(7);
  says(connection, {-1, 8});
  send_userfaultfd();
  server.fill(10s);
  for (std::uint64_t page = 0; page < 4; ++page) EXPECT_EQ(memory[page * kPage], 5);
}

TEST_F(PageServerTest, MemoryOfAProcessThatHasNotSaidItsPidIsRefused) {
  copy_ahead(0, 4, 5);
  PageServer server(folder, store, pages(0, 4));
  connect();
  says(connection, {7});
  send_userfaultfd();
  EXPECT_THROW(server.fill(10s), std::runtime_error);
}

constexpr std::uint64_t kAllEvents = UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP |
                                     UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP;

TEST_F(PageServerTest, LongRangesAreLeftToSomebodyElse) {
  make_memory(kManyPages + 8, kAllEvents);
  copy_ahead(0, 2, 4);
  copy_ahead(4, kManyPages, 5);
  auto lacks = pages(0, 2);
  lacks.at(7).add(pages(4, kManyPages).at(7));
  PageServer server(folder, store, lacks);
  connect();
  say(7);
  send_userfaultfd();
  const auto later = server.fill(10s);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0].process, 7);
  EXPECT_EQ(later[0].pages, pages(4, kManyPages).at(7));
  EXPECT_EQ(memory[kPage], 4);  // would hang for ever
  server.fill_now(later);
  for (std::uint64_t page = 0; page < kManyPages; ++page) ASSERT_EQ(memory[(4 + page) * kPage], 5);
}

TEST_F(PageServerTest, NothingIsLeftIfTheKernelDoesNotTellOfAll) {
  make_memory(kManyPages, kAllEvents & ~UFFD_FEATURE_EVENT_REMOVE);
  copy_ahead(0, kManyPages, 5);
  PageServer server(folder, store, pages(0, kManyPages));
  connect();
  say(7);
  send_userfaultfd();
  EXPECT_TRUE(server.fill(10s).empty());
  EXPECT_EQ(memory[kPage], 5);
}

TEST_F(PageServerTest, APageThatIsMissingIsRefusedBeforeAnythingIsRestored) {
  copy_ahead(0, 3, 5);
  EXPECT_THROW(PageServer(folder, store, pages(0, 4)), std::runtime_error);
}

TEST_F(PageServerTest, AProcessThatDoesNotAskFails) {
  copy_ahead(0, 4, 5);
  PageServer server(folder, store, pages(0, 4));
  EXPECT_THROW(server.fill(20ms), std::runtime_error);
}

}  // namespace
}  // namespace ferry::precopy
