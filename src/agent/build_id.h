#pragma once

#include <string>

namespace ferry::agent {

// The GNU build id, in hexadecimal, of the object that this code was linked into: libferry.so, or a
// test. Empty: it was linked without one.
std::string build_id();

}  // namespace ferry::agent
