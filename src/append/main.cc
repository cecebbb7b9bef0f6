// ferry-append: writes to a file what a program prints that has left its terminal, pipe or
// connection behind (host/units/stdio_file.h). It has the rights of the file's user and no others.
//
//   ferry-append check USER GROUP FILE    opens the file as `copy` does, and ends
//   ferry-append copy USER GROUP FILE     opens the file, and leaves a process behind that appends
//                                         to it what comes from descriptor 3; descriptor 4 is
//                                         ferryd's log
//
// Ends with errno as its exit status when it fails, and says why on stderr.

#include <fcntl.h>
#include <fmt/core.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include "base/failure.h"
#include "base/log.h"
#include "base/unique_fd.h"

namespace {

using namespace ferry;

constexpr int kSource = 3, kLog = 4;
constexpr std::chrono::seconds kRetryEvery{1};

struct Error {
  int code;
};
void need(bool done) {
  if (!done) throw Error{errno};
}

// Its user cannot trace this process, either, and so cannot write to ferryd's log.
void become(uid_t user, gid_t group) {
  if (user == 0) return;
  need(::setgroups(0, nullptr) == 0);
  need(::setresgid(group, group, group) == 0);
  need(::setresuid(user, user, user) == 0);
  need(::prctl(PR_SET_DUMPABLE, 0) == 0);
}

UniqueFd open_file(const std::string& path) {
  // O_NONBLOCK: does not wait for the reader of a pipe. For regular files it means nothing.
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  UniqueFd file(::open(path.c_str(), kFlags, 0666));
  need(static_cast<bool>(file));
  struct stat status {};
  need(::fstat(file.get(), &status) == 0);
  if (!S_ISREG(status.st_mode)) throw Error{EINVAL};
  return file;
}

void check(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    open_file(path);
    return;
  }
  need(errno == ENOENT);
  if (::lstat(path.c_str(), &status) == 0) throw Error{ELOOP};  // the file would be made elsewhere
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  need(::stat(folder.c_str(), &status) == 0);
  need(::access(folder.c_str(), W_OK | X_OK) == 0);
}

// While the file cannot be written, the source is not read, and whoever writes there waits: nothing
// is lost.
void append(int file, const std::string& path) {
  std::array<char, 65536> piece;
  for (;;) {
    const ssize_t size = ::read(kSource, piece.data(), piece.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;  // EIO: nobody has the terminal open any more
    bool is_said = false;
    for (ssize_t done = 0; done < size;) {
      const ssize_t written =
          ::write(file, piece.data() + done, static_cast<std::size_t>(size - done));
      if (written >= 0) {
        done += written;
      } else if (errno != EINTR) {
        if (!is_said) {
          log::warn("cannot write {}: {}; what is printed waits", printable(path),
                    error_text(errno));
        }
        is_said = true;
        std::this_thread::sleep_for(kRetryEvery);
      }
    }
  }
}

// Appends in a process of its own, which outlives ferryd and keeps open nothing of ferryd's but the
// log.
void copy(const UniqueFd& file, const std::string& path) {
  const UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  need(static_cast<bool>(nothing));
  const pid_t child = ::fork();
  need(child >= 0);
  if (child > 0) return;
  ::setsid();
  if (::chdir("/") != 0) ::_exit(errno);
  ::signal(SIGPIPE, SIG_IGN);  // when nobody reads the log any more
  ::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is one that cannot be written
  ::dup2(nothing.get(), STDIN_FILENO);
  ::dup2(nothing.get(), STDOUT_FILENO);
  ::dup2(kLog, STDERR_FILENO);
  ::close(kLog);
  log::begin();
  append(file.get(), path);
  ::_exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string task = argc == 5 ? argv[1] : "";
  if (task != "check" && task != "copy") {
    std::cerr << "usage: ferry-append check|copy USER GROUP FILE\n";
    return EPERM;
  }
  try {
    const std::string path = argv[4];
    become(static_cast<uid_t>(std::strtoul(argv[2], nullptr, 10)),
           static_cast<gid_t>(std::strtoul(argv[3], nullptr, 10)));
    if (task == "check")
      check(path);
    else
      copy(open_file(path), path);
    return 0;
  } catch (const Error& error) {
    std::cerr << error_text(error.code) << '\n';
    return error.code;
  }
}
