#pragma once

#include <signal.h>
#include <termios.h>

#include <chrono>
#include <string>

namespace ferry::cli {

// Shows texts again and again: on a terminal each text in the place of the one before, else one behind the other. When
// a Screen is destroyed, the terminal becomes as it was before. Signals that would end the command end wait().
class Screen {
 public:
  // `redraws`: texts replace each other, if stdout is a terminal; false: they follow each other there too.
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
