#pragma once

#include <sys/types.h>

#include <string>

// The libferry.so that a process runs with, as the kernel tells: nothing of what the process says of itself is asked.
namespace ferry::host {

struct Library {
  std::string build_id;    // GNU build id of the file, in hexadecimal; empty: it has none
  std::string digest;      // SHA-256 of the file, in hexadecimal
  bool is_intact = false;  // its code in the process's memory is that of the file
};

// Throws Failure, one line: the process has no libferry.so mapped, or several, or they cannot be read.
Library library_of(pid_t pid);

// SHA-256 of a file, in hexadecimal. Throws Failure.
std::string digest_of(const std::string& path);

}  // namespace ferry::host
