#include "precopy/brake.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <sstream>
#include <string>
#include <thread>

namespace ferry::precopy {
namespace {

using std::chrono::nanoseconds;

constexpr int kNice = 8;  // within ferryd: what a stop waits for comes first
constexpr std::chrono::milliseconds kReadIdle{100}, kLongestSleep{50};

nanoseconds now(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

id_t this_thread() {
  return static_cast<id_t>(::gettid());
}

std::string read_whole(int file) {
  std::string text;
  std::array<char, 16384> part;
  for (;;) {
    const ssize_t got = ::pread(file, part.data(), part.size(), static_cast<off_t>(text.size()));
    if (got <= 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

std::optional<nanoseconds> idle_time(std::string_view stat, const cpu_set_t& processors,
                                     nanoseconds jiffy) {
  std::istringstream lines{std::string(stat)};
  std::uint64_t jiffies = 0;
  bool found = false;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t user = 0, nice = 0, system = 0, idle = 0, waits_for_io = 0;
    words >> name;
    if (!name.starts_with("cpu")) break;
    if (name == "cpu") continue;  // all of them together
    unsigned number = 0;
    std::istringstream digits(name.substr(3));
    if (!(digits >> number) || !(words >> user >> nice >> system >> idle >> waits_for_io)) continue;
    if (number >= CPU_SETSIZE || !CPU_ISSET(number, &processors)) continue;
    jiffies += idle + waits_for_io;
    found = true;
  }
  if (!found) return std::nullopt;
  return jiffies * jiffy;
}

Brake::Brake(const PaceSettings& settings, std::atomic<unsigned>* sharers)
    : sharers_(sharers),
      stat_(::open("/proc/stat", O_RDONLY | O_CLOEXEC)),
      niceness_(::getpriority(PRIO_PROCESS, this_thread())),
      pace_(settings),
      began_(now(CLOCK_MONOTONIC)),
      processor_began_(now(CLOCK_THREAD_CPUTIME_ID)) {
  // A host with more processors than the set has bits for: all of those are meant.
  if (::sched_getaffinity(0, sizeof processors_, &processors_) != 0) {
    std::memset(&processors_, 0xff, sizeof processors_);
  }
  read_idle();
  idle_began_ = std::exchange(used_.idle, nanoseconds(0));
  ::setpriority(PRIO_PROCESS, this_thread(), std::max(niceness_, kNice));
  if (sharers_ != nullptr) ++*sharers_;
}

Brake::~Brake() {
  ::setpriority(PRIO_PROCESS, this_thread(), niceness_);
  if (sharers_ != nullptr) --*sharers_;
}

// Where nobody tells, no processor is idle.
void Brake::read_idle() {
  const nanoseconds jiffy = std::chrono::seconds(1) / std::max(1L, ::sysconf(_SC_CLK_TCK));
  if (const auto idle = idle_time(read_whole(stat_.get()), processors_, jiffy))
    used_.idle = *idle - idle_began_;
}

void Brake::after(std::uint64_t bytes, const std::function<void()>& go_on) {
  const auto time = now(CLOCK_MONOTONIC) - began_;
  if (time / kReadIdle != used_.time / kReadIdle) read_idle();
  used_.time = time;
  used_.processor = now(CLOCK_THREAD_CPUTIME_ID) - processor_began_;
  used_.bytes += bytes;
  if (sharers_ != nullptr) used_.sharers = std::max(1U, sharers_->load());
  const auto wait = pace_.after(used_);
  if (wait == nanoseconds(0)) return;
  const auto until = time + wait;
  for (;;) {
    const auto left = until - (now(CLOCK_MONOTONIC) - began_);
    if (left <= nanoseconds(0)) break;
    go_on();
    std::this_thread::sleep_for(std::min<nanoseconds>(left, kLongestSleep));
  }
  waited_ += now(CLOCK_MONOTONIC) - began_ - time;
}

}  // namespace ferry::precopy
