#include "host/proc/written_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include "base/failure.h"
#include "base/unique_fd.h"
#include "host/proc/process_facts.h"
#include "host/proc/process_tree.h"

namespace ferry::host {

std::vector<WrittenFile> written_files(pid_t root) {
  std::set<WrittenFile> files;
  for (const pid_t pid : process_tree(root)) {
    for (const auto& descriptor : descriptors_of(pid)) {
      struct stat facts {};
      const std::string link = fmt::format("/proc/{}/fd/{}", pid, descriptor.number);
      if ((descriptor.flags & O_ACCMODE) == O_RDONLY || ::stat(link.c_str(), &facts) != 0) continue;
      if (!S_ISREG(facts.st_mode) || facts.st_nlink == 0) continue;
      files.insert({descriptor.target, static_cast<std::uint64_t>(facts.st_size)});
    }
  }
  return {files.begin(), files.end()};
}

std::string cut_back(const WrittenFile& file, const std::string& aside) {
  const auto fail = [&](const char* what) {
    const int error = errno;
    throw Failure(fmt::format("cannot {} {}: {}", what, printable(file.path), error_text(error)));
  };
  const UniqueFd open(::open(file.path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat facts {};
  if (!open || ::fstat(open.get(), &facts) != 0) fail("open");
  const auto size = static_cast<std::uint64_t>(facts.st_size);
  if (!S_ISREG(facts.st_mode)) throw Failure(printable(file.path) + " is no regular file");
  if (size < file.bytes) {
    throw Failure(fmt::format("{} had {} bytes at the checkpoint, and has {} now",
                              printable(file.path), file.bytes, size));
  }
  if (size == file.bytes) return {};
  std::string name = aside;
  UniqueFd kept;
  for (unsigned next = 2; !kept; ++next) {
    kept.reset(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (kept || errno != EEXIST) break;
    name = fmt::format("{}.{}", aside, next);
  }
  if (!kept) fail("keep aside the end of");
  for (off64_t at = static_cast<off64_t>(file.bytes); at < facts.st_size;) {
    const ssize_t copied = ::copy_file_range(open.get(), &at, kept.get(), nullptr,
                                             static_cast<std::size_t>(facts.st_size - at), 0);
    if (copied <= 0) fail("keep aside the end of");
  }
  if (::fchown(kept.get(), facts.st_uid, facts.st_gid) != 0 ||
      ::fchmod(kept.get(), facts.st_mode & 0777) != 0 || ::fsync(kept.get()) != 0) {
    fail("keep aside the end of");
  }
  if (::ftruncate(open.get(), static_cast<off_t>(file.bytes)) != 0) fail("cut back");
  return name;
}

}  // namespace ferry::host
