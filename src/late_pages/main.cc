// ferry-pages: has the memory of a program that was restored without all of it, and fills it in while the program runs.
// ferryd starts it before the program goes on, and is needed no more from then on. Two processes do the work until all
// is there: a filler, and a guard, which kills the program if the filler is killed.
//
//   ferry-pages LOCK    takes what ferryd hands to it (handover.h), and removes the file LOCK at the end

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "late_pages/filler.h"
#include "late_pages/guard.h"
#include "late_pages/handover.h"

namespace ferry::late_pages {
namespace {

constexpr int kNice = -10;  // threads of the program wait for it
constexpr int kReadyLimitMs =
    4'000;  // for both processes to be there; ferryd waits a little longer

int report(const std::function<void()>& work) {
  try {
    work();
    return 0;
  } catch (const std::exception& failure) {
    std::cerr << "ferry-pages: " << failure.what() << std::endl;
    return 1;
  }
}

UniqueFd handed(int descriptor) {
  if (::fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0)
    throw std::runtime_error("a descriptor is missing");
  return UniqueFd(descriptor);
}

std::vector<Described> read_description() {
  const UniqueFd file = handed(kDescription);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) throw std::runtime_error("the description cannot be read");
  std::vector<std::byte> description(static_cast<std::size_t>(facts.st_size));
  std::size_t read = 0;
  while (read < description.size()) {
    const ssize_t part = ::pread(file.get(), description.data() + read, description.size() - read,
                                 static_cast<off_t>(read));
    if (part <= 0) throw std::runtime_error("the description cannot be read");
    read += static_cast<std::size_t>(part);
  }
  return parse_description(description);
}

// Stays in memory, and is the last that the kernel kills for want of memory. What fails here is missing, and no more.
void keep_alive() {
  std::ofstream("/proc/self/oom_score_adj") << -1000;
  ::setpriority(PRIO_PROCESS, 0, kNice);
  ::mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
}

// Each child of the program takes a descriptor.
void allow_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void fill_in(std::list<Process> processes, const UniqueFd& guard, const char* lock) {
  const auto forked = [&](int userfaultfd) { send_descriptor(guard.get(), userfaultfd); };
  Filler(std::move(processes), forked).run();
  send_done(guard.get());
  wait_for_guard(guard.get());
  ::unlink(lock);  // nobody has the userfaultfds any more: the memory can be tracked, and moved
}

void watch(UniqueFd filler, std::vector<UniqueFd> userfaultfds, std::vector<Guarded> processes,
           const char* lock) {
  std::string pids;
  for (const auto& process : processes) pids += ' ' + std::to_string(process.pid);
  Guard guard(std::move(filler), std::move(userfaultfds), std::move(processes));
  if (guard.watch()) return;
  ::unlink(lock);
  std::cerr << "ferry-pages: killed processes" << pids
            << ": the process that had pages of their memory was killed" << std::endl;
  guard.wait_for_children();
}

// What asks processes to end, or tells them that nobody reads their words, must not end these two.
void ignore_signals() {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(signal, SIG_IGN);
}

// A process that does this work, and has all that the work has been given. It says on `ready` that it is there.
pid_t start(UniqueFd& ready, const std::function<void()>& work) {
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error(std::string("cannot fork: ") + std::strerror(errno));
  if (pid > 0) return pid;
  ::_exit(report([&] {
    ignore_signals();
    keep_alive();
    if (::write(ready.get(), "", 1) != 1) throw std::runtime_error("who has started it has ended");
    ready.reset();
    work();
  }));
}

// Throws std::runtime_error: one of the two has ended, or is not there in time.
void wait_for_both(const UniqueFd& heard) {
  char byte = 0;
  for (int i = 0; i < 2; ++i) {
    pollfd word{heard.get(), POLLIN, 0};
    if (::poll(&word, 1, kReadyLimitMs) <= 0 || ::read(heard.get(), &byte, 1) != 1) {
      throw std::runtime_error("it does not start");
    }
  }
}

// The kernel's word that all that a process lacks can be filled in later, and is not to be wiped in children.
void need_suitable(pid_t pid, const precopy::PageRanges& pages) {
  precopy::PageRanges rest = pages;
  std::ifstream mappings("/proc/" + std::to_string(pid) + "/smaps");
  std::uint64_t start = 0, end = 0;
  for (std::string line; std::getline(mappings, line);) {
    char* dash = nullptr;
    const std::uint64_t first = std::strtoull(line.c_str(), &dash, 16);
    if (*dash == '-') {
      start = first;
      end = std::strtoull(dash + 1, nullptr, 16);
    }
    if (!line.starts_with("VmFlags:")) continue;
    line += ' ';
    const auto has = [&](const char* flag) { return line.find(flag) != std::string::npos; };
    if (has(" um ") && !has(" wf ")) rest.remove(start, end);
  }
  if (rest.empty()) return;
  throw std::runtime_error("memory of process " + std::to_string(pid) +
                           " cannot be filled in later");
}

void run(const char* lock) {
  ::dup2(kLog, STDOUT_FILENO);
  ::dup2(kLog, STDERR_FILENO);
  ::close(kLog);
  allow_descriptors();
  std::list<Process> processes;
  std::vector<Guarded> guarded;
  std::vector<UniqueFd> userfaultfds;
  int next = kFirst;
  for (const auto& [pid, pages] : read_description()) {
    need_suitable(pid, pages);
    UniqueFd userfaultfd = handed(next++), file = handed(next++), pidfd = handed(next++);
    userfaultfds.emplace_back(::fcntl(userfaultfd.get(), F_DUPFD_CLOEXEC, 0));
    if (!userfaultfds.back()) throw std::runtime_error("too many processes");
    processes.push_back({pid, std::move(userfaultfd),
                         std::make_shared<const Content>(std::move(file), pages), Lacking(pages)});
    guarded.push_back({pid, std::move(pidfd)});
  }
  int ends[2], pipe[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0 ||
      ::pipe2(pipe, O_CLOEXEC) != 0) {
    throw std::runtime_error(std::string("cannot make a socket: ") + std::strerror(errno));
  }
  UniqueFd of_guard(ends[0]), of_filler(ends[1]), heard(pipe[0]), ready(pipe[1]);
  pid_t guard = 0;
  const pid_t filler = start(ready, [&] {
    of_guard.reset();
    userfaultfds.clear();
    guarded.clear();
    heard.reset();
    fill_in(std::move(processes), of_filler, lock);
  });
  try {
    guard = start(ready, [&] {
      of_filler.reset();
      processes.clear();
      heard.reset();
      watch(std::move(of_guard), std::move(userfaultfds), std::move(guarded), lock);
    });
    // They are the children's: each sees by them that the other has ended.
    ready.reset();
    of_guard.reset();
    of_filler.reset();
    wait_for_both(heard);
  } catch (const std::exception&) {
    if (guard != 0) ::kill(guard, SIGKILL);  // first: it would kill the program
    ::kill(filler, SIGKILL);
    throw;
  }
}

}  // namespace
}  // namespace ferry::late_pages

int main(int argc, char** argv) {
  if (argc == 2) return ferry::late_pages::report([&] { ferry::late_pages::run(argv[1]); });
  std::cerr << "usage: ferry-pages LOCK    (ferryd starts it)\n";
  return 2;
}
