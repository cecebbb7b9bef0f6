// In ferry-criu-dump.so, preloaded into `criu dump`: pages whose content ferryd has already are not there for CRIU,
// which finds pages by PAGEMAP_SCAN. CRIU has no hook for that. It could leave pages to `criu lazy-pages`, but then it
// pins each of them in a pipe while the program stands still, and that takes longer the more memory the program has.
//
// FERRY_LEFT_OUT names a folder. Its file PID has the pages of that process: { start:64 end:64 }, in the byte order of
// the host, sorted and disjoint. A process without a file is dumped as a whole. So are all processes when CRIU looks
// for pages in another way: then its image has what ferryd has too, and no harm is done.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "precopy/pagemap_scan.h"

namespace {

using ferry::precopy::kPagemapScan;
using ferry::precopy::PageRegion;
using ferry::precopy::ScanArgument;

constexpr std::size_t kLongestPath = 4096;

struct Range {
  std::uint64_t start, end;
};

// What is left out of the process that was asked about last. CRIU dumps one after the other, in one thread.
struct LeftOut {
  long pid = 0;
  std::size_t count = 0;
  std::unique_ptr<Range[]> ranges;
} left_out;

// The process whose pagemap this is; 0: it is no pagemap.
long pid_of(int pagemap) {
  char link[64], path[256];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", pagemap);
  const ssize_t size = ::readlink(link, path, sizeof path - 1);
  if (size <= 0) return 0;
  path[size] = '\0';
  char* end = std::strrchr(path, '/');
  if (end == nullptr || std::strcmp(end, "/pagemap") != 0) return 0;
  *end = '\0';
  const char* number = std::strrchr(path, '/');
  return number == nullptr ? 0 : std::strtol(number + 1, nullptr, 10);
}

void read_ranges(long pid) {
  left_out = {pid, 0, nullptr};
  const char* folder = std::getenv("FERRY_LEFT_OUT");
  if (folder == nullptr) return;
  char path[kLongestPath];
  std::snprintf(path, sizeof path, "%s/%ld", folder, pid);
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  struct stat facts {};
  if (file < 0) return;
  if (::fstat(file, &facts) == 0) {
    const auto size = static_cast<std::size_t>(facts.st_size);
    const std::size_t count = size / sizeof(Range);
    left_out.ranges.reset(new (std::nothrow) Range[count]);
    const bool is_whole = left_out.ranges && size % sizeof(Range) == 0 &&
                          ::read(file, left_out.ranges.get(), size) == facts.st_size;
    left_out.count = is_whole ? count : 0;
  }
  ::close(file);
}

int scan(int pagemap, ScanArgument* arg) {
  return static_cast<int>(::syscall(SYS_ioctl, pagemap, kPagemapScan, arg));
}

// Scans what is not left out, piece by piece, into one answer.
int scan_the_rest(int pagemap, ScanArgument* arg) {
  const Range* const first = left_out.ranges.get();
  const Range* const last = first + left_out.count;
  const Range* range =
      std::upper_bound(first, last, arg->start,
                       [](std::uint64_t address, const Range& each) { return address < each.end; });
  int found = 0;
  for (std::uint64_t at = arg->start; at < arg->end;) {
    if (range != last && range->start <= at) {
      at = std::min<std::uint64_t>(range->end, arg->end);
      ++range;
      continue;
    }
    ScanArgument piece = *arg;
    piece.start = at;
    piece.end = range == last ? arg->end : std::min<std::uint64_t>(range->start, arg->end);
    piece.vec += static_cast<std::uint64_t>(found) * sizeof(PageRegion);
    piece.vec_len -= static_cast<std::uint64_t>(found);
    piece.walk_end = at;
    if (piece.vec_len > 0) {
      const int more = scan(pagemap, &piece);
      if (more < 0) return -1;
      found += more;
    }
    at = piece.walk_end;
    if (at < piece.end) {  // there is no room for more
      arg->walk_end = at;
      return found;
    }
  }
  arg->walk_end = arg->end;
  return found;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int ioctl(int file, unsigned long request,
                                                            ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  auto* const arg = static_cast<ScanArgument*>(argument);
  // A look, and no more than that: it protects nothing.
  if (request == kPagemapScan && arg != nullptr && arg->flags == 0 && arg->max_pages == 0 &&
      arg->vec != 0) {
    if (const long pid = pid_of(file); pid > 0) {
      if (pid != left_out.pid) read_ranges(pid);
      if (left_out.count > 0) return scan_the_rest(file, arg);
    }
  }
  return static_cast<int>(::syscall(SYS_ioctl, file, request, argument));
}
