#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "precopy/page_ranges.h"

// Which pages an image leaves out because they were copied ahead, as a file of the image:
//
//   ferry-left-out = magic:32 version:32 processes:64 { process:32 reserved:32 ranges:64 { start:64 end:64 } }
//                    little-endian; processes: by their pid in their own pid namespace, in order; ranges: sorted, and
//                    disjoint
namespace ferry::precopy {

inline constexpr std::uint32_t kLeftOutMagic = 0x544F4C46;  // "FLOT"
inline constexpr std::uint32_t kLeftOutVersion = 1;
inline constexpr char kLeftOutFile[] = "ferry-left-out";

// Writes the file, which is not there yet. Throws std::runtime_error.
void write_left_out(const std::string& directory, const std::map<std::int32_t, PageRanges>& pages);
// `most`: as many bytes as all these pages may have. Throws std::runtime_error: there is no such file, it is malformed,
// or names more pages.
std::map<std::int32_t, PageRanges> read_left_out(const std::string& directory, std::uint64_t most);

}  // namespace ferry::precopy
