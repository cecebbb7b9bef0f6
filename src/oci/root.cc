#include "oci/root.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

namespace ferry::oci {
namespace {

constexpr std::size_t kMostCache = 16u << 20;  // bytes of ld.so.cache

// ld.so.cache since glibc 2.32, and the last part of older ones:
//   "glibc-ld.so.cache1.1" count:32 strings_length:32 flags:8 padding:24 extensions:32 unused:96
//   { flags:32 key:32 value:32 osversion:32 hwcap:64 }[count]     key, value: offsets of strings,
//   from the start of the cache
constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kHeader = 48, kEntry = 24;
constexpr std::uint32_t kX86_64 = 0x0303;  // FLAG_X8664_LIB64 | FLAG_ELF_LIBC6

std::uint32_t word(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  if (at + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string_view text(std::string_view bytes, std::size_t at) {
  if (at >= bytes.size()) return {};
  const auto rest = bytes.substr(at);
  return rest.substr(0, rest.find('\0'));
}

}  // namespace

Root Root::at(const std::string& path) {
  UniqueFd folder(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) throw std::system_error(errno, std::generic_category(), path);
  return Root(std::move(folder));
}

UniqueFd Root::open(std::string_view path, int flags) const {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const std::string name(path);
  return UniqueFd(
      static_cast<int>(::syscall(SYS_openat2, folder_.get(), name.c_str(), &how, sizeof how)));
}

UniqueFd Root::open_file(std::string_view path) const {
  struct stat status {};
  const UniqueFd what = open(path, O_PATH);
  if (what && ::fstat(what.get(), &status) == 0 && S_ISREG(status.st_mode)) {
    return open(path, O_RDONLY);
  }
  if (what) errno = EINVAL;
  return UniqueFd();
}

bool Root::has(std::string_view path) const {
  return static_cast<bool>(open(path, O_PATH));
}

std::optional<std::string> Root::read(std::string_view path, std::size_t most) const {
  const UniqueFd file = open_file(path);
  if (!file) return std::nullopt;
  std::string bytes;
  std::array<char, 1 << 16> piece;
  while (bytes.size() < most) {
    const ssize_t got =
        ::read(file.get(), piece.data(), std::min(piece.size(), most - bytes.size()));
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    bytes.append(piece.data(), static_cast<std::size_t>(got));
  }
  return bytes;
}

std::optional<std::string> Root::find_library(std::string_view soname) const {
  const std::string file = read("/etc/ld.so.cache", kMostCache).value_or("");
  const std::size_t start = file.find(kMagic);
  if (start != std::string::npos) {
    const auto cache = std::string_view(file).substr(start);
    for (std::size_t i = 0; i < word(cache, kMagic.size()); ++i) {
      const std::size_t entry = kHeader + i * kEntry;
      if (entry + kEntry > cache.size()) break;
      if (word(cache, entry) != kX86_64 || text(cache, word(cache, entry + 4)) != soname) continue;
      const auto path = text(cache, word(cache, entry + 8));
      if (has(path)) return std::string(path);
    }
  }
  for (const char* folder : {"/lib/x86_64-linux-gnu/", "/usr/lib/x86_64-linux-gnu/", "/lib64/",
                             "/usr/lib64/", "/lib/", "/usr/lib/"}) {
    const std::string path = folder + std::string(soname);
    if (has(path)) return path;
  }
  return std::nullopt;
}

}  // namespace ferry::oci
