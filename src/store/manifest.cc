#include "store/manifest.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "base/failure.h"
#include "base/json_text.h"
#include "store/digest.h"
#include "store/files.h"
#include "store/time_text.h"

namespace ferry::store {
namespace {

Failure not_utf8() {
  return Failure("a name in the checkpoint is not UTF-8");
}

using nlohmann::json;

constexpr int kIndent = 1;
constexpr mode_t kModeBits = 07777;

json to_json(const Manifest& manifest) {
  json programs = json::array();
  for (const auto& program : manifest.programs) programs.push_back(to_json(program));
  json checkpoint{{"id", manifest.id},
                  {"made", manifest.made},
                  {"version", manifest.version},
                  {"programs", std::move(programs)}};
  if (manifest.encryption) checkpoint["key_sha256"] = manifest.encryption->key_sha256;
  return checkpoint;
}

// `mac`: of an encrypted one. The digest, which anybody can check, is of that too.
std::string whole_text(const json& checkpoint, const std::optional<std::string>& mac) {
  json whole{{"format", mac ? kEncryptedFormat : kFormat},
             {"checkpoint", checkpoint},
             {"sha256", digest_of(json_text(checkpoint) + mac.value_or(std::string()))}};
  if (mac) whole["mac"] = *mac;
  return json_text(whole, kIndent) + "\n";
}

ContentKey key_of_manifests(const ContentKey& key) {
  return key.derived("ferry manifest");
}

std::uint64_t number(const json& value) {
  if (!value.is_number_unsigned()) throw Failure("a size is no number");
  return value.get<std::uint64_t>();
}

// The sum, of numbers that somebody else has written.
template <typename Each>
std::uint64_t sum_of(const std::vector<Each>& all, std::uint64_t Each::*part) {
  std::uint64_t sum = 0;
  for (const auto& each : all) {
    if (each.*part > std::numeric_limits<std::uint64_t>::max() - sum)
      throw Failure("its sizes have no sum");
    sum += each.*part;
  }
  return sum;
}

Program program_of(const json& value, std::set<std::string>* names_of_shards) {
  Program program;
  program.name = value.at("name").get<std::string>();
  program.host = value.at("host").get<std::string>();
  program.facts = value.at("facts");
  std::set<std::string> names;
  for (const auto& file : value.at("files")) {
    const std::uint64_t mode = number(file.at("mode"));
    program.files.push_back(
        {file.at("name").get<std::string>(), static_cast<mode_t>(mode), number(file.at("bytes"))});
    const std::string& name = program.files.back().name;
    if (!is_plain_name(name) || !names.insert(name).second || mode > kModeBits) {
      throw Failure("a file of an image has no name that can be");
    }
  }
  for (const auto& shard : value.at("shards")) {
    program.shards.push_back(
        {shard.at("file").get<std::string>(), number(shard.at("stored_bytes")),
         number(shard.at("content_bytes")), shard.at("sha256").get<std::string>(),
         shard.value("from", std::string()), shard.value("as", std::string())});
    const std::string& name = program.shards.back().file;
    if (const auto& from = program.shards.back().from; !from.empty() && !is_id(from)) {
      throw Failure("a shard is of no checkpoint");
    }
    if (const auto& as = program.shards.back().as; !as.empty() && !is_plain_name(as)) {
      throw Failure("a shard had no name that can be");
    }
    if (!is_plain_name(name) || name == kManifest || name == kKeyFile ||
        !names_of_shards->insert(name).second) {
      throw Failure("a shard has no name that can be");
    }
  }
  if (sum_of(program.files, &ImageFile::bytes) != sum_of(program.shards, &Shard::content)) {
    throw Failure("its shards do not have what its images have");
  }
  return program;
}

Manifest manifest_of(const json& value) {
  Manifest manifest;
  manifest.id = value.at("id").get<std::string>();
  manifest.made = value.at("made").get<std::string>();
  manifest.version = value.at("version").get<std::string>();
  std::set<std::string> names_of_shards;
  for (const auto& program : value.at("programs")) {
    manifest.programs.push_back(program_of(program, &names_of_shards));
  }
  if (!parse_time(manifest.made)) throw Failure("it was made at no time that can be");
  if (!is_id(manifest.id) || manifest.programs.empty()) throw Failure("it is of no checkpoint");
  return manifest;
}

}  // namespace

json to_json(const Program& program) {
  json files = json::array(), shards = json::array();
  for (const auto& file : program.files) {
    files.push_back({{"name", file.name}, {"mode", file.mode}, {"bytes", file.bytes}});
  }
  for (const auto& shard : program.shards) {
    shards.push_back({{"file", shard.file},
                      {"stored_bytes", shard.stored},
                      {"content_bytes", shard.content},
                      {"sha256", shard.sha256}});
    if (!shard.from.empty()) shards.back()["from"] = shard.from;
    if (!shard.as.empty()) shards.back()["as"] = shard.as;
  }
  return {{"name", program.name},
          {"host", program.host},
          {"facts", program.facts},
          {"files", std::move(files)},
          {"shards", std::move(shards)}};
}

Program parse_program(const json& value) {
  std::set<std::string> names_of_shards;
  return program_of(value, &names_of_shards);
}

std::uint64_t Manifest::content() const {
  std::uint64_t sum = 0;
  for (const auto& program : programs) sum += sum_of(program.shards, &Shard::content);
  return sum;
}

std::uint64_t Manifest::stored() const {
  std::uint64_t sum = 0;
  for (const auto& program : programs) sum += sum_of(program.shards, &Shard::stored);
  return sum;
}

std::uint64_t Manifest::written() const {
  std::uint64_t sum = 0;
  for (const auto& program : programs) {
    for (const auto& shard : program.shards) sum += shard.from.empty() ? shard.stored : 0;
  }
  return sum;
}

bool Manifest::is_of(const ContentKey& key) const {
  return encryption && key_of_manifests(key).has_made(encryption->mac, encryption->digest);
}

std::optional<std::pair<std::size_t, std::size_t>> shards_of(const Program& program,
                                                             std::size_t file) {
  std::uint64_t begin = 0, at = 0;
  for (std::size_t i = 0; i < file; ++i) begin += program.files.at(i).bytes;
  const std::uint64_t end = begin + program.files.at(file).bytes;
  std::size_t first = 0;
  for (; first < program.shards.size() && at < begin; ++first) at += program.shards[first].content;
  if (at != begin) return std::nullopt;
  std::size_t last = first;
  for (; last < program.shards.size() && at < end; ++last) at += program.shards[last].content;
  if (at != end) return std::nullopt;
  return std::pair(first, last);
}

std::string to_text(const Program& program) {
  try {
    return json_text(to_json(program));
  } catch (const json::exception&) {
    throw not_utf8();
  }
}

std::string to_text(const Manifest& manifest, const std::optional<ContentKey>& key) {
  try {
    const json checkpoint = to_json(manifest);
    if (!key) return whole_text(checkpoint, std::nullopt);
    return whole_text(checkpoint, key_of_manifests(*key).mac(digest_of(json_text(checkpoint))));
  } catch (const json::exception&) {
    throw not_utf8();
  }
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const std::string file = printable(path);
  const json whole = json_or_discarded(text);
  if (!whole.is_object() || !whole.contains("format") || !whole["format"].is_number_unsigned()) {
    throw Failure(file + " is damaged: it is no manifest");
  }
  const auto format = whole["format"].get<std::uint64_t>();
  const bool is_encrypted = format == kEncryptedFormat;
  if (format != kFormat && !is_encrypted) {
    throw Failure(
        fmt::format("{} has the format {}, and this version of Ferry reads formats {} and {}", file,
                    format, kFormat, kEncryptedFormat));
  }
  try {
    const json& checkpoint = whole.at("checkpoint");
    std::optional<std::string> mac;
    if (is_encrypted) mac = whole.at("mac").get<std::string>();
    // The text as it was written, so that there is no byte that may differ.
    if (whole_text(checkpoint, mac) != text) throw Failure("its digest is another one");
    Manifest manifest = manifest_of(checkpoint);
    if (is_encrypted) {
      manifest.encryption = {checkpoint.at("key_sha256").get<std::string>(),
                             digest_of(json_text(checkpoint)), *mac};
    }
    return manifest;
  } catch (const json::exception&) {
    throw Failure(file + " is damaged: a field is not what it should be");
  } catch (const Failure& failure) {
    throw Failure(fmt::format("{} is damaged: {}", file, failure.what()));
  }
}

bool is_id(const std::string& text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

const std::string& need_id(const std::string& text) {
  if (!is_id(text)) throw Failure("'" + printable(text) + "' is no id of a checkpoint");
  return text;
}

}  // namespace ferry::store
