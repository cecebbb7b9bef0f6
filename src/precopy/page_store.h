#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "precopy/page_ranges.h"

namespace ferry::precopy {

// The memory of a program that arrives, while it still runs elsewhere: pages by process and
// address, in memory that has no name in any file system and is gone with this process. Not
// thread-safe: whoever fills it hands it over before somebody reads it.
class PageStore {
 public:
  // `limit`: most bytes that it keeps.
  explicit PageStore(std::uint64_t limit) : limit_(limit) {}
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;
  ~PageStore();

  // Gives the place for the content of these pages, which count as there from now on. The place may
  // end before `end`. Throws std::system_error: ENOMEM above the limit, EINVAL for what are no
  // pages.
  std::span<std::byte> put(std::int32_t process, std::uint64_t start, std::uint64_t end);
  // Gives the place of these pages, all of which are there. It may end before `end`, too.
  std::span<const std::byte> get(std::int32_t process, std::uint64_t start,
                                 std::uint64_t end) const;
  // Forgets the pages that are not in `memory`.
  void keep(std::int32_t process, const PageRanges& memory);

  std::map<std::int32_t, PageRanges> pages() const;  // that are there, by process

  // The file of this process's pages, whose offsets are their addresses; -1: it has none.
  int file_of(std::int32_t process) const;

  bool has(std::int32_t process, std::uint64_t start, std::uint64_t end) const;
  // Throws std::runtime_error unless all these pages, by process, are there.
  void need(const std::map<std::int32_t, PageRanges>& pages) const;
  std::uint64_t bytes() const { return bytes_; }

 private:
  // Offsets in the file are addresses of the process; the file has holes where there are no pages.
  struct Space {
    int file = -1;
    PageRanges pages;
    std::map<std::uint64_t, std::byte*> windows;  // by first address
  };
  Space& space(std::int32_t process);

  const std::uint64_t limit_;
  std::uint64_t bytes_ = 0;
  std::size_t windows_ = 0;
  std::map<std::int32_t, Space> spaces_;
};

}  // namespace ferry::precopy
