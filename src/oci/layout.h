#pragma once

#include <string_view>

// What containers see of Ferry, and where. `ferry cdi generate` writes the mounts (cli/cdi.cc), the
// hook (hook.cc) takes those away that an image has no use for.
namespace ferry::oci {

inline constexpr std::string_view kFolder = "/usr/lib/ferry";  // libferry.so and the hook
inline constexpr std::string_view kLibrary = "/usr/lib/ferry/libferry.so";
inline constexpr std::string_view kHook = "/usr/lib/ferry/ferry-oci-hook";
// The host's libibverbs and what it needs. Beneath that mount there are placeholders of the same
// names, empty libraries: /etc/ld.so.preload names libferry.so and then all of these, and the
// dynamic linker complains in every process about a file that is not there.
inline constexpr std::string_view kHostFolder = "/usr/lib/ferry/host";
inline constexpr std::string_view kPreload = "/etc/ld.so.preload";
inline constexpr std::string_view kSocketFolder = "/run/ferry";

inline constexpr std::string_view kVerbs = "libibverbs.so.1";
inline constexpr std::string_view kLoader = "/lib64/ld-linux-x86-64.so.2";

// True for the libraries that glibc brings along itself.
constexpr bool is_of_glibc(std::string_view soname) {
  for (const std::string_view part : {"libc.so.", "libm.so.", "libpthread.so.", "libdl.so.",
                                      "librt.so.", "libresolv.so.", "ld-linux-x86-64.so."}) {
    if (soname.starts_with(part)) return true;
  }
  return false;
}

}  // namespace ferry::oci
