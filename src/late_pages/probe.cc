#include "late_pages/probe.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>

#include "precopy/page_ranges.h"

namespace ferry::late_pages {
namespace {

// Memory that the kernel cannot read.
std::uint64_t unreadable() {
  static void* const page =
      ::mmap(nullptr, precopy::kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return reinterpret_cast<std::uint64_t>(page);
}

}  // namespace

// The kernel looks for the memory first, and fails to read then what it was to fill in.
Probed probe(int userfaultfd, std::uint64_t page) {
  uffdio_copy nothing{page, unreadable(), precopy::kPage, 0, 0};
  ::ioctl(userfaultfd, UFFDIO_COPY, &nothing);
  switch (errno) {
    case ENOENT: return Probed::kNotMapped;
    case EAGAIN: return Probed::kOutstanding;
    case ESRCH:
    case EBADF: return Probed::kNoMemory;
    default: return Probed::kMapped;
  }
}

bool is_registered_in(pid_t pid, std::uint64_t page) {
  std::ifstream mappings("/proc/" + std::to_string(pid) + "/smaps");
  bool is_here = false;
  for (std::string line; std::getline(mappings, line);) {
    char* rest = nullptr;
    const std::uint64_t start = std::strtoull(line.c_str(), &rest, 16);
    if (*rest == '-') is_here = start <= page && page < std::strtoull(rest + 1, nullptr, 16);
    if (is_here && line.starts_with("VmFlags:")) return (line + ' ').find(" um ") != line.npos;
  }
  return false;
}

}  // namespace ferry::late_pages
