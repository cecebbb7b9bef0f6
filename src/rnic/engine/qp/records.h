#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/record.h"
#include "device/record_heads.h"
#include "rnic/engine/completion_queue.h"
#include "rnic/engine/qp/queue_pair.h"
#include "rnic/memory/memory.h"

// Bodies of the records of an image (docs/image.md has them byte by byte): a head that devices of
// any kind have (device/record_heads.h), and our own state. parse() returns false for a body that
// is malformed or beyond the limits of our RNIC. version_of() is the version that the record must
// have.
namespace ferry::rnic {

struct ContextRecord : device::ContextHead {
  std::uint32_t origin_slot = 0;
};

// contents.armed and contents.overflowed repeat those of the head.
struct CqRecord : device::CqHead {
  CompletionQueue::Contents contents;
};

// `state` is the rest of the body (SharedReceiveQueue::save).
struct SrqRecord : device::SrqHead {
  std::span<const std::byte> state;
};

// `state` is the rest of the body: attributes, receive queue and transport (QueuePair::save).
struct QpRecord : device::QpHead {
  std::span<const std::byte> state;
};

inline std::uint16_t version_of(const CqRecord& record) {
  return record.contents.moderation.is_on() ? 2 : 1;
}

void encode(const ContextRecord& record, wire::ByteWriter& out);
void encode(const CqRecord& record, wire::ByteWriter& out);
bool parse(std::span<const std::byte> body, ContextRecord* out);
bool parse(std::span<const std::byte> body, device::MrHead* out);
bool parse(std::span<const std::byte> body, CqRecord* out);
bool parse(std::span<const std::byte> body, device::MwHead* out);
bool parse(std::span<const std::byte> body, device::AhHead* out);
bool parse(std::span<const std::byte> body, SrqRecord* out);
bool parse(std::span<const std::byte> body, QpRecord* out);

}  // namespace ferry::rnic
