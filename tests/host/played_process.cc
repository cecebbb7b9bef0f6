#include "played_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <system_error>

namespace ferry::test {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// In a fork of a process that may have threads: system calls only.
void become(const char* program, int part) {
  // What is of the ferryd in this process is not the played one's. Its output may be a pipe to
  // whoever runs the test, and a program with such a pipe is not moved.
  const int high = ::fcntl(part, F_DUPFD, 10), null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
  ::dup2(high, PlayedProcess::kPartFd);
  ::close_range(PlayedProcess::kPartFd + 1, ~0u, 0);
  ::execl(program, program, nullptr);
  ::_exit(10);
}

}  // namespace

PlayedProcess::PlayedProcess(const std::string& socket, Behaviour behaviour) {
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "played_process";
  if (!std::filesystem::exists(program)) throw std::runtime_error(program + " is not built");
  const int memory = ::memfd_create("played", MFD_CLOEXEC);
  if (memory < 0 || ::ftruncate(memory, sizeof(Part)) != 0) fail("memfd");
  void* mapped = ::mmap(nullptr, sizeof(Part), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (mapped == MAP_FAILED) fail("mmap");
  part_ = new (mapped) Part{behaviour, {}, {}};
  socket.copy(part_->socket, sizeof part_->socket - 1);
  pid_ = ::fork();
  if (pid_ == 0) become(program.c_str(), memory);
  ::close(memory);
}

PlayedProcess::~PlayedProcess() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  ::munmap(part_, sizeof(Part));
}

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 60000; ++i) {
    if (condition()) return true;
    ::usleep(1000);
  }
  return condition();
}

}  // namespace ferry::test
