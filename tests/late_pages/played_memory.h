#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "late_pages/content.h"
#include "late_pages/filler.h"
#include "precopy/page_ranges.h"

namespace ferry::late_pages {

// A userfaultfd as criu restore makes it; none: this kernel or user may not have it.
inline UniqueFd make_userfaultfd() {
  UniqueFd userfaultfd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |
                 UFFD_FEATURE_EVENT_UNMAP;
  if (!userfaultfd || ::ioctl(userfaultfd.get(), UFFDIO_API, &api) != 0) return {};
  return userfaultfd;
}

// Memory of this process that lacks all of its pages. Page I of the content has the byte `byte_of(I)` all over.
struct PlayedMemory {
  static constexpr std::uint64_t kPage = precopy::kPage;

  explicit PlayedMemory(std::uint64_t count) : pages(count), userfaultfd(make_userfaultfd()) {
    memory = static_cast<unsigned char*>(
        ::mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    uffdio_register request{{start(), pages * kPage}, UFFDIO_REGISTER_MODE_MISSING, 0};
    if (!userfaultfd) return;
    EXPECT_EQ(::ioctl(userfaultfd.get(), UFFDIO_REGISTER, &request), 0);
  }
  ~PlayedMemory() {
    userfaultfd.reset();  // munmap() would wait for who reads its events
    ::munmap(memory, pages * kPage);
  }
  PlayedMemory(const PlayedMemory&) = delete;

  std::uint64_t start() const { return reinterpret_cast<std::uint64_t>(memory); }
  static unsigned char byte_of(std::uint64_t page) {
    return static_cast<unsigned char>(1 + page % 251);
  }

  precopy::PageRanges ranges() const {
    precopy::PageRanges all;
    all.add(start(), start() + pages * kPage);
    return all;
  }
  UniqueFd content_file() const {
    UniqueFd file(::memfd_create("content", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(file.get(), 1ll << 47), 0);
    for (std::uint64_t page = 0; page < pages; ++page) {
      const std::string bytes(kPage, static_cast<char>(byte_of(page)));
      EXPECT_EQ(
          ::pwrite(file.get(), bytes.data(), kPage, static_cast<off_t>(start() + page * kPage)),
          static_cast<ssize_t>(kPage));
    }
    return file;
  }
  // Takes the userfaultfd.
  Process process() {
    return {0, std::move(userfaultfd), std::make_shared<const Content>(content_file(), ranges()),
            Lacking(ranges())};
  }

  const std::uint64_t pages;
  UniqueFd userfaultfd;
  unsigned char* memory = nullptr;
};

}  // namespace ferry::late_pages
