#include "host/proc/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 forgets that C++ includes it
}

#include "base/failure.h"
#include "base/unique_fd.h"

extern char** environ;

namespace ferry::host {
namespace {

std::mutex waited_mutex;
std::set<pid_t> waited;  // children that somebody waits for

struct Descriptors {
  int in = -1, out = -1, err = -1;  // -1: /dev/null
};

pid_t spawn(const Command& command, const Descriptors& descriptors) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  const auto place = [&](int from, int to, int flags) {
    if (from >= 0)
      posix_spawn_file_actions_adddup2(&actions, from, to);
    else
      posix_spawn_file_actions_addopen(&actions, to, "/dev/null", flags, 0);
  };
  place(descriptors.in, 0, O_RDONLY);
  place(descriptors.out, 1, O_WRONLY);
  place(descriptors.err, 2, O_WRONLY);
  // Duplicates with numbers above those that the program gets.
  std::vector<UniqueFd> handed;
  const int end = 3 + static_cast<int>(command.descriptors.size());
  for (const int descriptor : command.descriptors) {
    handed.emplace_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, end));
    posix_spawn_file_actions_adddup2(&actions, handed.back().get(),
                                     2 + static_cast<int>(handed.size()));
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, end);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  const int session = command.own_session ? POSIX_SPAWN_SETSID : 0;
  posix_spawnattr_setflags(
      &attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | session));

  std::vector<char*> argv, environment;
  for (const auto& argument : command.argv) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const auto name = variable.substr(0, variable.find('=') + 1);
    bool replaced = false;
    for (const auto& own : command.environment) replaced = replaced || own.starts_with(name);
    if (!replaced) environment.push_back(*entry);
  }
  for (const auto& own : command.environment) {
    environment.push_back(const_cast<char*>(own.c_str()));
  }
  environment.push_back(nullptr);

  pid_t pid = 0;
  int error = 0;
  {
    // Held over the spawn, so that reap_orphans() cannot take a child that ends at once.
    std::lock_guard lock(waited_mutex);
    error = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environment.data());
    if (error == 0) waited.insert(pid);
  }
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return error == 0 ? pid : -error;
}

// False when the other end of `fd` is closed.
bool drain(int fd, std::string* into) {
  char buffer[65536];
  const ssize_t size = ::read(fd, buffer, sizeof buffer);
  if (size > 0) into->append(buffer, static_cast<std::size_t>(size));
  return size > 0 || (size < 0 && errno == EINTR);
}

}  // namespace

int wait_for(pid_t pid) {
  int status = 0;
  pid_t result = 0;
  while ((result = ::waitpid(pid, &status, 0)) < 0 && errno == EINTR) continue;
  {
    std::lock_guard lock(waited_mutex);
    waited.erase(pid);
  }
  if (result < 0) return 127;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void adopt_child(pid_t pid) {
  std::lock_guard lock(waited_mutex);
  waited.insert(pid);
}

void reap_orphans() {
  std::lock_guard lock(waited_mutex);
  for (;;) {
    siginfo_t info{};
    // WNOWAIT shows the same child again and again: stop at one that belongs to a waiter. Its
    // waiter takes it, and the next call goes on behind it.
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    if (waited.contains(info.si_pid)) return;
    ::waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

Outcome run(const Command& command, std::chrono::milliseconds timeout,
            const std::function<void(pid_t)>& kill) {
  int in[2] = {-1, -1}, out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0) throw Failure("cannot make a pipe: " + error_text(errno));
  UniqueFd out_read(out[0]), out_write(out[1]);
  if (::pipe2(err, O_CLOEXEC) != 0) throw Failure("cannot make a pipe: " + error_text(errno));
  UniqueFd err_read(err[0]), err_write(err[1]);
  UniqueFd in_read, in_write;
  if (!command.input.empty()) {
    if (::pipe2(in, O_CLOEXEC) != 0) throw Failure("cannot make a pipe: " + error_text(errno));
    in_read.reset(in[0]);
    in_write.reset(in[1]);
    ::fcntl(in_write.get(), F_SETFL, O_NONBLOCK);
  }
  const pid_t pid = spawn(command, {in_read.get(), out_write.get(), err_write.get()});
  Outcome outcome;
  if (pid < 0) {
    outcome.status = 127;
    outcome.err = command.argv[0] + ": " + error_text(-pid);
    return outcome;
  }
  if (command.pid != nullptr) *command.pid = pid;
  in_read.reset();
  out_write.reset();
  err_write.reset();

  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::size_t written = 0;
  while (out_read || err_read) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      kill(pid);
      break;
    }
    pollfd polls[3] = {
        {out_read.get(), POLLIN, 0}, {err_read.get(), POLLIN, 0}, {in_write.get(), POLLOUT, 0}};
    if (::poll(polls, 3, static_cast<int>(left.count())) < 0 && errno != EINTR) break;
    if (polls[0].revents != 0 && !drain(out_read.get(), &outcome.out)) out_read.reset();
    if (polls[1].revents != 0 && !drain(err_read.get(), &outcome.err)) err_read.reset();
    if (polls[2].revents != 0) {
      const ssize_t size =
          ::write(in_write.get(), command.input.data() + written, command.input.size() - written);
      if (size > 0) written += static_cast<std::size_t>(size);
      if ((size < 0 && errno != EAGAIN && errno != EINTR) || written == command.input.size()) {
        in_write.reset();
      }
    }
  }
  // It may have closed its output, and run on.
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  pollfd end{-1, POLLIN, 0};
  const UniqueFd process(::pidfd_open(pid, 0));
  end.fd = process.get();
  if (left.count() > 0 && process && ::poll(&end, 1, static_cast<int>(left.count())) == 0) {
    kill(pid);
  }
  outcome.status = wait_for(pid);
  if (command.pid != nullptr) *command.pid = 0;
  return outcome;
}

pid_t start(const Command& command, const std::string& output) {
  UniqueFd file(::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file) return -errno;
  return spawn(command, {-1, file.get(), file.get()});
}

}  // namespace ferry::host
