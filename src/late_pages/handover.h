#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "precopy/page_ranges.h"

// What ferryd hands to ferry-pages when it starts it: descriptors, and what they are.
//
//   3    a file: the description
//   4    where ferryd writes its log
//   5    a file that ferryd has locked (flock): it stays so as long as ferry-pages runs
//   6... for each process: its userfaultfd, the file with the content of its pages, its pidfd
//
// The process that ferryd has started ends with 0 when others have all this: ferryd is needed no more. Else nothing of
// it is left.
//
//   description = magic:32 version:32 { pid:32 0:32 ranges:64 { start:64 end:64 } }    little-endian
namespace ferry::late_pages {

inline constexpr int kDescription = 3, kLog = 4, kLock = 5, kFirst = 6;
inline constexpr std::uint32_t kMagic = 0x54414C46;  // "FLAT"
inline constexpr std::uint32_t kVersion = 1;

struct Described {
  pid_t pid = 0;  // as ferryd sees it
  precopy::PageRanges pages;
};

std::vector<std::byte> describe(const std::vector<Described>& processes);
// Throws std::runtime_error.
std::vector<Described> parse_description(std::span<const std::byte> description);

}  // namespace ferry::late_pages
