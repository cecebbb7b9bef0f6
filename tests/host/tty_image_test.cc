#include "host/units/tty_image.h"

#include <gtest/gtest.h>

#include <string>

#include "temporary.h"

namespace ferry::host {
namespace {

using test::failure_of;
using test::Folder;
using namespace std::string_literals;

const std::string kHead = "\x19\x43\x56\x54\x17\x55\x24\x78"s;

// id 3, type, locked, exclusive, packet_mode, sid and pgrp 1337, rdev 0x8800: as CRIU 4.2.1 writes it.
std::string entry(char type) {
  return "\x14\0\0\0\x08\x03\x10"s + type +
         "\x18\0\x20\0\x28\0\x30\xB9\x0A\x38\xB9\x0A\x40\x80\x90\x02"s;
}

TEST(TtyImage, ForgetsWhoseTheTerminalsThatStayWere) {
  const Folder folder;
  folder.write("tty-info.img", kHead + entry(1) + entry(5));
  forget_sessions_of_terminals(folder.path());
  const std::string changed = folder.read("tty-info.img");
  const std::size_t second = kHead.size() + entry(1).size();
  ASSERT_GT(changed.size(), second);
  EXPECT_EQ(changed.substr(0, kHead.size()), kHead);
  EXPECT_NE(changed.find("\x30\xB9\x0A\x38\xB9\x0A"s), std::string::npos);  // of the program's own
  const std::string external = changed.substr(second);
  EXPECT_EQ(external.find("\xB9\x0A"s), std::string::npos);
  // Both are there, since CRIU demands them, and so is all else.
  for (const auto& field :
       {"\x08\x03"s, "\x10\x05"s, "\x18\0"s, "\x30\0"s, "\x38\0"s, "\x40\x80\x90\x02"s}) {
    EXPECT_NE(external.find(field), std::string::npos) << field;
  }
}

TEST(TtyImage, AMalformedOneIsRefusedAndStays) {
  const Folder folder;
  const std::string no_image = folder.path() + "/tty-info.img is not as CRIU writes it";
  EXPECT_EQ(failure_of([&] { forget_sessions_of_terminals(folder.path()); }), no_image);
  const std::string whole = kHead + entry(5);
  for (const std::size_t size : {4u, 10u, 20u}) {
    folder.write("tty-info.img", whole.substr(0, size));
    EXPECT_EQ(failure_of([&] { forget_sessions_of_terminals(folder.path()); }), no_image) << size;
    EXPECT_EQ(folder.read("tty-info.img"), whole.substr(0, size));
  }
}

}  // namespace
}  // namespace ferry::host
