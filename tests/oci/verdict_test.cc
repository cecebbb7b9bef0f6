#include "oci/verdict.h"

#include <gtest/gtest.h>

#include "library.h"

namespace ferry::oci {
namespace {

using test::Folder;
using test::Library;

const std::vector<std::string> kGlibc236{"GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.36",
                                         "GLIBC_PRIVATE"};
const std::vector<std::string> kGlibc231{"GLIBC_2.2.5", "GLIBC_2.31", "GLIBC_2.4"};

// An image with Ferry's mounts in it, as libferry.so and the libraries of a Debian 12 host are.
struct VerdictTest : testing::Test {
  Folder image;

  void SetUp() override {
    image.write("usr/lib/ferry/libferry.so", Library{{},
                                                     {{"libc.so.6", {"GLIBC_2.2.5", "GLIBC_2.34"}},
                                                      {"ld-linux-x86-64.so.2", {"GLIBC_2.3"}}},
                                                     {}});
    host("libibverbs.so.1", {{"libnl-3.so.200"}, {{"libc.so.6", {"GLIBC_2.34"}}}, {}});
    host("libnl-3.so.200", {{}, {{"libc.so.6", {"GLIBC_2.34"}}}, {"libnl_3", "libnl_3_5"}});
  }
  void host(const std::string& name, const Library& library) const {
    image.write("usr/lib/ferry/host/" + name, library);
  }
  void glibc(const std::vector<std::string>& versions) const {
    image.write("lib64/ld-linux-x86-64.so.2", Library{{}, {}, {"GLIBC_2.3"}});
    image.write("lib/x86_64-linux-gnu/libc.so.6", Library{{}, {}, versions});
  }
  void own(const std::string& name, const Library& library = {}) const {
    image.write("usr/lib/x86_64-linux-gnu/" + name, library);
  }
  Verdict verdict() const { return judge(Root::at(image.path)); }
};

TEST_F(VerdictTest, AnImageWithLibibverbsKeepsItsOwn) {
  glibc(kGlibc236);
  own("libibverbs.so.1");
  EXPECT_EQ(verdict().reason, "");
  EXPECT_FALSE(verdict().host_verbs);
}

TEST_F(VerdictTest, OneWithoutGetsTheHosts) {
  glibc(kGlibc236);
  EXPECT_EQ(verdict().reason, "");
  EXPECT_TRUE(verdict().host_verbs);
}

TEST_F(VerdictTest, AnOldGlibcIsNamed) {
  glibc(kGlibc231);
  own("libibverbs.so.1");
  EXPECT_EQ(verdict().reason, "the image has glibc 2.31; Ferry needs 2.34 or later");
}

// It need not have new symbols in each version.
TEST_F(VerdictTest, AnOldGlibcIsNamedAsItNamesItself) {
  glibc(kGlibc231);
  const std::string libc = test::bytes_of(Library{{}, {}, kGlibc231});
  for (const char* version : {"2.33.\nCopyright", "2.33, by", "2.33"}) {
    image.write("lib/x86_64-linux-gnu/libc.so.6",
                libc + "GNU C Library (Debian) stable release version " + version);
    EXPECT_EQ(verdict().reason, "the image has glibc 2.33; Ferry needs 2.34 or later");
  }
}

TEST_F(VerdictTest, MuslAndNoLinkerAtAll) {
  EXPECT_NE(verdict().reason.find("no dynamic linker"), std::string::npos);
  image.write("lib/ld-musl-x86_64.so.1", "");
  EXPECT_EQ(verdict().reason,
            "the image has musl as its C library; Ferry needs glibc 2.34 or later");
}

TEST_F(VerdictTest, TheHostsLibibverbsMayBeTooNew) {
  glibc(kGlibc236);
  host("libibverbs.so.1", {{}, {{"libc.so.6", {"GLIBC_2.38"}}}, {}});
  EXPECT_EQ(verdict().reason,
            "the image has glibc 2.36; the host's libibverbs.so.1 needs 2.38 or later: install the "
            "package libibverbs1 in the image");
  own("libibverbs.so.1");
  EXPECT_EQ(verdict().reason, "");
}

// A program of the image that has nothing to do with RDMA must not get an older libnl than its own.
TEST_F(VerdictTest, WhatComesWithTheHostsLibibverbsMayBeTooOld) {
  glibc(kGlibc236);
  own("libnl-3.so.200", {{}, {}, {"libnl_3"}});
  EXPECT_EQ(verdict().reason, "");
  own("libnl-3.so.200", {{}, {}, {"libnl_3", "libnl_3_11"}});
  EXPECT_NE(verdict().reason.find("a newer libnl-3.so.200 than the host"), std::string::npos);
}

TEST_F(VerdictTest, NeitherHasLibibverbs) {
  glibc(kGlibc236);
  std::filesystem::remove_all(image.path / "usr/lib/ferry/host");
  EXPECT_NE(verdict().reason.find("neither the image nor the host has libibverbs"),
            std::string::npos);
}

TEST_F(VerdictTest, ABrokenLibraryIsNamed) {
  glibc(kGlibc236);
  image.write("lib/x86_64-linux-gnu/libc.so.6",
              "nonsense, and more of it, beyond the header's size");
  EXPECT_NE(verdict().reason.find("cannot use /lib/x86_64-linux-gnu/libc.so.6"), std::string::npos);
}

TEST(NamesLibraries, AsTheLinkerReadsTheFile) {
  EXPECT_FALSE(names_libraries(""));
  EXPECT_FALSE(names_libraries("\n  \n# /lib/none.so\n"));
  EXPECT_TRUE(names_libraries("# one\n/lib/one.so # two\n"));
  EXPECT_TRUE(names_libraries("/lib/one.so"));
}

}  // namespace
}  // namespace ferry::oci
