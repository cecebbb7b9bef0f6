#include "oci/verdict.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>
#include <vector>

#include "oci/elf.h"
#include "oci/layout.h"

namespace ferry::oci {
namespace {

constexpr std::string_view kInstall = "install the package libibverbs1 in the image";

constexpr std::size_t kMostLibc = 32u << 20;  // bytes

using Names = std::set<std::string>;

// Throws ElfError that names the path.
Elf read(const Root& root, const std::string& path) {
  const UniqueFd file = root.open_file(path);
  if (!file) throw ElfError("cannot read " + path + ": " + std::strerror(errno));
  try {
    return read_elf(file.get());
  } catch (const ElfError& error) {
    throw ElfError("cannot use " + path + ": " + error.what());
  }
}

// "2.34" of GLIBC_2.34: the newest of the numbered ones.
std::string newest_glibc(const Names& versions) {
  std::array<int, 2> newest{};
  for (const auto& version : versions) {
    constexpr std::string_view kPrefix = "GLIBC_";
    if (!version.starts_with(kPrefix)) continue;
    const char* at = version.data() + kPrefix.size();
    const char* end = version.data() + version.size();
    std::array<int, 2> numbers{};
    const auto major = std::from_chars(at, end, numbers[0]);
    if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') continue;
    std::from_chars(major.ptr + 1, end, numbers[1]);
    newest = std::max(newest, numbers);
  }
  return std::to_string(newest[0]) + "." + std::to_string(newest[1]);
}

// The version that glibc says it has ("... release version 2.31."): not each version has new
// symbols.
std::string glibc_version(const Root& root, const std::string& path, const Names& versions) {
  constexpr std::string_view kTitle = " release version ";
  const std::string text = root.read(path, kMostLibc).value_or("");
  const std::size_t at = text.find(kTitle);
  if (at == std::string::npos) return newest_glibc(versions);
  const std::string_view version = std::string_view(text).substr(at + kTitle.size(), 8);
  const std::size_t length = version.find_first_not_of("0123456789.");
  const std::string_view number = version.substr(0, length);
  return std::string(number.substr(0, number.find_last_not_of('.') + 1));
}

bool contains(const Names& all, const Names& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

class Judge {
 public:
  explicit Judge(const Root& root) : root_(root), ferry_(read(root, std::string(kLibrary))) {}

  Verdict decide() {
    if (!root_.has(kLoader)) return {no_glibc()};
    if (auto reason = too_old("Ferry", ferry_); !reason.empty()) return {reason};
    if (root_.find_library(kVerbs)) return {};
    return {without_verbs(), true};
  }

 private:
  std::string no_glibc() const {
    if (root_.has("/lib/ld-musl-x86_64.so.1")) {
      return "the image has musl as its C library; Ferry needs glibc " + needed_glibc(ferry_) +
             " or later";
    }
    return "the image has no dynamic linker (" + std::string(kLoader) +
           "), which is what loads Ferry into programs";
  }

  static std::string needed_glibc(const Elf& library) {
    const auto wanted = library.wants.find("libc.so.6");
    return newest_glibc(wanted == library.wants.end() ? Names() : wanted->second);
  }

  // Why the image's glibc does not have what a library needs of it.
  std::string too_old(const std::string& whose, const Elf& library) {
    for (const auto& [soname, versions] : library.wants) {
      if (!is_of_glibc(soname)) continue;
      const std::optional<std::string> path =
          soname == "ld-linux-x86-64.so.2" ? std::string(kLoader) : root_.find_library(soname);
      if (!path) return "the image has no " + soname;
      const Names has = read(root_, *path).versions;
      if (contains(has, versions)) continue;
      return "the image has glibc " + glibc_version(root_, *path, has) + "; " + whose + " needs " +
             needed_glibc(library) + " or later";
    }
    return {};
  }

  // The image has no libibverbs. Can the host's live there?
  std::string without_verbs() {
    const std::string folder(kHostFolder);
    if (!root_.has(folder + "/" + std::string(kVerbs))) {
      return "neither the image nor the host has libibverbs; " + std::string(kInstall);
    }
    for (const auto& name : host_libraries()) {
      const Elf library = read(root_, folder + "/" + name);
      if (auto reason = too_old("the host's " + name, library); !reason.empty()) {
        return reason + ": " + std::string(kInstall);
      }
      // Every program of the image gets the host's library, also one that was built for a newer
      // library.
      const auto own = root_.find_library(name);
      if (own && !contains(library.versions, read(root_, *own).versions)) {
        return "the image has no libibverbs, and a newer " + name +
               " than the host: " + std::string(kInstall);
      }
    }
    return {};
  }

  std::vector<std::string> host_libraries() {
    std::vector<std::string> names;
    const UniqueFd folder = root_.open(kHostFolder, O_RDONLY | O_DIRECTORY);
    DIR* listing = folder ? ::fdopendir(::dup(folder.get())) : nullptr;
    if (listing == nullptr) return names;
    while (const dirent* entry = ::readdir(listing)) {
      if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    }
    ::closedir(listing);
    return names;
  }

  const Root& root_;
  const Elf ferry_;
};

}  // namespace

Verdict judge(const Root& root) {
  try {
    return Judge(root).decide();
  } catch (const ElfError& error) {
    return {error.what()};
  }
}

bool names_libraries(const std::string& preload) {
  // Words, up to a '#' in each line.
  for (std::size_t begin = 0; begin < preload.size();) {
    const std::size_t end = std::min(preload.find('\n', begin), preload.size());
    std::string line = preload.substr(begin, end - begin);
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r:") != std::string::npos) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace ferry::oci
