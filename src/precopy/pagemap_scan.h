#pragma once

#include <sys/ioctl.h>

#include <cstdint>

// From <linux/fs.h> of 6.7, which Debian 12 does not have: ioctl_pagemap_scan(2).
namespace ferry::precopy {

struct PageRegion {
  std::uint64_t start, end, categories;
};

struct ScanArgument {
  std::uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  std::uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

inline constexpr unsigned long kPagemapScan = _IOWR('f', 16, ScanArgument);

}  // namespace ferry::precopy
