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

// As CRIU 4.2.1 has written it.
TEST_F(PagemapImage, ThePagesWithoutContentAreThoseLeftOut) {
  write("pagemap-7.img", kHead + kPagesId +
                             // vaddr 94508965253120, present, 1 page
                             bytes({0x0e, 0, 0, 0, 0x08, 0x80, 0xa0, 0xb5, 0xaa, 0xc9, 0xbe, 0x15,
                                    0x10, 0x00, 0x20, 0x04, 0x28, 0x01}) +
                             // vaddr 140244066238464, lazy, 1024 pages
                             bytes({0x0f, 0, 0, 0, 0x08, 0x80, 0x80, 0x80, 0xee, 0xd1, 0xf1, 0x1f,
                                    0x10, 0x00, 0x20, 0x02, 0x28, 0x80, 0x08}) +
                             // vaddr 140244075659264, lazy and present, 2 pages
                             bytes({0x0e, 0, 0, 0, 0x08, 0x80, 0x80, 0xbf, 0xf2, 0xd1, 0xf1, 0x1f,
                                    0x10, 0x00, 0x20, 0x06, 0x28, 0x02}));
  write("pagemap-shmem-7.img", "of no interest");
  write("pages-1.img", "of no interest");
  PageRanges expected;
  expected.add(140244066238464, 140244066238464 + 1024 * kPage);
  EXPECT_EQ(pages_left_out(folder), (std::map<std::int32_t, PageRanges>{{7, expected}}));
}

// In an image of a dump that has left out nothing by itself, pages that could be left out are marked nevertheless.
TEST_F(PagemapImage, CriuRestoresWhatIsPresent) {
  const auto image = [](unsigned char first, unsigned char second) {
    return kHead + kPagesId +
           bytes({0x0e, 0, 0, 0, 0x08, 0x80, 0x80, 0xbf, 0xf2, 0xd1, 0xf1, 0x1f, 0x10, 0x00, 0x20,
                  first, 0x28, 0x02}) +
           bytes({0x0f, 0, 0, 0, 0x08, 0x80, 0x80, 0x80, 0xee, 0xd1, 0xf1, 0x1f, 0x10, 0x00, 0x20,
                  second, 0x28, 0x80, 0x08});
  };
  write("pagemap-7.img", image(6, 4));
  write("pagemap-8.img", image(2, 6));
  let_criu_restore(folder);
  EXPECT_EQ(read("pagemap-7.img"), image(4, 4));
  EXPECT_EQ(read("pagemap-8.img"), image(2, 4)) << "what is not there stays left out";
  write("pagemap-7.img", "no image");
  EXPECT_THROW(let_criu_restore(folder), std::runtime_error);
}

TEST_F(PagemapImage, WhatIsCutOffIsRefused) {
  write("pagemap-7.img", kHead + kPagesId + bytes({0x0e, 0, 0, 0, 0x08, 0x80}));
  EXPECT_THROW(pages_left_out(folder), std::runtime_error);
  write("pagemap-7.img", "no image");
  EXPECT_THROW(pages_left_out(folder), std::runtime_error);
}

TEST_F(PagemapImage, AddressesOutsideOfUserSpaceAreRefused) {
  // vaddr 4096, lazy, 2^56 pages
  write("pagemap-7.img", kHead + kPagesId +
                             bytes({0x0f, 0, 0, 0, 0x08, 0x80, 0x20, 0x20, 0x02, 0x28, 0x80, 0x80,
                                    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}));
  EXPECT_THROW(pages_left_out(folder), std::runtime_error);
}

}  // namespace
}  // namespace ferry::precopy
