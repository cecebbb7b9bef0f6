#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "rig.h"

// libibverbs' helper, which programs use with the ibdev_path of a device.
extern "C" int ibv_read_sysfs_file(const char* directory, const char* file, char* out, size_t size);
// What programs built for older systems, or with _FORTIFY_SOURCE, call.
extern "C" {
int __open_2(const char* path, int flags);
int __xstat(int version, const char* path, struct stat* out);
int __lxstat64(int version, const char* path, struct stat64* out);
int __fxstatat(int version, int directory, const char* path, struct stat* out, int flags);
ssize_t __readlink_chk(const char* path, char* out, size_t size, size_t room);
char* __realpath_chk(const char* path, char* out, size_t room);
}

namespace ferry::verbs {
namespace {

std::string content(int file) {
  char text[128];
  const ssize_t n = file < 0 ? -1 : ::read(file, text, sizeof text);
  if (file >= 0) ::close(file);
  return n < 0 ? "error" : std::string(text, static_cast<std::size_t>(n));
}

TEST_F(Rig, FilesOfOurDeviceHaveContent) {
  const std::string path = std::string(context->device->ibdev_path) + "/node_type";
  EXPECT_EQ(content(::open(path.c_str(), O_RDONLY)), "1: CA\n");
  EXPECT_EQ(content(::open64(path.c_str(), O_RDONLY)), "1: CA\n");
  EXPECT_EQ(content(::openat(AT_FDCWD, path.c_str(), O_RDONLY)), "1: CA\n");
  EXPECT_EQ(content(::open("/sys/class/infiniband/fake0/node_guid", O_RDONLY)),
            "0123:4567:89ab:cdef\n");
  EXPECT_EQ(content(::open("/sys/class/infiniband/fake0/ports/1/link_layer", O_RDONLY)),
            "Ethernet\n");
  FILE* stream = ::fopen(path.c_str(), "r");
  ASSERT_NE(stream, nullptr);
  char line[32];
  EXPECT_STREQ(std::fgets(line, sizeof line, stream), "1: CA\n");
  ::fclose(stream);
}

TEST_F(Rig, TheStockHelperReadsThem) {
  char text[32] = {};
  EXPECT_GT(ibv_read_sysfs_file(context->device->ibdev_path, "board_id", text, sizeof text), 0);
  EXPECT_STREQ(text, "ferry");
}

TEST_F(Rig, WhatIsNotThereIsNotThere) {
  const auto refused = [](const char* path, int flags) {
    errno = 0;
    EXPECT_EQ(::open(path, flags), -1);
    return errno;
  };
  EXPECT_EQ(refused("/sys/class/infiniband/fake0/nonsense", O_RDONLY), ENOENT);
  EXPECT_EQ(refused("/sys/class/infiniband/fake0/fw_ver", O_RDWR), EACCES);
  EXPECT_EQ(refused("/sys/class/infiniband/fake0", O_RDONLY), EISDIR);
  EXPECT_EQ(refused("/sys/class/infiniband/other0/fw_ver", O_RDONLY), ENOENT);
  EXPECT_EQ(::access("/sys/class/infiniband/fake0/fw_ver", R_OK), 0);
  EXPECT_EQ(::access("/sys/class/infiniband/fake0/fw_ver", W_OK), -1);
  EXPECT_EQ(::access("/sys/class/infiniband/fake0/ports/1/", R_OK | X_OK), 0);
  EXPECT_EQ(::access("/sys/class/infiniband/fake0/nonsense", F_OK), -1);
}

std::string read_file(const std::string& path) {
  return content(::open(path.c_str(), O_RDONLY));
}

std::set<std::string> names_in(const char* path) {
  std::set<std::string> names;
  DIR* directory = ::opendir(path);
  if (!directory) return {"error"};
  while (const dirent* entry = ::readdir(directory)) names.insert(entry->d_name);
  ::closedir(directory);
  return names;
}

TEST_F(Rig, ThePortShowsWhatTheContextTells) {
  const std::string port = "/sys/class/infiniband/fake0/ports/1/";
  EXPECT_EQ(read_file(port + "state"), "4: ACTIVE\n");
  EXPECT_EQ(read_file(port + "gids/0"), "0000:0000:0000:0000:0000:ffff:c000:0201\n");
  EXPECT_EQ(read_file(port + "gid_attrs/types/0"), "RoCE v2\n");
  EXPECT_EQ(read_file(port + "gid_attrs/ndevs/0"), "eth9\n");
  EXPECT_EQ(read_file(port + "gids/1"), "error");  // the table has one
  EXPECT_EQ(read_file(port + "pkeys/0"), "0xffff\n");
  EXPECT_EQ(read_file(port + "lid"), "0x0\n");
  fake->port_attributes.state = IBV_PORT_DOWN;
  fake->port_attributes.phys_state = 3;
  fake->port_attributes.active_width = 1;
  fake->port_attributes.active_speed = 1;
  EXPECT_EQ(read_file(port + "state"), "1: DOWN\n");
  EXPECT_EQ(read_file(port + "phys_state"), "3: Disabled\n");
  EXPECT_EQ(read_file(port + "rate"), "2.5 Gb/sec (1X)\n");
  fake->port_attributes.active_width = 2;
  fake->port_attributes.active_speed = 32;
  EXPECT_EQ(read_file(port + "rate"), "100 Gb/sec (4X EDR)\n");
}

TEST_F(Rig, CountersAreTheSumOverTheContextsOfTheProcess) {
  using device::Counter;
  const std::string port = "/sys/class/infiniband/fake0/ports/1/";
  EXPECT_EQ(::access((port + "hw_counters").c_str(), F_OK), -1);  // it counts nothing
  ibv_context* second = ibv_open_device(context->device);
  ASSERT_NE(second, nullptr);
  fake->counted = {{Counter::Group::kHardware, "sent_pkts", 7},
                   {Counter::Group::kPort, "port_xmit_data", 1u << 31}};
  latest_rnic()->last_opened()->counted = {{Counter::Group::kHardware, "sent_pkts", 3},
                                           {Counter::Group::kPort, "port_xmit_data", 1u << 31}};
  EXPECT_EQ(read_file(port + "hw_counters/sent_pkts"), "10\n");
  EXPECT_EQ(read_file(port + "counters/port_xmit_data"), "4294967296\n");
  EXPECT_EQ(names_in((port + "hw_counters").c_str()),
            (std::set<std::string>{".", "..", "sent_pkts"}));
  EXPECT_EQ(ibv_close_device(second), 0);
  EXPECT_EQ(read_file(port + "hw_counters/sent_pkts"), "7\n");
}

TEST_F(Rig, AChildReadsWhatTheDeviceTellsWithoutTheParentsContext) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(5);
    ::_exit(read_file("/sys/class/infiniband/fake0/ports/1/state") == "1: DOWN\n" ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Rig, TheCharacterDevicesAreThere) {
  const std::string node = std::string("/dev/infiniband/") + context->device->dev_name;
  EXPECT_EQ(node, "/dev/infiniband/uverbs500");
  struct stat status {};
  ASSERT_EQ(::stat(node.c_str(), &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  EXPECT_EQ(major(status.st_rdev), 231u);
  EXPECT_EQ(::access(node.c_str(), R_OK | W_OK), 0);
  EXPECT_EQ(::open(node.c_str(), O_RDWR), -1);
  EXPECT_EQ(errno, ENXIO);
  EXPECT_EQ(read_file(std::string(context->device->dev_path) + "/ibdev"), "fake0\n");
  EXPECT_EQ(read_file(std::string(context->device->dev_path) + "/dev"),
            "231:" + std::to_string(minor(status.st_rdev)) + "\n");
  ASSERT_EQ(::stat("/dev/infiniband/rdma_cm", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  EXPECT_EQ(read_file("/sys/class/misc/rdma_cm/abi_version"), "4\n");
}

TEST_F(Rig, EveryFormOfStatKnowsThem) {
  const char* file = "/sys/class/infiniband/fake0/node_guid";
  struct stat status {};
  struct stat64 status64 {};
  struct statx extended {};
  EXPECT_EQ(::stat(file, &status), 0);
  EXPECT_TRUE(S_ISREG(status.st_mode));
  status = {};
  EXPECT_EQ(::lstat(file, &status), 0);
  EXPECT_TRUE(S_ISREG(status.st_mode));
  EXPECT_EQ(::stat64(file, &status64), 0);
  EXPECT_TRUE(S_ISREG(status64.st_mode));
  status64 = {};
  EXPECT_EQ(::lstat64(file, &status64), 0);
  EXPECT_TRUE(S_ISREG(status64.st_mode));
  EXPECT_EQ(::fstatat(AT_FDCWD, "/sys/class/infiniband/fake0/ports", &status, 0), 0);
  EXPECT_TRUE(S_ISDIR(status.st_mode));
  EXPECT_EQ(::fstatat64(AT_FDCWD, "/sys/class/infiniband/fake0", &status64, 0), 0);
  EXPECT_TRUE(S_ISDIR(status64.st_mode));
  EXPECT_EQ(::statx(AT_FDCWD, "/dev/infiniband/uverbs500", 0, STATX_ALL, &extended), 0);
  EXPECT_TRUE(S_ISCHR(extended.stx_mode));
  EXPECT_EQ(extended.stx_rdev_major, 231u);
  EXPECT_EQ(::__xstat(1, "/sys/class/infiniband_verbs", &status), 0);
  EXPECT_TRUE(S_ISDIR(status.st_mode));
  EXPECT_EQ(::__lxstat64(1, file, &status64), 0);
  EXPECT_TRUE(S_ISREG(status64.st_mode));
  EXPECT_EQ(::__fxstatat(1, AT_FDCWD, file, &status, 0), 0);
  EXPECT_TRUE(S_ISREG(status.st_mode));
  errno = 0;
  EXPECT_EQ(::stat("/sys/class/infiniband/fake0/nonsense", &status), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(::stat("/sys/class/infiniband/other0", &status), -1);
  EXPECT_EQ(::getxattr(file, "user.x", nullptr, 0), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(::faccessat(AT_FDCWD, file, R_OK, 0), 0);
  EXPECT_EQ(::euidaccess(file, W_OK), -1);
}

TEST_F(Rig, DirectoriesAreListedAndRealOnesMerged) {
  set_discovered(2);
  int count = 0;
  ibv_free_device_list(ibv_get_device_list(&count));
  set_discovered(1);
  const std::set<std::string> devices = names_in("/sys/class/infiniband");
  EXPECT_TRUE(devices.contains("fake0"));
  EXPECT_TRUE(devices.contains("fake1"));
  EXPECT_EQ(names_in("/sys/class/infiniband/fake1/ports"), (std::set<std::string>{".", "..", "1"}));
  EXPECT_TRUE(names_in("/sys/class/infiniband_verbs").contains("uverbs501"));
  EXPECT_TRUE(names_in("/dev/infiniband/").contains("uverbs501"));
  EXPECT_EQ(names_in("/sys/class/infiniband/fake0/node_guid"), std::set<std::string>{"error"});

  dirent** entries = nullptr;
  const int found = ::scandir(
      "/sys/class/infiniband/fake0", &entries,
      [](const dirent* e) { return int{e->d_name[0] != '.'}; }, ::alphasort);
  ASSERT_GT(found, 2);
  EXPECT_STREQ(entries[0]->d_name, "board_id");
  EXPECT_EQ(entries[0]->d_type, DT_REG);
  EXPECT_STREQ(entries[1]->d_name, "fw_ver");
  for (int i = 0; i < found; ++i) ::free(entries[i]);
  ::free(entries);

  // One after the other: none of them is taken for another's.
  DIR* ours = ::opendir("/sys/class/infiniband/fake0/ports/1/pkeys");
  DIR* systems = ::opendir("/proc/self");
  ASSERT_TRUE(ours && systems);
  EXPECT_EQ(::dirfd(ours), -1);
  EXPECT_GE(::dirfd(systems), 0);
  EXPECT_STREQ(::readdir(ours)->d_name, ".");
  const long position = ::telldir(ours);
  EXPECT_STREQ(::readdir(ours)->d_name, "..");
  EXPECT_STREQ(::readdir64(ours)->d_name, "0");
  EXPECT_EQ(::readdir(ours), nullptr);
  ::seekdir(ours, position);
  EXPECT_STREQ(::readdir(ours)->d_name, "..");
  ::rewinddir(ours);
  EXPECT_STREQ(::readdir(ours)->d_name, ".");
  EXPECT_NE(::readdir(systems), nullptr);
  ::closedir(systems);
  ::closedir(ours);
}

TEST_F(Rig, OnlySoManyListingsAtATime) {
  std::vector<DIR*> open;
  for (int i = 0; i < 64; ++i) {
    open.push_back(::opendir("/sys/class/infiniband/fake0"));
    ASSERT_NE(open.back(), nullptr) << i;
  }
  EXPECT_EQ(::opendir("/sys/class/infiniband/fake0"), nullptr);
  EXPECT_EQ(errno, EMFILE);
  for (DIR* directory : open) EXPECT_EQ(::closedir(directory), 0);
  DIR* again = ::opendir("/sys/class/infiniband/fake0");
  ASSERT_NE(again, nullptr);
  ::closedir(again);
}

TEST_F(Rig, PathsAreResolved) {
  char path[PATH_MAX];
  ASSERT_NE(::realpath("/sys/class/infiniband//fake0/./ports/../ports/1", path), nullptr);
  EXPECT_STREQ(path, "/sys/class/infiniband/fake0/ports/1");
  EXPECT_EQ(read_file("/sys/class/infiniband/fake0/ports/1/../../node_type"), "1: CA\n");
  EXPECT_EQ(::__realpath_chk("/sys/class/infiniband/fake0/nonsense", path, sizeof path), nullptr);
  ASSERT_NE(::realpath("/sys/class/infiniband/..", path), nullptr);
  EXPECT_STREQ(path, "/sys/class");
  ASSERT_NE(::__realpath_chk("/proc/self/..", path, sizeof path), nullptr);
  EXPECT_STREQ(path, "/proc");
  // fake0 stands on an interface that does not exist: there is no device behind it.
  EXPECT_EQ(::readlink("/sys/class/infiniband/fake0/device", path, sizeof path), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(::readlink("/sys/class/infiniband/fake0/node_type", path, sizeof path), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_GT(::__readlink_chk("/proc/self/exe", path, sizeof path, sizeof path), 0);
}

TEST_F(Rig, FortifiedCallsAreTheSame) {
  EXPECT_EQ(content(::__open_2("/sys/class/infiniband/fake0/node_type", O_RDONLY)), "1: CA\n");
}

TEST(Redirect, AllOtherPathsAreLeftAlone) {
  char path[] = "/tmp/ferry-redirect-XXXXXX";
  ::close(::mkstemp(path));
  ::unlink(path);
  const int file = ::open(path, O_RDWR | O_CREAT | O_EXCL, 0640);
  ASSERT_GE(file, 0);
  struct stat status {};
  ASSERT_EQ(::fstat(file, &status), 0);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  EXPECT_EQ(status.st_mode & 0777, 0640u & ~mask);  // the third argument arrived
  ::close(file);
  EXPECT_EQ(::access(path, F_OK), 0);
  ::unlink(path);
  EXPECT_EQ(::fopen(path, "r"), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace ferry::verbs
