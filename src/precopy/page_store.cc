#include "precopy/page_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace ferry::precopy {
namespace {

constexpr std::uint64_t kWindow = 256ull << 20;  // bytes mapped at a time
constexpr std::size_t kMostWindows = 16384;      // of all processes: each is a mapping of ferryd's
constexpr std::size_t kMostProcesses = 4096;     // each takes a descriptor

[[noreturn]] void fail(int error) {
  throw std::system_error(error, std::generic_category(), "memory that was copied ahead");
}

void check(std::uint64_t start, std::uint64_t end) {
  if (start >= end || end > kAddressEnd || start % kPage != 0 || end % kPage != 0) fail(EINVAL);
}

}  // namespace

PageStore::~PageStore() {
  for (auto& [process, space] : spaces_) {
    for (const auto& [start, window] : space.windows) ::munmap(window, kWindow);
    ::close(space.file);
  }
}

PageStore::Space& PageStore::space(std::int32_t process) {
  if (!spaces_.contains(process) && spaces_.size() >= kMostProcesses) fail(ENOMEM);
  Space& space = spaces_[process];
  if (space.file < 0) {
    space.file = ::memfd_create("ferry-copied-ahead", MFD_CLOEXEC);
    if (space.file < 0 || ::ftruncate(space.file, static_cast<off_t>(kAddressEnd)) != 0)
      fail(errno);
  }
  return space;
}

std::span<std::byte> PageStore::put(std::int32_t process, std::uint64_t start, std::uint64_t end) {
  check(start, end);
  Space& into = space(process);
  const std::uint64_t first = start / kWindow * kWindow;
  end = std::min(end, first + kWindow);
  auto window = into.windows.find(first);
  if (window == into.windows.end()) {
    if (windows_ >= kMostWindows) fail(ENOMEM);
    void* map = ::mmap(nullptr, kWindow, PROT_READ | PROT_WRITE, MAP_SHARED, into.file,
                       static_cast<off_t>(first));
    if (map == MAP_FAILED) fail(errno);
    window = into.windows.emplace(first, static_cast<std::byte*>(map)).first;
    ++windows_;
  }
  const std::uint64_t before = into.pages.bytes();
  into.pages.add(start, end);
  bytes_ += into.pages.bytes() - before;
  if (bytes_ > limit_) fail(ENOMEM);
  return {window->second + (start - first), end - start};
}

std::span<const std::byte> PageStore::get(std::int32_t process, std::uint64_t start,
                                          std::uint64_t end) const {
  const Space& from = spaces_.at(process);
  const std::uint64_t first = start / kWindow * kWindow;
  end = std::min(end, first + kWindow);
  return {from.windows.at(first) + (start - first), end - start};
}

void PageStore::keep(std::int32_t process, const PageRanges& memory) {
  const auto found = spaces_.find(process);
  if (found == spaces_.end()) return;
  Space& space = found->second;
  PageRanges gone = space.pages;
  gone.remove(memory);
  for (const auto& [start, end] : gone) {
    ::fallocate(space.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(start),
                static_cast<off_t>(end - start));
  }
  space.pages.remove(gone);
  bytes_ -= gone.bytes();
}

std::map<std::int32_t, PageRanges> PageStore::pages() const {
  std::map<std::int32_t, PageRanges> all;
  for (const auto& [process, space] : spaces_) {
    if (!space.pages.empty()) all.emplace(process, space.pages);
  }
  return all;
}

int PageStore::file_of(std::int32_t process) const {
  const auto found = spaces_.find(process);
  return found == spaces_.end() ? -1 : found->second.file;
}

bool PageStore::has(std::int32_t process, std::uint64_t start, std::uint64_t end) const {
  const auto found = spaces_.find(process);
  return found != spaces_.end() && found->second.pages.contains(start, end);
}

void PageStore::need(const std::map<std::int32_t, PageRanges>& pages) const {
  for (const auto& [process, ranges] : pages) {
    for (const auto& [start, end] : ranges) {
      if (has(process, start, end)) continue;
      throw std::runtime_error("pages of process " + std::to_string(process) +
                               " are missing that were to be copied ahead");
    }
  }
}

}  // namespace ferry::precopy
