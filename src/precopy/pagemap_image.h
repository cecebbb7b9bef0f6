#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "precopy/page_ranges.h"

namespace ferry::precopy {

// The pages that CRIU has left out of an image (criu dump --lazy-pages), by process (its pid in its
// own pid namespace). Throws std::runtime_error when an image cannot be read or is not as CRIU 4.2
// writes it.
//
//   pagemap-PID.img = 0x54564319:32 0x56084025:32 { length:32 message[length] }    little-endian;
//   the first message is a head; the others have vaddr = 1, nr_pages = 2 (before 4.2) or 5, flags =
//   4
std::map<std::int32_t, PageRanges> pages_left_out(const std::string& directory);

// Changes an image so that CRIU restores all pages that are in it (criu restore --lazy-pages). A dump marks the pages
// that could be left out, also when it has not left them out, and a restore then asks the server for them. Throws as
// pages_left_out().
void let_criu_restore(const std::string& directory);

}  // namespace ferry::precopy
