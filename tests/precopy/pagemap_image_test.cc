#include "precopy/pagemap_image.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace ferry::precopy {
namespace {

struct PagemapImage : testing::Test {
  std::string folder = "/tmp/ferry-pagemap-XXXXXX";
  void SetUp() override { ASSERT_NE(::mkdtemp(folder.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder); }
  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder + "/" + name, std::ios::binary) << bytes;
  }
  std::string read(const std::string& name) {
    std::ifstream in(folder + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

std::string bytes(std::initializer_list<unsigned char> list) {
  return {list.begin(), list.end()};
}

const std::string kHead = bytes({0x19, 0x43, 0x56, 0x54, 0x25, 0x40, 0x08, 0x56});
const std::string kPagesId = bytes({2, 0, 0, 0, 0x08, 1});

// Two pages with these flags, and 1024 with those, as CRIU 4.2.1 writes them.
std::string image(unsigned char first, unsigned char second) {
  return kHead + kPagesId +
         bytes({0x0e, 0, 0, 0, 0x08, 0x80, 0x80, 0xbf, 0xf2, 0xd1, 0xf1, 0x1f, 0x10, 0x00, 0x20,
                first, 0x28, 0x02}) +
         bytes({0x0f, 0, 0, 0, 0x08, 0x80, 0x80, 0x80, 0xee, 0xd1, 0xf1, 0x1f, 0x10, 0x00, 0x20,
                second, 0x28, 0x80, 0x08});
}
constexpr unsigned char kLazy = 2, kPresent = 4;

// In an image of a dump that has left out nothing by itself, pages that could be left out are marked nevertheless.
TEST_F(PagemapImage, CriuRestoresWhatIsPresent) {
  write("pagemap-7.img", image(kLazy | kPresent, kPresent));
  write("pagemap-8.img", image(kPresent, kLazy | kPresent));
  write("pagemap-shmem-7.img", "of no interest");
  write("pages-1.img", "of no interest");
  let_criu_restore(folder);
  EXPECT_EQ(read("pagemap-7.img"), image(kPresent, kPresent));
  EXPECT_EQ(read("pagemap-8.img"), image(kPresent, kPresent));
}

// Their content would be zero.
TEST_F(PagemapImage, PagesWithoutContentAreRefused) {
  write("pagemap-7.img", image(kPresent, kLazy));
  EXPECT_THROW(let_criu_restore(folder), std::runtime_error);
}

TEST_F(PagemapImage, WhatIsNoImageIsRefused) {
  write("pagemap-7.img", kHead + kPagesId + bytes({0x0e, 0, 0, 0, 0x08, 0x80}));
  EXPECT_THROW(let_criu_restore(folder), std::runtime_error) << "it is cut off";
  write("pagemap-7.img", "no image");
  EXPECT_THROW(let_criu_restore(folder), std::runtime_error);
}

// Their last byte alone is not all that they say.
TEST_F(PagemapImage, FlagsInSeveralBytesAreRefused) {
  write("pagemap-7.img", kHead + kPagesId +
                             bytes({0x0f, 0, 0, 0, 0x08, 0x80, 0x80, 0xbf, 0xf2, 0xd1, 0xf1, 0x1f,
                                    0x10, 0x00, 0x20, 0x80 | kLazy | kPresent, 0x00, 0x28, 0x02}));
  EXPECT_THROW(let_criu_restore(folder), std::runtime_error);
}

TEST_F(PagemapImage, AddressesOutsideOfUserSpaceAreRefused) {
  // vaddr 4096, lazy and present, 2^56 pages
  write("pagemap-7.img", kHead + kPagesId +
                             bytes({0x0f, 0, 0, 0, 0x08, 0x80, 0x20, 0x20, 0x06, 0x28, 0x80, 0x80,
                                    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}));
  EXPECT_THROW(let_criu_restore(folder), std::runtime_error);
}

}  // namespace
}  // namespace ferry::precopy
