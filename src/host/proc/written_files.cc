#include "host/proc/written_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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
      files.insert({descriptor.target, static_cast<std::uint64_t>(facts.st_size), facts.st_uid});
    }
  }
  return {files.begin(), files.end()};
}

namespace {

Failure cannot(const char* what, const std::string& path) {
  const int error = errno;
  return Failure(fmt::format("cannot {} {}: {}", what, printable(path), error_text(error)));
}

UniqueFd open_without_links(const std::string& folder) {
  open_how how{};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_NO_SYMLINKS;
  return UniqueFd(
      static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, folder.c_str(), &how, sizeof how)));
}

// Copies what `from` has behind `at` to the beginning of `to`, also what comes to it meanwhile.
bool copy_end(const UniqueFd& from, std::uint64_t at, const UniqueFd& to) {
  struct stat facts {};
  for (auto next = static_cast<off64_t>(at);;) {
    if (::fstat(from.get(), &facts) != 0) return false;
    if (next >= facts.st_size) break;
    const ssize_t copied = ::copy_file_range(from.get(), &next, to.get(), nullptr,
                                             static_cast<std::size_t>(facts.st_size - next), 0);
    if (copied == 0) errno = EBUSY;  // somebody has made it shorter
    if (copied <= 0) return false;
  }
  return ::fchown(to.get(), facts.st_uid, facts.st_gid) == 0 &&
         ::fchmod(to.get(), facts.st_mode & 0777) == 0 && ::fsync(to.get()) == 0;
}

}  // namespace

LaterFile::LaterFile(const WrittenFile& file) : then_(file) {
  const std::filesystem::path path(file.path);
  folder_ = open_without_links(path.parent_path());
  if (folder_) {
    file_.reset(::openat(folder_.get(), path.filename().c_str(),
                         O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  }
  struct stat facts {};
  if (!file_ || ::fstat(file_.get(), &facts) != 0) throw cannot("open", file.path);
  if (!S_ISREG(facts.st_mode)) throw Failure(printable(file.path) + " is no regular file");
  if (facts.st_uid != file.owner) {
    throw Failure(fmt::format("{} was of user {} at the checkpoint, and is of user {} now",
                              printable(file.path), file.owner, facts.st_uid));
  }
  size();
}

std::uint64_t LaterFile::size() const {
  struct stat facts {};
  if (::fstat(file_.get(), &facts) != 0) throw cannot("read", then_.path);
  const auto size = static_cast<std::uint64_t>(facts.st_size);
  if (size >= then_.bytes) return size;
  throw Failure(fmt::format("{} had {} bytes at the checkpoint, and has {} now",
                            printable(then_.path), then_.bytes, size));
}

std::string LaterFile::cut_back(const std::string& suffix) const {
  if (size() == then_.bytes) return {};
  const std::filesystem::path path(then_.path);
  const std::string first = path.filename().string() + suffix;
  std::string name = first;
  UniqueFd kept;
  for (unsigned next = 2;; ++next) {
    kept.reset(
        ::openat(folder_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (kept || errno != EEXIST) break;
    name = fmt::format("{}.{}", first, next);
  }
  if (!kept) throw cannot("keep aside the end of", then_.path);
  if (!copy_end(file_, then_.bytes, kept) || ::fsync(folder_.get()) != 0 ||
      ::ftruncate(file_.get(), static_cast<off_t>(then_.bytes)) != 0) {
    const Failure failure = cannot("keep aside the end of", then_.path);
    ::unlinkat(folder_.get(), name.c_str(), 0);
    throw failure;
  }
  return path.parent_path() / name;
}

}  // namespace ferry::host
