#pragma once

#include <string>

namespace ferry::precopy {

// Changes an image so that CRIU restores all pages that are in it (criu restore --lazy-pages). A dump marks the pages
// that could be left out, also when it has not left them out, and a restore then asks the server for them. Throws
// std::runtime_error when an image cannot be read, is not as CRIU 4.2 writes it, or leaves out pages by itself
// (criu dump --lazy-pages): the server does not have these.
//
//   pagemap-PID.img = 0x54564319:32 0x56084025:32 { length:32 message[length] }    little-endian;
//   the first message is a head; the others have vaddr = 1, nr_pages = 2 (before 4.2) or 5, flags =
//   4
void let_criu_restore(const std::string& directory);

}  // namespace ferry::precopy
