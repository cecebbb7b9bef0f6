#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "store/new_checkpoint.h"
#include "store/new_images.h"
#include "store/store.h"

namespace ferry::store::test {

using Files = std::vector<std::pair<std::string, std::string>>;  // name, content

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// What no compression makes shorter.
inline std::string noise(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (auto& byte : text) byte = static_cast<char>(random());
  return text;
}

// One program, with what a restart is to know of it.
inline Program program(const std::string& name) {
  return {name, "h1", {{"kind", "process"}}, {}, {}};
}

// Gives `program` with what was written.
inline Program write_image(ImageWriter& writer, const Files& files, Program program) {
  for (const auto& [name, content] : files) {
    writer.begin_file(name, 0600);
    writer.write(bytes_of(content));
  }
  writer.end(&program);
  return program;
}

inline constexpr char kId[] = "00000000000000aa", kOther[] = "00000000000000bb";  // of checkpoints

// A checkpoint with the images of so many programs.
inline Manifest make(const std::string& directory, const std::string& id,
                     const std::vector<Files>& images, std::uint64_t shard_bytes,
                     const std::optional<EncryptTo>& encryption = {}) {
  NewCheckpoint fresh(directory, id, encryption);
  NewImages written(directory, id, 0, shard_bytes,
                    encryption ? std::optional(encryption->key) : std::nullopt);
  std::vector<Program> programs;
  for (const auto& files : images) {
    auto named = program("p" + std::to_string(programs.size()));
    programs.push_back(write_image(written.add(), files, std::move(named)));
  }
  return fresh.complete("1.2.3", programs);
}

inline Files read(const Checkpoint& checkpoint, std::size_t program) {
  Files files;
  checkpoint.read_image(program, [&](std::size_t file, std::span<const std::byte> piece) {
    if (file == files.size()) {
      files.emplace_back(checkpoint.manifest().programs[program].files[file].name, "");
    }
    files.at(file).second.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  return files;
}

}  // namespace ferry::store::test
