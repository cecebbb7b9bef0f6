#include "verbs/kernel/redirect.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs/kernel/rdma_cm.h"
#include "verbs/kernel/relayed_cm.h"
#include "verbs/stock.h"

// Programs and the stock library look devices up under /sys/class/infiniband and its like
// (virtual_files.h). What they find there for ours is made up here: an opened file is a memfd with
// the content.
namespace ferry::verbs {
namespace {

constexpr int kPassOn = -2;

int memory_file(const std::string& content, int flags) {
  const int file = ::memfd_create("ferry-sysfs", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
  if (file < 0) return -1;
  if (::write(file, content.data(), content.size()) != static_cast<ssize_t>(content.size()) ||
      ::lseek(file, 0, SEEK_SET) != 0) {
    ::close(file);
    errno = ENOMEM;
    return -1;
  }
  return file;
}

int open_found(const VirtualFile& file, int flags) {
  switch (file.kind) {
    case PathKind::kDirectory: return minus_one_or_errno(EISDIR);
    case PathKind::kDevice:
      if (file.number == rdma_cm_number()) return open_rdma_cm(flags);
      return minus_one_or_errno(ENXIO);                      // nobody is behind it
    case PathKind::kLink: return minus_one_or_errno(ELOOP);  // O_NOFOLLOW
    default: break;
  }
  if ((flags & O_ACCMODE) != O_RDONLY) return minus_one_or_errno(EACCES);
  return memory_file(file.text, flags);
}

// A descriptor, -1 with errno, or kPassOn: the system opens *path.
int open_virtual(const char** path, int flags, VirtualFile* found) {
  if (!may_be_virtual(*path)) return kPassOn;
  if (const int error = find_file(*path, !(flags & O_NOFOLLOW), found); error != 0) {
    return minus_one_or_errno(error);
  }
  if (is_systems(*found, path)) {
    const bool is_relayed =
        found->kind == PathKind::kNotOurs && is_rdma_cm(*path) && relays_rdma_cm();
    return is_relayed ? open_kernels_rdma_cm(flags) : kPassOn;
  }
  // A directory that the system has, too, can be opened as what it is there.
  if (found->shared && FERRY_NEXT(access)(*path, F_OK) == 0) return kPassOn;
  return open_found(*found, flags);
}

mode_t mode_of(int flags, va_list arguments) {
  return flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)) ? va_arg(arguments, mode_t) : 0;
}

FILE* stream_of(int file, const char* mode) {
  if (file < 0) return nullptr;
  FILE* stream = ::fdopen(file, mode);
  if (!stream) ::close(file);
  return stream;
}

int flags_of(const char* mode) {
  const int access = strchr(mode, '+') ? O_RDWR : *mode == 'r' ? O_RDONLY : O_WRONLY;
  return access | (strchr(mode, 'e') ? O_CLOEXEC : 0);
}

}  // namespace
}  // namespace ferry::verbs

using namespace ferry::verbs;

#define FERRY_OPEN(function)                                                 \
  FERRY_EXPORT int function(const char* path, int flags, ...) {              \
    va_list arguments;                                                       \
    va_start(arguments, flags);                                              \
    const mode_t mode = mode_of(flags, arguments);                           \
    va_end(arguments);                                                       \
    VirtualFile found;                                                       \
    const int file = open_virtual(&path, flags, &found);                     \
    return file != kPassOn ? file : FERRY_NEXT(function)(path, flags, mode); \
  }
FERRY_OPEN(open)
FERRY_OPEN(open64)

// Our paths are absolute: `directory` does not matter to them.
#define FERRY_OPENAT(function)                                                          \
  FERRY_EXPORT int function(int directory, const char* path, int flags, ...) {          \
    va_list arguments;                                                                  \
    va_start(arguments, flags);                                                         \
    const mode_t mode = mode_of(flags, arguments);                                      \
    va_end(arguments);                                                                  \
    VirtualFile found;                                                                  \
    const int file = open_virtual(&path, flags, &found);                                \
    return file != kPassOn ? file : FERRY_NEXT(function)(directory, path, flags, mode); \
  }
FERRY_OPENAT(openat)
FERRY_OPENAT(openat64)

// Programs that were compiled with _FORTIFY_SOURCE call these; none of them creates a file.
FERRY_EXPORT int __open_2(const char* path, int flags) {
  return open(path, flags);
}
FERRY_EXPORT int __open64_2(const char* path, int flags) {
  return open64(path, flags);
}
FERRY_EXPORT int __openat_2(int directory, const char* path, int flags) {
  return openat(directory, path, flags);
}
FERRY_EXPORT int __openat64_2(int directory, const char* path, int flags) {
  return openat64(directory, path, flags);
}

#define FERRY_FOPEN(function)                                                          \
  FERRY_EXPORT FILE* function(const char* path, const char* mode) {                    \
    if (!mode) return FERRY_NEXT(function)(path, mode);                                \
    VirtualFile found;                                                                 \
    const int file = open_virtual(&path, flags_of(mode), &found);                      \
    return file == kPassOn ? FERRY_NEXT(function)(path, mode) : stream_of(file, mode); \
  }
FERRY_FOPEN(fopen)
FERRY_FOPEN(fopen64)
