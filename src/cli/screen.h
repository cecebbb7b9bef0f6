#pragma once

#include <signal.h>
#include <termios.h>

#include <chrono>
#include <string>

namespace ferry::cli {

// What is shown again and again: on a terminal each text in the place of the one before, else one
// behind the other. The terminal is as it was when this object is destroyed; signals that would end
// the command end wait().
class Screen {
 public:
  // `redraws`: also on a terminal, if stdout is one; else texts follow each other there too.
  explicit Screen(bool redraws);
  ~Screen();
  Screen(const Screen&) = delete;

  void show(const std::string& text) const;
  // False: the user wants the end, by q or a signal, or nobody reads any more.
  bool wait(std::chrono::milliseconds time) const;

 private:
  bool redraws_, has_keys_ = false;
  termios before_{};
  sigset_t signals_{}, mask_before_{};
};

}  // namespace ferry::cli
