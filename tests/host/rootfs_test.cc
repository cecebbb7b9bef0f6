#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "host/image/rootfs_helper.h"
#include "temporary.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;
using test::Folder;

// One of a capability, as setcap makes it: VFS_CAP_REVISION_2, CAP_NET_RAW.
constexpr std::array<unsigned char, 20> kCapability{1, 0, 0, 2, 0, 0x20};

struct stat status_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
  return status;
}

// A root filesystem here, and one that it is copied to.
struct RootfsTest : testing::Test {
  Folder folder;
  std::string here = folder.path("rootfs"), there = folder.path("copy");
  std::string program = fs::read_symlink("/proc/self/exe").parent_path() / "ferry-rootfs";
  std::optional<RootfsHelper> packer, unpacker;

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    fs::create_directory(here);
    fs::create_directory(there);
    packer.emplace(program, RootfsHelper::Task::kPack, here, folder.path("pack.log"));
    unpacker.emplace(program, RootfsHelper::Task::kUnpack, there, folder.path("unpack.log"));
  }

  // One pass; gives the bytes of the archive.
  std::size_t copy(const std::set<std::string>& anyway = {}) {
    std::size_t bytes = 0;
    packer->pack(anyway, [&](std::span<const std::byte> piece) {
      bytes += piece.size();
      ASSERT_EQ(unpacker->unpack(piece), 0) << folder.read("unpack.log");
    });
    EXPECT_EQ(unpacker->end_archive(), 0) << folder.read("unpack.log");
    return bytes;
  }
  // So long ago that no change can hide behind it.
  void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(3100)); }

  void write(const std::string& name, const std::string& text) {
    folder.write("rootfs/" + name, text);
  }
  std::string read(const std::string& name) { return folder.read("copy/" + name); }
  bool has(const std::string& name) { return fs::exists(fs::symlink_status(there + "/" + name)); }
  void set_times(const std::string& name, time_t seconds, long nanoseconds) {
    const timespec times[2] = {{seconds, nanoseconds}, {seconds, nanoseconds}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (here + "/" + name).c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
  }
};

TEST_F(RootfsTest, EveryKindOfFileArrivesAsItIs) {
  fs::create_directories(here + "/etc/deep/er");
  write("etc/hosts", "127.0.0.1 localhost\n");
  write("etc/name \xC3\xA9\xFF\n", "odd");
  ::chmod((here + "/etc/hosts").c_str(), 06750);
  ::chown((here + "/etc/deep").c_str(), 1234, 70000);
  ::chown((here + "/etc/hosts").c_str(), 33, 34);
  ::chmod((here + "/etc/hosts").c_str(), 06750);
  fs::create_hard_link(here + "/etc/hosts", here + "/etc/deep/hosts");
  fs::create_symlink("/etc/../../hosts", here + "/link");
  write("ping", "x");
  ASSERT_EQ(::setxattr((here + "/ping").c_str(), "security.capability", kCapability.data(),
                       kCapability.size(), 0),
            0);
  ASSERT_EQ(::setxattr((here + "/etc/deep").c_str(), "user.of", "me", 2, 0), 0);
  ASSERT_EQ(::mkfifo((here + "/fifo").c_str(), 0600), 0);
  ::chmod((here + "/fifo").c_str(), 0620);
  ASSERT_EQ(::mknod((here + "/null").c_str(), S_IFCHR | 0666, makedev(1, 3)), 0);
  write("sparse", "begin");
  fs::resize_file(here + "/sparse", 64 << 20);
  { std::ofstream(here + "/sparse", std::ios::app) << "end"; }
  write("large", std::string(3 << 20, 'l'));
  set_times("etc/deep/er", 1000000000, 123456789);
  set_times("etc", 1000000001, 5);
  set_times("link", 1000000002, 6);
  set_times("large", 1000000003, 7);

  copy();

  EXPECT_EQ(read("etc/hosts"), "127.0.0.1 localhost\n");
  EXPECT_EQ(read("etc/name \xC3\xA9\xFF\n"), "odd");
  EXPECT_EQ(read("large"), std::string(3 << 20, 'l'));
  const auto hosts = status_of(there + "/etc/hosts"), other = status_of(there + "/etc/deep/hosts");
  EXPECT_EQ(hosts.st_mode, S_IFREG | 06750u);
  EXPECT_EQ(hosts.st_uid, 33u);
  EXPECT_EQ(hosts.st_gid, 34u);
  EXPECT_EQ(hosts.st_ino, other.st_ino);
  EXPECT_EQ(status_of(there + "/etc/deep").st_gid, 70000u);
  EXPECT_EQ(fs::read_symlink(there + "/link"), "/etc/../../hosts");
  std::array<unsigned char, 20> capability{};
  EXPECT_EQ(::getxattr((there + "/ping").c_str(), "security.capability", capability.data(),
                       capability.size()),
            20);
  EXPECT_EQ(capability, kCapability);
  char text[8]{};
  EXPECT_EQ(::getxattr((there + "/etc/deep").c_str(), "user.of", text, sizeof text), 2);
  EXPECT_EQ(status_of(there + "/fifo").st_mode, S_IFIFO | 0620u);
  EXPECT_EQ(status_of(there + "/null").st_rdev, makedev(1, 3));
  const auto sparse = status_of(there + "/sparse");
  EXPECT_EQ(sparse.st_size, (64 << 20) + 3);
  EXPECT_LT(sparse.st_blocks, 2048);
  EXPECT_EQ(read("sparse"), folder.read("rootfs/sparse"));
  for (const char* name : {"etc/deep/er", "etc", "link", "large"}) {
    const auto a = status_of(here + "/" + name), b = status_of(there + "/" + name);
    EXPECT_EQ(a.st_mtim.tv_sec, b.st_mtim.tv_sec) << name;
    EXPECT_EQ(a.st_mtim.tv_nsec, b.st_mtim.tv_nsec) << name;
  }
}

TEST_F(RootfsTest, WhatHasChangedIsSentAndNothingElse) {
  fs::create_directories(here + "/var/log/old");
  fs::create_directories(here + "/opt");
  write("large", std::string(1 << 20, 'l'));
  for (const char* name : {"var/log/a", "var/log/old/b", "same", "kind", "swapped", "opt/kept"}) {
    write(name, "before");
  }
  fs::create_hard_link(here + "/opt/kept", here + "/opt/also");
  settle();
  EXPECT_GT(copy(), 1u << 20);
  const auto log_before = status_of(here + "/var/log");
  // As before by size and time of its content.
  const auto same = status_of(here + "/same");
  write("same", "behind");
  set_times("same", same.st_mtim.tv_sec, same.st_mtim.tv_nsec);
  { std::ofstream(here + "/var/log/a", std::ios::app) << " and after"; }
  fs::rename(here + "/var/log/old", here + "/var/log/new");
  set_times("var/log", log_before.st_mtim.tv_sec, log_before.st_mtim.tv_nsec);
  fs::remove(here + "/kind");
  fs::create_directory(here + "/kind");
  write("kind/in", "it");
  write("new", "other");
  fs::rename(here + "/new", here + "/swapped");
  fs::create_hard_link(here + "/opt/kept", here + "/third");

  EXPECT_LT(copy(), 64u << 10);

  EXPECT_EQ(read("same"), "behind");
  EXPECT_EQ(read("var/log/a"), "before and after");
  EXPECT_FALSE(has("var/log/old"));
  EXPECT_EQ(read("var/log/new/b"), "before");
  EXPECT_EQ(status_of(there + "/var/log").st_mtim.tv_nsec, log_before.st_mtim.tv_nsec);
  EXPECT_EQ(read("kind/in"), "it");
  EXPECT_EQ(read("swapped"), "other");
  EXPECT_FALSE(has("new"));
  EXPECT_EQ(status_of(there + "/opt/kept").st_nlink, 3u);
  EXPECT_EQ(status_of(there + "/third").st_ino, status_of(there + "/opt/also").st_ino);
  EXPECT_EQ(read("large"), std::string(1 << 20, 'l'));
  fs::remove_all(here + "/var");
  fs::remove(here + "/third");
  copy();
  EXPECT_FALSE(has("var"));
  EXPECT_FALSE(has("third"));
  EXPECT_EQ(status_of(there + "/opt/also").st_nlink, 2u);
}

// Its time may not have moved since.
TEST_F(RootfsTest, WhatWasWrittenAMomentBeforeIsSentAgain) {
  using Clock = std::chrono::steady_clock;
  for (;;) {
    const auto began = Clock::now();
    write("young", std::string(1 << 20, 'y'));
    copy();
    const bool was_young = Clock::now() - began < std::chrono::seconds(2);
    const std::size_t again = copy();
    if (!was_young) continue;  // a busy machine
    EXPECT_GT(again, 1u << 20);
    break;
  }
  settle();
  copy();
  EXPECT_LT(copy(), 64u << 10);
}

// Through memory, for one.
TEST_F(RootfsTest, WhatIsNamedIsSentAnyway) {
  write("mapped", "before");
  settle();
  copy();
  fs::remove(there + "/mapped");
  copy({"./not/there"});
  EXPECT_FALSE(has("mapped"));
  copy({"./mapped", "./not/there"});
  EXPECT_EQ(read("mapped"), "before");
}

// --- archives of somebody who means harm

class Harm {
 public:
  Harm() : out_(::archive_write_new()) {
    ::archive_write_set_format_pax(out_);
    ::archive_write_open(out_, this, nullptr, &Harm::put, nullptr);
  }
  ~Harm() { ::archive_write_free(out_); }
  Harm& add(const std::string& name, mode_t kind, const std::string& content) {
    archive_entry* entry = ::archive_entry_new();
    ::archive_entry_set_pathname(entry, name.c_str());
    ::archive_entry_set_mode(entry, kind | 0666);
    if (kind == S_IFLNK) ::archive_entry_set_symlink(entry, content.c_str());
    if (kind == 0) ::archive_entry_set_hardlink(entry, content.c_str());
    if (kind == S_IFREG) ::archive_entry_set_size(entry, static_cast<la_int64_t>(content.size()));
    ::archive_write_header(out_, entry);
    if (kind == S_IFREG) ::archive_write_data(out_, content.data(), content.size());
    ::archive_entry_free(entry);
    return *this;
  }
  const std::vector<std::byte>& bytes() {
    ::archive_write_close(out_);
    return bytes_;
  }

 private:
  static la_ssize_t put(archive*, void* self, const void* data, size_t size) {
    const auto* from = static_cast<const std::byte*>(data);
    auto& bytes = static_cast<Harm*>(self)->bytes_;
    bytes.insert(bytes.end(), from, from + size);
    return static_cast<la_ssize_t>(size);
  }
  archive* out_;
  std::vector<std::byte> bytes_;
};

TEST_F(RootfsTest, NoNameLeavesTheFolder) {
  folder.write("victim", "untouched");
  fs::create_directory(folder.path("other"));
  folder.write("other/victim", "untouched");
  const std::string other = folder.path("other");
  // Whether a name is taken or refused: where it leads is in the folder.
  const auto attempt = [&](Harm& harm) {
    unpacker.emplace(program, RootfsHelper::Task::kUnpack, there, folder.path("unpack.log"));
    if (unpacker->unpack(harm.bytes()) == 0) unpacker->end_archive();
    EXPECT_EQ(folder.read("victim"), "untouched");
    EXPECT_EQ(folder.read("other/victim"), "untouched");
    EXPECT_EQ(status_of(folder.path("victim")).st_mode & 0777, 0644u);
  };
  const std::string absolute = folder.path("victim");
  fs::permissions(absolute, fs::perms(0644));
  attempt(Harm().add("../victim", S_IFREG, "harm"));
  attempt(Harm().add("./a/../../victim", S_IFREG, "harm"));
  attempt(Harm().add(absolute, S_IFREG, "harm"));
  attempt(Harm().add("./up", S_IFLNK, "..").add("./up/victim", S_IFREG, "harm"));
  attempt(Harm().add("./out", S_IFLNK, other));
  attempt(Harm().add("./out/victim", S_IFREG, "harm"));  // through what came before
  attempt(Harm().add("./out", S_IFDIR, "").add("./out/victim", S_IFREG, "harm"));
  attempt(Harm().add("./hard", 0, absolute).add("./hard", S_IFREG, "harm"));
  attempt(Harm().add("./hard", 0, "../victim").add("./hard", S_IFREG, "harm"));
  attempt(
      Harm().add("gone", S_IFREG, std::string("../victim\0", 10) + absolute + '\0' + other + '\0'));
  attempt(Harm().add("gone", S_IFREG, "not ended"));
}

TEST_F(RootfsTest, BadArchivesAreRefused) {
  const std::string text(4096, 'x');
  EXPECT_EQ(unpacker->unpack(std::as_bytes(std::span(text))), 0);
  EXPECT_NE(unpacker->end_archive(), 0);
  EXPECT_NE(unpacker->end_archive(), 0);  // nobody is there any more
}

TEST_F(RootfsTest, AFolderThatIsNotThereIsAFailure) {
  packer.emplace(program, RootfsHelper::Task::kPack, folder.path("nowhere"), folder.path("log"));
  EXPECT_EQ(test::failure_of([&] { packer->pack({}, [](auto) {}); }),
            "cannot read the root filesystem in " + folder.path("nowhere") +
                ": No such file or directory");
  EXPECT_NE(folder.read("log"), "");
}

}  // namespace
}  // namespace ferry::host
