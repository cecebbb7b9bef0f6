#pragma once

#include <map>
#include <set>
#include <stdexcept>
#include <string>

// What the dynamic linker reads of an x86-64 library: which libraries and which versions of their
// symbols it needs, and which versions it has.
namespace ferry::oci {

class ElfError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Elf {
  std::set<std::string> needed;                        // DT_NEEDED
  std::map<std::string, std::set<std::string>> wants;  // DT_VERNEED: library, versions
  std::set<std::string> versions;                      // DT_VERDEF
};

// Reads the file behind a descriptor, which may be anybody's: every offset is checked. Throws
// ElfError.
Elf read_elf(int fd);

}  // namespace ferry::oci
