#include "oci/root.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "library.h"

namespace ferry::oci {
namespace {

using test::Folder;

// ld.so.cache with these names, in this order; a flag of 0x0303 is x86-64.
std::string cache(const std::vector<std::pair<std::string, std::string>>& libraries,
                  std::uint32_t flags = 0x0303) {
  test::Writer file;
  std::string strings;
  file.bytes = "glibc-ld.so.cache1.1";
  file.put(static_cast<std::uint32_t>(libraries.size()));
  file.bytes.resize(48);
  const std::size_t start = 48 + libraries.size() * 24;
  for (const auto& [name, path] : libraries) {
    file.put(flags);
    file.put(static_cast<std::uint32_t>(start + strings.size()));
    strings += name + '\0';
    file.put(static_cast<std::uint32_t>(start + strings.size()));
    strings += path + '\0';
    file.bytes.append(12, '\0');
  }
  return file.bytes + strings;
}

TEST(Root, LinksAreFollowedInside) {
  const Folder folder;
  folder.write("outside/secret", "outside");
  folder.write("root/usr/lib/file", "inside");
  folder.link("root/lib", "usr/lib");
  folder.link("root/absolute", "/usr/lib/file");
  folder.link("root/out", "../outside/secret");
  const Root root = Root::at(folder.path / "root");
  EXPECT_EQ(root.read("/lib/file", 100), "inside");
  EXPECT_EQ(root.read("/absolute", 100), "inside");
  EXPECT_EQ(root.read("/absolute", 3), "ins");
  EXPECT_EQ(root.read("/out", 100), std::nullopt);
  EXPECT_EQ(root.read("/../outside/secret", 100), std::nullopt);
}

// Opening a FIFO would wait, opening a device may do something.
TEST(Root, OnlyRegularFilesAreRead) {
  const Folder folder;
  ASSERT_EQ(::mkfifo((folder.path / "fifo").c_str(), 0600), 0);
  const Root root = Root::at(folder.path);
  EXPECT_EQ(root.read("fifo", 100), std::nullopt);
  EXPECT_EQ(root.read("/", 100), std::nullopt);
  EXPECT_TRUE(root.has("fifo"));
  EXPECT_FALSE(root.has("nothing"));
}

TEST(Root, FindsLibrariesAsTheLinkerDoes) {
  const Folder folder;
  const Root root = Root::at(folder.path);
  EXPECT_EQ(root.find_library("libone.so.1"), std::nullopt);
  folder.write("usr/lib64/libone.so.1", "");
  EXPECT_EQ(root.find_library("libone.so.1"), "/usr/lib64/libone.so.1");
  folder.write("opt/lib/libone.so.1", "");
  folder.write("etc/ld.so.cache",
               cache({{"libone.so.1", "/opt/lib/gone"}, {"libone.so.1", "/opt/lib/libone.so.1"}}));
  EXPECT_EQ(root.find_library("libone.so.1"), "/opt/lib/libone.so.1");
  // Until glibc 2.32 there was a cache of an older format in front of it.
  folder.write("etc/ld.so.cache", "ld.so-1.7.0" + std::string(37, '\1') +
                                      cache({{"libone.so.1", "/opt/lib/libone.so.1"}}));
  EXPECT_EQ(root.find_library("libone.so.1"), "/opt/lib/libone.so.1");
  folder.write("etc/ld.so.cache", cache({{"libone.so.1", "/opt/lib/libone.so.1"}}, 0x0003));
  EXPECT_EQ(root.find_library("libone.so.1"), "/usr/lib64/libone.so.1");  // a 32-bit one
}

TEST(Root, ACacheThatIsCutOffIsReadAsFarAsItGoes) {
  const Folder folder;
  folder.write("opt/libone.so.1", "");
  const Root root = Root::at(folder.path);
  const std::string whole =
      cache({{"libtwo.so.1", "/opt/libtwo.so.1"}, {"libone.so.1", "/opt/libone.so.1"}});
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    folder.write("etc/ld.so.cache", whole.substr(0, length));
    const auto found = root.find_library("libone.so.1");
    if (length == whole.size()) {
      EXPECT_EQ(found, "/opt/libone.so.1");
    }
  }
}

}  // namespace
}  // namespace ferry::oci
