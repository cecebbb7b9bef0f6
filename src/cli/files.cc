#include "cli/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "base/unique_fd.h"

namespace ferry::cli {

Failure cannot(const std::string& what) {
  const int error = errno;
  if (error == EACCES || error == EPERM) return Failure(what + ": needs root; use sudo");
  return Failure(fmt::format("{}: {}", what, error_text(error)));
}

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) throw cannot("cannot read " + path);
  return text.str();
}

void write_all(int file, const std::string& text, const std::string& path) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(file, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw cannot("cannot write " + path);
    done += static_cast<std::size_t>(written);
  }
}

void write_file(const std::string& path, const std::string& text, mode_t mode) {
  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());
  const UniqueFd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file) throw cannot("cannot write " + path);
  ::fchmod(file.get(), mode);
  try {
    write_all(file.get(), text, path);
    if (::fsync(file.get()) != 0 || ::rename(fresh.c_str(), path.c_str()) != 0) {
      throw cannot("cannot write " + path);
    }
  } catch (const Failure&) {
    ::unlink(fresh.c_str());
    throw;
  }
}

}  // namespace ferry::cli
