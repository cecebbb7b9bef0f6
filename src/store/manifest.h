#pragma once

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/content_key.h"

// What a checkpoint consists of: the file manifest.json of its folder, the last that is written (docs/checkpoint.md).
namespace ferry::store {

inline constexpr char kManifest[] = "manifest.json";
inline constexpr char kRestarted[] =
    ".restarted";  // end of the name of the file that its restarts write, beside it
inline constexpr char kKeyFile[] =
    "key.cms";  // of an encrypted checkpoint: its wrapped content key
inline constexpr unsigned kFormat = 1, kEncryptedFormat = 2;

// A file of the folder: one zstd frame, with a part of the image of a program. In an encrypted checkpoint it is sealed
// (store/sealed_stream.h).
struct Shard {
  std::string file;           // its name
  std::uint64_t stored = 0;   // bytes of the file
  std::uint64_t content = 0;  // bytes that it decompresses to
  std::string sha256;         // of the file
  std::string from;           // id of the checkpoint that has written it; empty: this one
  std::string as;             // its name there, if it is sealed; empty: this one

  bool operator==(const Shard&) const = default;
};

// A file of a program's image. The contents of all, one after the other, are what its shards decompress to.
struct ImageFile {
  std::string name;
  mode_t mode = 0600;
  std::uint64_t bytes = 0;

  bool operator==(const ImageFile&) const = default;
};

struct Program {
  std::string name, host;  // host: where it ran
  nlohmann::json facts =
      nlohmann::json::object();  // what a restart has to know; the store does not look into it
  std::vector<ImageFile> files;
  std::vector<Shard> shards;

  bool operator==(const Program&) const = default;
};
// As it is in a manifest. parse_program() throws Failure, or nlohmann::json::exception.
nlohmann::json to_json(const Program& program);
std::string to_text(const Program& program);  // throws Failure for names that are not UTF-8
Program parse_program(const nlohmann::json& value);

// What the manifest of an encrypted checkpoint says of that.
struct Encryption {
  std::string key_sha256;  // of kKeyFile
  std::string digest;      // of what the manifest says of the checkpoint
  std::string mac;         // by which the content key vouches for that

  bool operator==(const Encryption&) const = default;
};

struct Manifest {
  std::string id;       // that of the checkpoint
  std::string made;     // "2026-11-28T13:04:05.678Z"
  std::string version;  // of the Ferry that made it
  std::vector<Program> programs;
  std::optional<Encryption> encryption;  // nothing: it is not encrypted

  bool operator==(const Manifest&) const = default;

  std::uint64_t content() const;  // bytes of all images
  std::uint64_t stored() const;   // bytes of all shards
  std::uint64_t written() const;  // bytes of those that this checkpoint has written
  // False: somebody without the content key has written it.
  bool is_of(const ContentKey& key) const;
};

// The shards that have a file of the image and nothing else, as [first, behind the last); nothing: a shard has other
// content too.
std::optional<std::pair<std::size_t, std::size_t>> shards_of(const Program& program,
                                                             std::size_t file);

// With a digest of itself. `key`: of an encrypted checkpoint. Throws Failure for names that are not UTF-8.
std::string to_text(const Manifest& manifest, const std::optional<ContentKey>& key = {});
// Throws Failure, which says what is wrong with `text`, the content of `path`.
Manifest parse_manifest(std::string_view text, const std::string& path);

// 16 hexadecimal digits, as ids of moves.
bool is_id(const std::string& text);
// `text`. Throws Failure when it is none.
const std::string& need_id(const std::string& text);

}  // namespace ferry::store
