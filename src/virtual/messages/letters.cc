#include "virtual/messages/letters.h"

#include "wire/bytes.h"

namespace ferry::virt {
namespace {

constexpr std::uint32_t kQpnLimit = 1u << 24;
// The two upper bits of an attempt.
constexpr std::uint32_t kAsksForUse = 1u << 31, kIsInUse = 1u << 30;

bool introduces(LetterKind kind) {
  return kind == LetterKind::kSwitch || kind == LetterKind::kSwitched;
}

}  // namespace

std::vector<std::byte> encode(const LetterBody& body) {
  std::vector<std::byte> bytes;
  wire::ByteWriter writer(&bytes);
  writer.put(body.kind);
  writer.put(body.attempt % kIsInUse | (body.asks_for_use ? kAsksForUse : 0) |
             (body.is_in_use ? kIsInUse : 0));
  if (!introduces(body.kind)) return bytes;
  const Introduction& introduction = body.introduction;
  writer.put(introduction.qpn);
  writer.append(introduction.gid.raw, sizeof introduction.gid.raw);
  writer.put(static_cast<std::uint32_t>(introduction.rkeys.size()));
  for (const Introduction::Key& key : introduction.rkeys) {
    writer.put(key.known);
    writer.put(key.real);
  }
  return bytes;
}

bool parse(std::span<const std::byte> bytes, LetterBody* out) {
  wire::ByteReader reader(bytes);
  const auto kind = reader.get<std::uint8_t>();
  if (kind < static_cast<std::uint8_t>(LetterKind::kSuspend) ||
      kind > static_cast<std::uint8_t>(LetterKind::kSeek))
    return false;
  out->kind = static_cast<LetterKind>(kind);
  const auto attempt = reader.get<std::uint32_t>();
  out->attempt = attempt % kIsInUse;
  out->asks_for_use = (attempt & kAsksForUse) != 0;
  out->is_in_use = (attempt & kIsInUse) != 0;
  if (introduces(out->kind)) {
    Introduction& introduction = out->introduction;
    introduction.qpn = reader.get<std::uint32_t>();
    reader.read(introduction.gid.raw, sizeof introduction.gid.raw);
    const auto count = reader.get<std::uint32_t>();
    if (reader.remaining() != std::size_t{count} * sizeof(Introduction::Key)) return false;
    introduction.rkeys.resize(count);
    for (Introduction::Key& key : introduction.rkeys) {
      key.known = reader.get<std::uint32_t>();
      key.real = reader.get<std::uint32_t>();
    }
    if (introduction.qpn == 0 || introduction.qpn >= kQpnLimit) return false;
  }
  return reader.ok() && reader.remaining() == 0;
}

}  // namespace ferry::virt
