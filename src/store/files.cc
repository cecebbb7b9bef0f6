#include "store/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>

namespace ferry::store {

Failure cannot(const std::string& what) {
  const int error = errno;
  return Failure(fmt::format("{}: {}", what, error_text(error)));
}

UniqueFd open_folder(const std::string& path) {
  UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) throw cannot("cannot read " + printable(path));
  return folder;
}

UniqueFd open_file(const UniqueFd& folder, const std::string& path, const std::string& name) {
  UniqueFd file(::openat(folder.get(), name.c_str(),
                         O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) throw cannot("cannot read " + printable(path));
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) throw cannot("cannot read " + printable(path));
  if (!S_ISREG(facts.st_mode)) throw Failure(printable(path) + " is no regular file");
  return file;
}

UniqueFd make_file(const UniqueFd& folder, const std::string& path, const std::string& name) {
  UniqueFd file(
      ::openat(folder.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) throw cannot("cannot write " + printable(path));
  return file;
}

void write_all(const UniqueFd& file, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw cannot("cannot write " + printable(path));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

std::size_t read_some(const UniqueFd& file, std::span<std::byte> bytes, const std::string& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t size = ::read(file.get(), bytes.data() + done, bytes.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) throw cannot("cannot read " + printable(path));
    if (size == 0) break;
    done += static_cast<std::size_t>(size);
  }
  return done;
}

void sync(const UniqueFd& file, const std::string& path) {
  if (::fsync(file.get()) != 0) throw cannot("cannot write " + printable(path));
}

std::vector<std::string> names_in(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (folder == nullptr) throw cannot("cannot read " + printable(path));
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(folder.get());
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) throw cannot("cannot read " + printable(path));
  std::sort(names.begin(), names.end());
  return names;
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() <= NAME_MAX && name != "." && name != ".." &&
         name.find('/') == name.npos && printable(name) == name;
}

}  // namespace ferry::store
