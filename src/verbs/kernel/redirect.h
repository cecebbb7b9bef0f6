#pragma once

#include <errno.h>
#include <sys/stat.h>

#include "verbs/entry.h"
#include "verbs/kernel/virtual_files.h"

// What the interposed file functions of libc share. A path that is not ours costs such a function the comparison of a
// prefix.
namespace ferry::verbs {

// look_up() without exceptions. 0 or an errno value: ENOENT when the file is kMissing. Leaves errno
// alone.
inline int find_file(const char* path, bool follow, VirtualFile* out) {
  const int saved_errno = errno;
  const int error = guarded([&] {
    *out = look_up(path, follow);
    return out->kind == PathKind::kMissing ? ENOENT : 0;
  });
  errno = saved_errno;
  return error;
}

// Whether the system answers for `file`. *path becomes the file behind a link (kReal), or stays.
inline bool is_systems(const VirtualFile& file, const char** path) {
  if (file.kind == PathKind::kReal) *path = file.text.c_str();
  return file.kind == PathKind::kReal || file.kind == PathKind::kNotOurs;
}

}  // namespace ferry::verbs
