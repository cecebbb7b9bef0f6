#include "precopy/left_out_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace ferry::precopy {
namespace {

struct LeftOutFile : testing::Test {
  std::string folder = "/tmp/ferry-left-out-XXXXXX", path;
  std::map<std::int32_t, PageRanges> pages;

  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    path = folder + "/" + kLeftOutFile;
    pages[7].add(kPage, 3 * kPage);
    pages[7].add(5 * kPage, 6 * kPage);
    pages[9].add(kAddressEnd - kPage, kAddressEnd);
    write_left_out(folder, pages);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string bytes() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void expect_refused(const std::string& bytes, const char* what) const {
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_THROW(read_left_out(folder, kAddressEnd), std::runtime_error) << what;
  }
  // The file with another value at this place.
  std::string with(std::size_t at, std::uint64_t value, std::size_t size = sizeof(std::uint64_t)) {
    std::string changed = bytes();
    std::memcpy(changed.data() + at, &value, size);
    return changed;
  }
};

// Where the file of the test has these.
constexpr std::size_t kMagicAt = 0, kVersionAt = 4, kProcessesAt = 8, kFirstProcessAt = 16,
                      kFirstRangeAt = 32, kSecondRangeAt = 48, kSecondProcessAt = 64;

TEST_F(LeftOutFile, ComesBackAsItWas) {
  EXPECT_EQ(read_left_out(folder, 4 * kPage), pages);
  std::filesystem::remove(path);
  write_left_out(folder, {});
  EXPECT_TRUE(read_left_out(folder, 0).empty());
}

TEST_F(LeftOutFile, NamesNoMoreThanWasCopied) {
  EXPECT_THROW(read_left_out(folder, 3 * kPage), std::runtime_error);
}

TEST_F(LeftOutFile, IsMissed) {
  std::filesystem::remove(path);
  EXPECT_THROW(read_left_out(folder, kAddressEnd), std::runtime_error);
}

TEST_F(LeftOutFile, IsRefusedWhenItIsCutOffOrLonger) {
  const std::string whole = bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    expect_refused(whole.substr(0, size), "it is cut off");
  }
  expect_refused(whole + '\0', "it is longer");
}

TEST_F(LeftOutFile, IsRefusedWhenItIsMalformed) {
  const auto refused = [&, whole = bytes()](const std::string& changed, const char* what) {
    expect_refused(changed, what);
    std::ofstream(path, std::ios::binary) << whole;
  };
  refused(with(kMagicAt, 1, 4), "magic");
  refused(with(kVersionAt, kLeftOutVersion + 1, 4), "version");
  refused(with(kProcessesAt, 3), "more processes");
  refused(with(kFirstProcessAt, 0, 4), "no process");
  refused(with(kSecondProcessAt, 7, 4), "the same process again");
  refused(with(kFirstRangeAt, kPage + 1), "no start of a page");
  refused(with(kFirstRangeAt, 3 * kPage), "an empty range");
  refused(with(kSecondRangeAt, 2 * kPage), "ranges that overlap");
  refused(with(kSecondProcessAt + 24, kAddressEnd + kPage), "no address of user space");
}

}  // namespace
}  // namespace ferry::precopy
