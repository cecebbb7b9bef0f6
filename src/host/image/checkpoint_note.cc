#include "host/image/checkpoint_note.h"

#include <fmt/core.h>

#include <charconv>
#include <sstream>

#include "base/failure.h"

namespace ferry::host {
namespace {

constexpr char kFirstLine[] = "ferry-checkpoint 1";

}  // namespace

std::string to_text(const CheckpointNote& note) {
  return fmt::format("{}\nid {:016x}\nprogram {}\nkeeper {}@{}\n", kFirstLine, note.id,
                     note.program, note.host, note.ferryd);
}

std::optional<CheckpointNote> parse_note(const std::string& text) {
  std::istringstream in(text);
  std::string line;
  if (!std::getline(in, line) || line != kFirstLine) return std::nullopt;
  CheckpointNote note;
  while (std::getline(in, line)) {
    const std::size_t blank = line.find(' ');
    if (blank == std::string::npos) return std::nullopt;
    const std::string key = line.substr(0, blank), value = line.substr(blank + 1);
    if (key == "id") {
      const char* end = value.data() + value.size();
      if (std::from_chars(value.data(), end, note.id, 16).ptr != end) return std::nullopt;
    } else if (key == "program") {
      note.program = printable(value);
    } else if (key == "keeper") {
      const std::size_t at = value.rfind('@');
      if (at == std::string::npos) return std::nullopt;
      note.host = printable(value.substr(0, at));
      note.ferryd = value.substr(at + 1);
    }
  }
  if (note.id == 0 || note.host.empty()) return std::nullopt;
  return note;
}

}  // namespace ferry::host
