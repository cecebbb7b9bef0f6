#include "cli/checkpoint/private_key.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.h"
#include "cli/files.h"
#include "store/content_key.h"

namespace ferry::cli {

namespace {

constexpr std::size_t kMost = 64 << 10;  // bytes of a key

// Wiped when it goes, and never elsewhere meanwhile.
struct Text {
  explicit Text(const std::string& path) : bytes(kMost, '\0') {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) throw cannot("cannot read " + printable(path));
    for (;;) {
      const ssize_t got = ::read(file.get(), bytes.data() + size, bytes.size() - size);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw cannot("cannot read " + printable(path));
      if (got == 0) return;
      size += static_cast<std::size_t>(got);
    }
  }
  ~Text() { store::wipe(&bytes); }

  std::string bytes;
  std::size_t size = 0;
};

}  // namespace

store::PrivateKey private_key(const std::string& file) {
  const Text text(file);
  return store::PrivateKey(std::string_view(text.bytes).substr(0, text.size), file);
}

}  // namespace ferry::cli
