#include "cli/screen.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include "base/unique_fd.h"

namespace ferry::cli {
namespace {

constexpr char kNewScreen[] = "\033[?1049h\033[?25l", kOldScreen[] = "\033[?25h\033[?1049l";

// The lines for which the terminal has room, each cut at its width. Names are printable, and may have characters of
// several bytes: no character is cut in two.
std::string fitting(std::string_view text) {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return std::string(text);
  std::string result;
  for (int row = 1; row < size.ws_row && !text.empty(); ++row) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::size_t length = std::min<std::size_t>(end, size.ws_col);
    while (length > 0 && length < end && (text[length] & 0xC0) == 0x80) --length;
    result.append(text.substr(0, length)).append("\r\n");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

}  // namespace

Screen::Screen(bool redraws) : redraws_(redraws && ::isatty(STDOUT_FILENO) == 1) {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&signals_, signal);
  // A command that SIGTSTP stops would leave the terminal as it is now: the signal is taken, and ignored.
  if (redraws_) sigaddset(&signals_, SIGTSTP);
  ::pthread_sigmask(SIG_BLOCK, &signals_, &mask_before_);
  if (!redraws_) return;
  has_keys_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &before_) == 0;
  if (has_keys_) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  fmt::print("{}", kNewScreen);
  std::fflush(stdout);
}

Screen::~Screen() {
  if (redraws_) {
    fmt::print("{}", kOldScreen);
    std::fflush(stdout);
    if (has_keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  // Signals that have ended wait() would end the command when they are unblocked: they are taken out.
  const timespec now{};
  while (::sigtimedwait(&signals_, nullptr, &now) > 0) continue;
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void Screen::show(const std::string& text) const {
  if (redraws_) {
    fmt::print("\033[H\033[J{}", fitting(text));
  } else {
    fmt::print("{}", text);
  }
  std::fflush(stdout);
}

bool Screen::wait(std::chrono::milliseconds time) const {
  using Clock = std::chrono::steady_clock;
  const UniqueFd signals(::signalfd(-1, &signals_, SFD_CLOEXEC));
  const auto until = Clock::now() + time;
  bool has_keys = has_keys_;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return std::ferror(stdout) == 0;
    pollfd wanted[] = {{signals.get(), POLLIN, 0}, {has_keys ? STDIN_FILENO : -1, POLLIN, 0}};
    const int count = ::poll(wanted, 2, static_cast<int>(std::min<long>(left, 1000)));
    if (count < 0 && errno != EINTR) return false;
    if (count <= 0) continue;
    if (wanted[0].revents != 0) {
      signalfd_siginfo signal{};
      if (::read(signals.get(), &signal, sizeof signal) != sizeof signal) return false;
      if (signal.ssi_signo != SIGTSTP) return false;
    }
    char key = 0;
    if (wanted[1].revents != 0) {
      if (::read(STDIN_FILENO, &key, 1) != 1) has_keys = false;
      if (key == 'q' || key == 'Q') return false;
    }
  }
}

}  // namespace ferry::cli
