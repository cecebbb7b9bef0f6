#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>

namespace ferry::rootfs {

// Archives the current folder again and again: first all of it, then what has changed since the
// last time. It stays on one file system. Sockets are left out, because they belong to the
// processes that are bound to them.
//
// An archive has tar's pax format. Names begin with "./", except for that of the first entry,
// kGone. Its content is the names of files that are gone, each ended by a zero byte.
class Packer {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;

  // `anyway`: files that are sent even if they seem unchanged. Throws Error.
  void pass(const std::set<std::string>& anyway, const Sink& sink);

 private:
  struct File {
    struct stat status {};
    bool is_settled = false;  // any later change would change its times
  };
  using Files = std::map<std::string, File>;  // a folder is before what is in it

  static Files look();
  std::set<std::string> changed(const Files& now, const std::set<std::string>& anyway) const;
  std::string gone(const Files& now, std::set<std::string>* parents) const;

  Files before_;
};

inline constexpr char kGone[] = "gone";

}  // namespace ferry::rootfs
