#pragma once

#include <string>

namespace ferry {

// The GNU build id, in hexadecimal, of the object that this code was linked into: libferry.so, a
// program, or a test. Empty: it was linked without one.
std::string build_id();

// The same of an x86-64 ELF file. Empty: it cannot be read, is no such file, or has none.
std::string build_id_of(const std::string& path);

}  // namespace ferry
