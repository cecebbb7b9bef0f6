#include "virtual/messages/letters.h"

#include <algorithm>
#include <utility>

#include "wire/bytes.h"

namespace ferry::virt {
namespace {

constexpr std::uint32_t kQpnLimit = 1u << 24;
// The two upper bits of an attempt.
constexpr std::uint32_t kAsksForUse = 1u << 31, kIsInUse = 1u << 30;
// The same bit as kAsksForUse, in letters that introduce.
constexpr std::uint32_t kIsDetached = 1u << 31;

// Parts the keys of MRs from those of windows. False: the number of the latter is another one.
bool part(std::vector<Introduction::Key> keys, Introduction* out) {
  const auto middle = std::find_if(keys.begin(), keys.end(),
                                   [](const Introduction::Key& key) { return key.known == 0; });
  if (middle != keys.end()) {
    out->window_rkeys.assign(middle + 1, keys.end());
    if (middle->real == 0 || middle->real != out->window_rkeys.size()) return false;
    keys.erase(middle, keys.end());
  }
  out->rkeys = std::move(keys);
  return true;
}

bool introduces(LetterKind kind) {
  return kind == LetterKind::kSwitch || kind == LetterKind::kSwitched;
}

}  // namespace

std::vector<std::byte> encode(const LetterBody& body) {
  std::vector<std::byte> bytes;
  wire::ByteWriter writer(&bytes);
  writer.put(body.kind);
  const Introduction& introduction = body.introduction;
  if (!introduces(body.kind)) {
    writer.put(body.attempt % kIsInUse | (body.asks_for_use ? kAsksForUse : 0) |
               (body.is_in_use ? kIsInUse : 0));
    return bytes;
  }
  writer.put(body.attempt % kIsInUse | (introduction.is_detached ? kIsDetached : 0));
  writer.put(introduction.qpn);
  writer.append(introduction.gid.raw, sizeof introduction.gid.raw);
  std::vector<Introduction::Key> keys = introduction.rkeys;
  const auto& of_windows = introduction.window_rkeys;
  if (!of_windows.empty()) keys.push_back({0, static_cast<std::uint32_t>(of_windows.size())});
  keys.insert(keys.end(), of_windows.begin(), of_windows.end());
  writer.put(static_cast<std::uint32_t>(keys.size()));
  for (const Introduction::Key& key : keys) {
    writer.put(key.known);
    writer.put(key.real);
  }
  return bytes;
}

bool parse(std::span<const std::byte> bytes, LetterBody* out) {
  wire::ByteReader reader(bytes);
  const auto kind = reader.get<std::uint8_t>();
  if (kind < static_cast<std::uint8_t>(LetterKind::kSuspend) ||
      kind > static_cast<std::uint8_t>(LetterKind::kDisconnected))
    return false;
  out->kind = static_cast<LetterKind>(kind);
  const auto attempt = reader.get<std::uint32_t>();
  out->attempt = attempt % kIsInUse;
  if (!introduces(out->kind)) {
    out->asks_for_use = (attempt & kAsksForUse) != 0;
    out->is_in_use = (attempt & kIsInUse) != 0;
  } else {
    Introduction& introduction = out->introduction;
    introduction.is_detached = (attempt & kIsDetached) != 0;
    introduction.qpn = reader.get<std::uint32_t>();
    reader.read(introduction.gid.raw, sizeof introduction.gid.raw);
    const auto count = reader.get<std::uint32_t>();
    if (reader.remaining() != std::size_t{count} * sizeof(Introduction::Key)) return false;
    std::vector<Introduction::Key> keys(count);
    for (Introduction::Key& key : keys) {
      key.known = reader.get<std::uint32_t>();
      key.real = reader.get<std::uint32_t>();
    }
    if (!part(std::move(keys), &introduction)) return false;
    if (introduction.qpn == 0 || introduction.qpn >= kQpnLimit) return false;
  }
  return reader.ok() && reader.remaining() == 0;
}

}  // namespace ferry::virt
