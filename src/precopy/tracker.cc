#include "precopy/tracker.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "precopy/pagemap_scan.h"

namespace ferry::precopy {
namespace {

constexpr std::uint64_t kTracked = 1 << 0, kWritten = 1 << 1, kPresent = 1 << 3, kSwapped = 1 << 4,
                        kZeroPage = 1 << 5;
constexpr std::uint64_t kProtectMatching = 1 << 0;

[[noreturn]] void fail(const std::string& what, int error) {
  throw std::runtime_error(what + ": " + std::strerror(error));
}

std::string proc(pid_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

bool is_private_memory(std::string_view permissions, std::string_view inode,
                       std::string_view name) {
  return permissions.size() == 4 && permissions[3] == 'p' && inode == "0" &&
         (name.empty() || name == "[heap]" || name == "[stack]" || name.starts_with("[anon:"));
}

// Adds the pages that a scan matches. `wanted` and `unwanted` are categories.
void scan(int pagemap, std::uint64_t start, std::uint64_t end, std::uint64_t flags,
          std::uint64_t wanted, std::uint64_t unwanted, PageRanges* found) {
  std::array<PageRegion, 1024> regions;
  ScanArgument argument{};
  argument.size = sizeof argument;
  argument.flags = flags;
  argument.vec = reinterpret_cast<std::uint64_t>(regions.data());
  argument.vec_len = regions.size();
  argument.category_mask = wanted | unwanted;
  argument.category_inverted = unwanted;
  argument.category_anyof_mask = kPresent | kSwapped;
  argument.return_mask = kPresent;
  for (argument.start = start; argument.start < end; argument.start = argument.walk_end) {
    argument.end = end;
    const int count = ::ioctl(pagemap, kPagemapScan, &argument);
    if (count < 0 && errno == EINTR) {
      argument.walk_end = argument.start;
      continue;
    }
    if (count < 0) fail("cannot look for written pages", errno);
    for (int i = 0; i < count; ++i) found->add(regions[i].start, regions[i].end);
    if (argument.walk_end <= argument.start) return;
  }
}

class Pagemap {
 public:
  explicit Pagemap(pid_t pid) : fd_(::open(proc(pid, "pagemap").c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) fail("cannot read the page table of process " + std::to_string(pid), errno);
  }
  ~Pagemap() { ::close(fd_); }
  int get() const { return fd_; }

 private:
  const int fd_;
};

// Those whose permissions `wanted` accepts.
template <typename Wanted>
PageRanges private_memory_if(pid_t pid, Wanted wanted) {
  std::ifstream maps(proc(pid, "maps"));
  if (!maps) fail("cannot read the mappings of process " + std::to_string(pid), errno);
  PageRanges memory;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string range, permissions, offset, device, inode, name;
    fields >> range >> permissions >> offset >> device >> inode >> std::ws;
    std::getline(fields, name);
    std::uint64_t start = 0, end = 0;
    if (std::sscanf(range.c_str(), "%lx-%lx", &start, &end) != 2 || end > kAddressEnd) continue;
    if (is_private_memory(permissions, inode, name) && wanted(permissions)) memory.add(start, end);
  }
  return memory;
}

}  // namespace

PageRanges private_memory(pid_t pid) {
  return private_memory_if(pid, [](std::string_view) { return true; });
}

PageRanges executable_memory(pid_t pid) {
  return private_memory_if(pid, [](std::string_view permissions) { return permissions[2] == 'x'; });
}

PageRanges locked_memory(pid_t pid) {
  PageRanges locked;
  std::ifstream status(proc(pid, "status"));
  bool is_any = false;
  for (std::string word; status >> word;) {
    std::uint64_t kib = 0;
    if (word == "VmLck:" && status >> kib) is_any = kib > 0;
  }
  if (!is_any) return locked;
  std::ifstream mappings(proc(pid, "smaps"));
  if (!mappings) fail("cannot read the mappings of process " + std::to_string(pid), errno);
  std::uint64_t start = 0, end = 0;
  for (std::string line; std::getline(mappings, line);) {
    std::uint64_t from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2) {
      start = from;
      end = to;
    } else if (line.starts_with("VmFlags:") && line.find(" lo") != std::string::npos) {
      locked.add(start, end);
    }
  }
  return locked;
}

bool writes_unseen(pid_t pid) {
  std::ifstream maps(proc(pid, "maps"));
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/[aio]") != std::string::npos) return true;
  }
  const std::string folder = proc(pid, "fdinfo");
  DIR* entries = ::opendir(folder.c_str());
  if (entries == nullptr) return true;
  bool found = false;
  while (const dirent* entry = ::readdir(entries)) {
    std::ifstream info(folder + "/" + entry->d_name);
    for (std::string word; !found && info >> word;) {
      unsigned long flags = 0;
      if (word == "flags:" && info >> std::oct >> flags) {
        found = (flags & O_DIRECT) != 0;
        break;
      }
    }
  }
  ::closedir(entries);
  return found;
}

bool can_track() {
  static const bool can = [] {
    const Pagemap pagemap(::getpid());
    PageRegion found{};
    ScanArgument argument{};
    argument.size = sizeof argument;
    argument.vec = reinterpret_cast<std::uint64_t>(&found);
    argument.start = argument.vec / kPage * kPage;  // any page
    argument.end = argument.start + kPage;
    argument.vec_len = 1;
    argument.category_mask = argument.return_mask = kPresent;
    return ::ioctl(pagemap.get(), kPagemapScan, &argument) >= 0;
  }();
  return can;
}

Tracker::~Tracker() {
  if (userfaultfd_ >= 0) ::close(userfaultfd_);
}

Tracker::Look Tracker::take() {
  Look look;
  look.memory = private_memory(pid_);
  const Pagemap pagemap(pid_);
  // Memory that is not tracked yet is dirty as a whole: new mappings, and those that mremap() has
  // moved, which lose their registration. It is looked for before it is registered, because the
  // kernel does not tell what was new to it.
  for (const auto& [start, end] : look.memory) {
    scan(pagemap.get(), start, end, 0, 0, kTracked | kZeroPage, &look.dirty);
  }
  if (!tracks()) return look;
  for (const auto& [start, end] : look.memory) {
    uffdio_register request{{start, end - start}, UFFDIO_REGISTER_MODE_WP, 0};
    // Fails for memory that is gone meanwhile, is another userfaultfd's, or belongs to a process
    // that has executed another program: that is not tracked.
    ::ioctl(userfaultfd_, UFFDIO_REGISTER, &request);
  }
  // Protects only pages that are there: a protected hole would be a page for CRIU.
  for (const auto& [start, end] : look.memory) {
    scan(pagemap.get(), start, end, kProtectMatching, kTracked | kWritten, kZeroPage, &look.dirty);
  }
  return look;
}

PageRanges Tracker::clean() const {
  PageRanges clean;
  if (!tracks()) return clean;
  const Pagemap pagemap(pid_);
  for (const auto& [start, end] : private_memory(pid_)) {
    scan(pagemap.get(), start, end, 0, kTracked, kWritten | kZeroPage, &clean);
  }
  return clean;
}

Tracker::Look Tracker::look() const {
  Look look;
  look.memory = private_memory(pid_);
  const Pagemap pagemap(pid_);
  for (const auto& [start, end] : look.memory) {
    scan(pagemap.get(), start, end, 0, 0, kTracked | kZeroPage, &look.dirty);
    if (tracks()) scan(pagemap.get(), start, end, 0, kTracked | kWritten, kZeroPage, &look.dirty);
  }
  return look;
}

}  // namespace ferry::precopy
