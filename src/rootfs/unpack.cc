#include "rootfs/unpack.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>

#include "rootfs/frames.h"
#include "rootfs/libarchive.h"
#include "rootfs/pack.h"

namespace ferry::rootfs {
namespace {

constexpr int kHow = ARCHIVE_EXTRACT_OWNER | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME |
                     ARCHIVE_EXTRACT_ACL | ARCHIVE_EXTRACT_XATTR | ARCHIVE_EXTRACT_SPARSE |
                     ARCHIVE_EXTRACT_UNLINK | ARCHIVE_EXTRACT_SECURE_SYMLINKS |
                     ARCHIVE_EXTRACT_SECURE_NODOTDOT;
constexpr std::size_t kMostNames = 256 << 20;  // bytes

// A warning is a failure: something would not be as it was.
void need(int result, archive* what, const std::string& name) {
  if (result == ARCHIVE_OK) return;
  const int error = ::archive_errno(what);
  const char* const text = ::archive_error_string(what);
  throw Error("cannot write " + name + (text != nullptr ? std::string(": ") + text : ""),
              error > 0 ? error : EIO);
}

struct Input {
  const Source& source;
  std::vector<std::byte> frame;
};

la_ssize_t take(archive* what, void* data, const void** buffer) {
  auto& input = *static_cast<Input*>(data);
  try {
    if (!input.source(&input.frame)) return 0;
    *buffer = input.frame.data();
    return static_cast<la_ssize_t>(input.frame.size());
  } catch (const Error& error) {
    ::archive_set_error(what, error.code, "%s", error.what());
    return -1;
  }
}

void remove_gone(archive* in, archive_entry* entry) {
  const la_int64_t size = ::archive_entry_size(entry);
  if (size < 0 || static_cast<std::size_t>(size) > kMostNames) throw Error("malformed", EBADMSG);
  std::string names(static_cast<std::size_t>(size), '\0');
  if (::archive_read_data(in, names.data(), names.size()) != size) {
    throw Error("malformed archive", EBADMSG);
  }
  for (std::size_t at = 0; at < names.size();) {
    const std::size_t end = names.find('\0', at);
    if (end == std::string::npos) throw Error("malformed archive", EBADMSG);
    const std::string name = names.substr(at, end - at);
    std::error_code error;
    std::filesystem::remove_all(name, error);
    if (error && error.value() != ENOTDIR) throw Error("cannot remove " + name, error.value());
    at = end + 1;
  }
}

void copy_content(archive* in, archive* out, const std::string& name) {
  for (;;) {
    const void* data = nullptr;
    size_t size = 0;
    la_int64_t offset = 0;
    const int result = ::archive_read_data_block(in, &data, &size, &offset);
    if (result == ARCHIVE_EOF) return;
    need(result, in, name);
    need(static_cast<int>(
             std::min<la_ssize_t>(0, ::archive_write_data_block(out, data, size, offset))),
         out, name);
  }
}

}  // namespace

void unpack(const Source& source) {
  Input input{source, {}};
  const Archive in(::archive_read_new()), out(::archive_write_disk_new());
  ::archive_read_support_format_tar(in.get());
  need(::archive_write_disk_set_options(out.get(), kHow), out.get(), "files");
  need(::archive_read_open(in.get(), &input, nullptr, &take, nullptr), in.get(), "files");
  for (archive_entry* entry = nullptr;;) {
    const int result = ::archive_read_next_header(in.get(), &entry);
    if (result == ARCHIVE_EOF) break;
    need(result, in.get(), "files");
    const char* const path = ::archive_entry_pathname(entry);
    const std::string name = path == nullptr ? "" : path;
    if (name == kGone) {
      remove_gone(in.get(), entry);
      continue;
    }
    need(::archive_write_header(out.get(), entry), out.get(), name);
    if (::archive_entry_size(entry) > 0) copy_content(in.get(), out.get(), name);
    need(::archive_write_finish_entry(out.get()), out.get(), name);
  }
  need(::archive_write_close(out.get()), out.get(), "files");
  for (std::vector<std::byte> rest; source(&rest);) continue;
}

}  // namespace ferry::rootfs
