#include "late_pages/content.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace ferry::late_pages {
namespace {

constexpr std::uint64_t kWindow =
    256ull << 20;  // bytes mapped at a time: the file has a hole for most addresses

}  // namespace

Content::Content(UniqueFd file, const precopy::PageRanges& pages) : file_(std::move(file)) {
  for (const auto& [start, end] : pages) {
    for (std::uint64_t first = start / kWindow * kWindow; first < end; first += kWindow) {
      if (windows_.contains(first)) continue;
      void* map =
          ::mmap(nullptr, kWindow, PROT_READ, MAP_SHARED, file_.get(), static_cast<off_t>(first));
      if (map == MAP_FAILED) {
        throw std::runtime_error(std::string("cannot map the content of pages: ") +
                                 std::strerror(errno));
      }
      windows_.emplace(first, static_cast<const std::byte*>(map));
    }
  }
}

Content::~Content() {
  for (const auto& [first, window] : windows_) ::munmap(const_cast<std::byte*>(window), kWindow);
}

std::span<const std::byte> Content::get(std::uint64_t start, std::uint64_t end) const {
  const std::uint64_t first = start / kWindow * kWindow;
  return {windows_.at(first) + (start - first), std::min(end, first + kWindow) - start};
}

}  // namespace ferry::late_pages
