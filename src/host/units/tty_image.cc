#include "host/units/tty_image.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/failure.h"
#include "criu_tty.pb.h"

namespace ferry::host {
namespace {

constexpr int kExternal = 5;      // EXT_TTY of CRIU's enum TtyType
constexpr std::size_t kHead = 8;  // two magic numbers

void append_entry(const criu::TtyInfo& info, std::string* image) {
  const std::string message = info.SerializeAsString();
  const auto length = static_cast<std::uint32_t>(message.size());
  image->append(reinterpret_cast<const char*>(&length), sizeof length);
  image->append(message);
}

// Nothing: the image is malformed.
std::optional<std::string> without_sessions(const std::string& image) {
  if (image.size() < kHead) return std::nullopt;
  std::string changed = image.substr(0, kHead);
  for (std::size_t at = kHead; at < image.size();) {
    std::uint32_t length = 0;
    if (image.size() - at < sizeof length) return std::nullopt;
    std::memcpy(&length, image.data() + at, sizeof length);
    at += sizeof length;
    criu::TtyInfo info;
    if (image.size() - at < length ||
        !info.ParseFromArray(image.data() + at, static_cast<int>(length))) {
      return std::nullopt;
    }
    at += length;
    if (info.type() == kExternal) {
      info.set_sid(0);
      info.set_pgrp(0);
    }
    append_entry(info, &changed);
  }
  return changed;
}

}  // namespace

void forget_sessions_of_terminals(const std::string& images) {
  const std::string path = images + "/tty-info.img";
  std::ifstream in(path, std::ios::binary);
  const std::string image{std::istreambuf_iterator<char>(in), {}};
  const auto changed = in ? without_sessions(image) : std::nullopt;
  if (!changed) throw Failure(path + " is not as CRIU writes it");
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << *changed;
  out.close();
  if (!out) throw Failure(fmt::format("cannot write {}: {}", path, error_text(errno)));
}

}  // namespace ferry::host
