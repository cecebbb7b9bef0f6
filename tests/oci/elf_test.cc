#include "oci/elf.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "library.h"
#include "oci/root.h"

namespace ferry::oci {
namespace {

using test::bytes_of;
using test::Library;

const Library kLibrary{{"libone.so.1", "libc.so.6"},
                       {{"libc.so.6", {"GLIBC_2.2.5", "GLIBC_2.34"}}, {"libone.so.1", {"ONE_1"}}},
                       {"VERBS_1.0", "VERBS_1.1"}};

Elf read(const std::string& bytes) {
  const UniqueFd file(::memfd_create("library", MFD_CLOEXEC));
  EXPECT_EQ(::write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  return read_elf(file.get());
}

TEST(Elf, NeedsWantsAndVersions) {
  const Elf elf = read(bytes_of(kLibrary));
  EXPECT_EQ(elf.needed, (std::set<std::string>{"libc.so.6", "libone.so.1"}));
  EXPECT_EQ(elf.wants.at("libc.so.6"), (std::set<std::string>{"GLIBC_2.2.5", "GLIBC_2.34"}));
  EXPECT_EQ(elf.wants.at("libone.so.1"), (std::set<std::string>{"ONE_1"}));
  EXPECT_EQ(elf.versions, (std::set<std::string>{"VERBS_1.0", "VERBS_1.1"}));  // not the base
}

TEST(Elf, OfThisMachine) {
  const Root root = Root::at("/");
  const auto libc = root.find_library("libc.so.6");
  ASSERT_TRUE(libc);
  const Elf elf = read_elf(root.open_file(*libc).get());
  EXPECT_TRUE(elf.versions.contains("GLIBC_2.34"));
  EXPECT_TRUE(elf.needed.contains("ld-linux-x86-64.so.2"));
}

// An image may have anything in the place of a library.
TEST(Elf, CutOffAndChangedAtEveryByte) {
  const std::string whole = bytes_of(kLibrary);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    try {
      read(whole.substr(0, length));
    } catch (const ElfError&) {
    }
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int value : {0x00, 0x7f, 0xff}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(value);
      try {
        read(changed);
      } catch (const ElfError&) {
      }
    }
  }
  EXPECT_THROW(read(whole.substr(0, whole.size() / 2)), ElfError);
  EXPECT_THROW(read("#!/bin/sh\n" + std::string(64, ' ')), ElfError);
}

TEST(Elf, ListsThatNeverEnd) {
  std::string bytes = bytes_of(kLibrary);
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.e_machine = EM_AARCH64;
  std::string other = bytes;
  std::memcpy(other.data(), &header, sizeof header);
  EXPECT_THROW(read(other), ElfError);  // another architecture

  Elf64_Phdr segment;
  std::memcpy(&segment, bytes.data() + sizeof header + sizeof segment, sizeof segment);
  for (std::size_t at = segment.p_offset; at < bytes.size(); at += sizeof(Elf64_Dyn)) {
    Elf64_Dyn entry;
    std::memcpy(&entry, bytes.data() + at, sizeof entry);
    if (entry.d_tag == DT_VERNEEDNUM) entry.d_un.d_val = ~0ull;
    std::memcpy(bytes.data() + at, &entry, sizeof entry);
  }
  EXPECT_THROW(read(bytes), ElfError);
}

}  // namespace
}  // namespace ferry::oci
