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

constexpr std::uint32_t kAreSrqns = 1u << 31;

using Keys = std::vector<Introduction::Key>;

// Parts the keys of MRs from those of windows, and those from the SRQNs, by pairs of key 0 that tell how many follow.
// False: there are not as many.
bool part(const Keys& keys, Introduction* out) {
  const auto is_heading = [](const Introduction::Key& key) { return key.known == 0; };
  auto at = std::find_if(keys.begin(), keys.end(), is_heading);
  out->rkeys.assign(keys.begin(), at);
  out->window_rkeys.clear();
  out->srqns.clear();
  while (at != keys.end()) {
    const bool are_srqns = (at->real & kAreSrqns) != 0;
    const std::uint32_t count = at->real & ~kAreSrqns;
    Keys& part = are_srqns ? out->srqns : out->window_rkeys;
    if (!is_heading(*at) || count == 0 || !part.empty() || count > keys.end() - at - 1)
      return false;
    part.assign(at + 1, at + 1 + count);
    at += 1 + count;
    if (!are_srqns && !out->srqns.empty()) return false;  // they come in order
  }
  return true;
}

// Adds a part behind its heading.
void append(Keys* keys, const Keys& part, std::uint32_t flag) {
  if (part.empty()) return;
  keys->push_back({0, static_cast<std::uint32_t>(part.size()) | flag});
  keys->insert(keys->end(), part.begin(), part.end());
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
  Keys keys = introduction.rkeys;
  append(&keys, introduction.window_rkeys, 0);
  append(&keys, introduction.srqns, kAreSrqns);
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
    Keys keys(count);
    for (Introduction::Key& key : keys) {
      key.known = reader.get<std::uint32_t>();
      key.real = reader.get<std::uint32_t>();
    }
    if (!part(keys, &introduction)) return false;
    if (introduction.qpn == 0 || introduction.qpn >= kQpnLimit) return false;
  }
  return reader.ok() && reader.remaining() == 0;
}

}  // namespace ferry::virt
