#include "verbs/kernel/redirect.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "verbs/stock.h"

// stat(), access(), readlink(), realpath() and their like, for the files of virtual_files.h.
namespace ferry::verbs {
namespace {

constexpr blksize_t kBlock = 4096;

mode_t mode_of(PathKind kind) {
  switch (kind) {
    case PathKind::kDirectory: return S_IFDIR | 0755;
    case PathKind::kLink: return S_IFLNK | 0777;
    case PathKind::kDevice: return S_IFCHR | 0666;
    default: return S_IFREG | 0444;
  }
}

template <typename Status>
void describe(const char* path, const VirtualFile& file, Status* out) {
  *out = {};
  out->st_mode = mode_of(file.kind);
  out->st_nlink = 1;
  out->st_rdev = file.number;
  out->st_blksize = kBlock;
  out->st_size = file.kind == PathKind::kFile ? kBlock : 0;  // as sysfs has it
  // Programs tell files apart by these two.
  out->st_dev = makedev(0, 0xfe);
  out->st_ino = std::hash<std::string_view>()(path);
}

void describe(const char* path, const VirtualFile& file, struct statx* out) {
  struct stat status;
  describe(path, file, &status);
  *out = {};
  out->stx_mask = STATX_BASIC_STATS;
  out->stx_mode = static_cast<decltype(out->stx_mode)>(status.st_mode);
  out->stx_nlink = 1;
  out->stx_rdev_major = major(file.number);
  out->stx_rdev_minor = minor(file.number);
  out->stx_blksize = kBlock;
  out->stx_size = static_cast<decltype(out->stx_size)>(status.st_size);
  out->stx_dev_minor = minor(status.st_dev);
  out->stx_ino = status.st_ino;
}

// `next` asks the system for a path.
template <typename Status, typename Next>
int status_of(const char* path, bool follow, Status* out, Next next) {
  if (!may_be_virtual(path)) return next(path);
  VirtualFile file;
  if (const int error = find_file(path, follow, &file); error != 0) {
    return minus_one_or_errno(error);
  }
  if (is_systems(file, &path)) return next(path);
  if (file.shared) {
    const int saved_errno = errno;
    if (next(path) == 0) return 0;
    errno = saved_errno;
  }
  describe(path, file, out);
  return 0;
}

template <typename Next>
int access_to(const char* path, int mode, bool follow, Next next) {
  if (!may_be_virtual(path)) return next(path);
  VirtualFile file;
  if (const int error = find_file(path, follow, &file); error != 0) {
    return minus_one_or_errno(error);
  }
  if (is_systems(file, &path)) return next(path);
  int forbidden = W_OK | X_OK;
  if (file.kind == PathKind::kDirectory) forbidden = W_OK;
  if (file.kind == PathKind::kDevice) forbidden = X_OK;
  return minus_one_or_errno(mode & forbidden ? EACCES : 0);
}

template <typename Next>
ssize_t read_link(const char* path, char* out, size_t size, Next next) {
  if (!may_be_virtual(path)) return next(path);
  VirtualFile file;
  if (const int error = find_file(path, false, &file); error != 0) {
    return minus_one_or_errno(error);
  }
  if (is_systems(file, &path)) return next(path);
  if (file.kind != PathKind::kLink || size == 0) return minus_one_or_errno(EINVAL);
  const size_t length = std::min(size, file.text.size());
  memcpy(out, file.text.data(), length);
  return static_cast<ssize_t>(length);
}

// Our files have no links above them: the normal form of their path is the real one.
char* real_path(const char* path, char* out) {
  if (!may_be_virtual(path)) return FERRY_NEXT(realpath)(path, out);
  VirtualFile file;
  if (const int error = find_file(path, true, &file); error != 0) {
    return pointer_or_errno<char>(error, nullptr);
  }
  if (is_systems(file, &path)) return FERRY_NEXT(realpath)(path, out);
  std::string normal;
  if (const int error = guarded([&] {
        normal = normal_path(path);
        return normal.size() < PATH_MAX ? 0 : ENAMETOOLONG;
      });
      error != 0) {
    return pointer_or_errno<char>(error, nullptr);
  }
  if (!out) return ::strdup(normal.c_str());
  memcpy(out, normal.c_str(), normal.size() + 1);
  return out;
}

}  // namespace
}  // namespace ferry::verbs

using namespace ferry::verbs;

#define FERRY_STAT(function, type, follow)                                                 \
  FERRY_EXPORT int function(const char* path, struct type* out) noexcept {                 \
    return status_of(path, follow, out,                                                    \
                     [&](const char* asked) { return FERRY_NEXT(function)(asked, out); }); \
  }
FERRY_STAT(stat, stat, true)
FERRY_STAT(stat64, stat64, true)
FERRY_STAT(lstat, stat, false)
FERRY_STAT(lstat64, stat64, false)

#define FERRY_FSTATAT(function, type)                                                    \
  FERRY_EXPORT int function(int directory, const char* path, struct type* out,           \
                            int flags) noexcept {                                        \
    return status_of(path, !(flags & AT_SYMLINK_NOFOLLOW), out, [&](const char* asked) { \
      return FERRY_NEXT(function)(directory, asked, out, flags);                         \
    });                                                                                  \
  }
FERRY_FSTATAT(fstatat, stat)
FERRY_FSTATAT(fstatat64, stat64)

// Programs that were built for glibc 2.32 and older call these. Their first argument is the version
// of the struct, of which there is only one on 64 bits.
extern "C" {
#define FERRY_XSTAT(function, now, type)                                                         \
  __attribute__((visibility("default"))) int function(int, const char* path, struct type* out) { \
    return now(path, out);                                                                       \
  }
FERRY_XSTAT(__xstat, stat, stat)
FERRY_XSTAT(__xstat64, stat64, stat64)
FERRY_XSTAT(__lxstat, lstat, stat)
FERRY_XSTAT(__lxstat64, lstat64, stat64)
#define FERRY_FXSTATAT(function, now, type)                                                 \
  __attribute__((visibility("default"))) int function(int, int directory, const char* path, \
                                                      struct type* out, int flags) {        \
    return now(directory, path, out, flags);                                                \
  }
FERRY_FXSTATAT(__fxstatat, fstatat, stat)
FERRY_FXSTATAT(__fxstatat64, fstatat64, stat64)
}

FERRY_EXPORT int statx(int directory, const char* path, int flags, unsigned mask,
                       struct statx* out) noexcept {
  return status_of(path, !(flags & AT_SYMLINK_NOFOLLOW), out, [&](const char* asked) {
    return FERRY_NEXT(statx)(directory, asked, flags, mask, out);
  });
}

FERRY_EXPORT int access(const char* path, int mode) noexcept {
  return access_to(path, mode, true,
                   [&](const char* asked) { return FERRY_NEXT(access)(asked, mode); });
}
FERRY_EXPORT int euidaccess(const char* path, int mode) noexcept {
  return access_to(path, mode, true,
                   [&](const char* asked) { return FERRY_NEXT(euidaccess)(asked, mode); });
}
FERRY_EXPORT int eaccess(const char* path, int mode) noexcept {
  return euidaccess(path, mode);
}
FERRY_EXPORT int faccessat(int directory, const char* path, int mode, int flags) noexcept {
  return access_to(path, mode, !(flags & AT_SYMLINK_NOFOLLOW), [&](const char* asked) {
    return FERRY_NEXT(faccessat)(directory, asked, mode, flags);
  });
}

// Our files have no extended attributes, nor has anything in sysfs.
#define FERRY_NO_ATTRIBUTES(function, parameters, arguments, follow)                       \
  FERRY_EXPORT ssize_t function parameters noexcept {                                      \
    VirtualFile file;                                                                      \
    if (may_be_virtual(path)) {                                                            \
      if (const int error = find_file(path, follow, &file); error != 0) {                  \
        return minus_one_or_errno(error);                                                  \
      }                                                                                    \
      if (!is_systems(file, &path) && !file.shared) return minus_one_or_errno(EOPNOTSUPP); \
    }                                                                                      \
    const ssize_t result = FERRY_NEXT(function) arguments;                                 \
    return result < 0 && file.shared ? minus_one_or_errno(EOPNOTSUPP) : result;            \
  }
FERRY_NO_ATTRIBUTES(getxattr, (const char* path, const char* name, void* value, size_t size),
                    (path, name, value, size), true)
FERRY_NO_ATTRIBUTES(lgetxattr, (const char* path, const char* name, void* value, size_t size),
                    (path, name, value, size), false)
FERRY_NO_ATTRIBUTES(listxattr, (const char* path, char* list, size_t size), (path, list, size),
                    true)
FERRY_NO_ATTRIBUTES(llistxattr, (const char* path, char* list, size_t size), (path, list, size),
                    false)

FERRY_EXPORT ssize_t readlink(const char* path, char* out, size_t size) noexcept {
  return read_link(path, out, size,
                   [&](const char* asked) { return FERRY_NEXT(readlink)(asked, out, size); });
}
FERRY_EXPORT ssize_t readlinkat(int directory, const char* path, char* out, size_t size) noexcept {
  return read_link(path, out, size, [&](const char* asked) {
    return FERRY_NEXT(readlinkat)(directory, asked, out, size);
  });
}

FERRY_EXPORT char* realpath(const char* path, char* out) noexcept {
  return real_path(path, out);
}
FERRY_EXPORT char* canonicalize_file_name(const char* path) noexcept {
  return real_path(path, nullptr);
}

// The forms of _FORTIFY_SOURCE: `room` is the size of the caller's buffer.
FERRY_EXPORT ssize_t __readlink_chk(const char* path, char* out, size_t size, size_t room) {
  if (size > room) abort();
  return readlink(path, out, size);
}
FERRY_EXPORT ssize_t __readlinkat_chk(int directory, const char* path, char* out, size_t size,
                                      size_t room) {
  if (size > room) abort();
  return readlinkat(directory, path, out, size);
}
FERRY_EXPORT char* __realpath_chk(const char* path, char* out, size_t room) {
  if (room < PATH_MAX) abort();
  return realpath(path, out);
}
