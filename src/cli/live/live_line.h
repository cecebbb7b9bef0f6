#pragma once

#include <string>

namespace ferry::cli {

// A line on stderr that tells how far something is, each text in the place of the one before; nothing where stderr is
// no terminal.
class LiveLine {
 public:
  // `is_wanted`: false: nothing is shown on a terminal either.
  explicit LiveLine(bool is_wanted);
  ~LiveLine() { clear(); }
  LiveLine(const LiveLine&) = delete;

  void show(const std::string& text);
  // Nothing of it is left.
  void clear();

 private:
  const bool is_shown_;
  bool has_text_ = false;
};

}  // namespace ferry::cli
