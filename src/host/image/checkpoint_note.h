#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ferry::host {

// What an image says of its checkpoint, in the file agent::kCheckpointFile.
struct CheckpointNote {
  std::uint64_t id = 0;
  std::string program;
  std::string host, ferryd;  // the keeper's name; address:port, or empty: it serves its host only

  bool operator==(const CheckpointNote&) const = default;
};
std::string to_text(const CheckpointNote& note);
// Nothing: `text` is no note.
std::optional<CheckpointNote> parse_note(const std::string& text);

}  // namespace ferry::host
