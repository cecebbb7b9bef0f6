#include "rnic/engine/qp/records.h"

#include <cstring>

#include "port/slot.h"

namespace ferry::rnic {
namespace {

bool finished(const wire::ByteReader& in) {
  return in.ok() && in.remaining() == 0;
}

}  // namespace

void encode(const ContextRecord& record, wire::ByteWriter& out) {
  out.put(record.origin_slot);
  device::encode(record, out);
}

bool parse(std::span<const std::byte> body, ContextRecord* out) {
  wire::ByteReader in(body);
  out->origin_slot = in.get<std::uint32_t>();
  return device::parse(in, out) && finished(in) && out->gids.size() <= kLanes &&
         out->origin_slot <= port::kMaxSlot;
}

bool parse(std::span<const std::byte> body, device::MrHead* out) {
  wire::ByteReader in(body);
  return device::parse(in, out) && finished(in);
}

void encode(const CqRecord& record, wire::ByteWriter& out) {
  device::encode(record, out);
  out.put(static_cast<std::uint32_t>(record.contents.completions.size()));
  for (std::size_t i = 0; i < record.contents.completions.size(); ++i) {
    const ibv_wc& wc = record.contents.completions[i];
    out.put(std::uint64_t{wc.wr_id});
    out.put(static_cast<std::uint8_t>(wc.status));
    out.put(static_cast<std::uint8_t>(wc.opcode));
    out.put(static_cast<std::uint16_t>(wc.wc_flags));
    out.put(std::uint32_t{wc.byte_len});
    out.put(std::uint32_t{wc.imm_data});
    out.put(std::uint32_t{wc.qp_num});
    out.put(std::uint32_t{wc.src_qp});
    out.put(std::uint16_t{wc.slid});
    out.put(wc.sl);
    out.put(wc.dlid_path_bits);
    if (!record.timestamps) continue;
    out.put(record.contents.times[i].clock);
    out.put(record.contents.times[i].wallclock);
  }
  const CompletionQueue::Moderation& moderation = record.contents.moderation;
  if (!moderation.is_on()) return;
  out.put(moderation.count);
  out.put(moderation.period);
}

bool parse(std::span<const std::byte> body, CqRecord* out) {
  wire::ByteReader in(body);
  if (!device::parse(in, out)) return false;
  const auto count = in.get<std::uint32_t>();
  constexpr std::size_t kModeration = 4;
  const std::size_t waiting = std::size_t{count} * (out->timestamps ? 48 : 32);
  if (!in.ok() || out->capacity > static_cast<std::uint32_t>(CompletionQueue::kMaxEntries) ||
      count > out->capacity ||
      (in.remaining() != waiting && in.remaining() != waiting + kModeration)) {
    return false;
  }
  const bool moderated = in.remaining() != waiting;
  out->contents.armed = static_cast<CompletionQueue::Armed>(out->armed);
  out->contents.overflowed = out->overflowed;
  out->contents.completions.resize(count);
  for (ibv_wc& wc : out->contents.completions) {
    wc = {};
    wc.wr_id = in.get<std::uint64_t>();
    wc.status = static_cast<ibv_wc_status>(in.get<std::uint8_t>());
    wc.opcode = static_cast<ibv_wc_opcode>(in.get<std::uint8_t>());
    wc.wc_flags = in.get<std::uint16_t>();
    wc.byte_len = in.get<std::uint32_t>();
    wc.imm_data = in.get<std::uint32_t>();
    wc.qp_num = in.get<std::uint32_t>();
    wc.src_qp = in.get<std::uint32_t>();
    wc.slid = in.get<std::uint16_t>();
    wc.sl = in.get<std::uint8_t>();
    wc.dlid_path_bits = in.get<std::uint8_t>();
    if (!out->timestamps) continue;
    device::CompletionTimes& times = out->contents.times.emplace_back();
    times.clock = in.get<std::uint64_t>();
    times.wallclock = in.get<std::uint64_t>();
  }
  if (moderated) {
    CompletionQueue::Moderation& moderation = out->contents.moderation;
    moderation.count = in.get<std::uint16_t>();
    moderation.period = in.get<std::uint16_t>();
    if (!moderation.is_on()) return false;
  }
  return finished(in);
}

// Both keys have the same upper 24 bits, which a bind does not change.
bool parse(std::span<const std::byte> body, device::MwHead* out) {
  wire::ByteReader in(body);
  return device::parse(in, out) && finished(in) && out->posted_key >> 8 == out->key >> 8;
}

bool parse(std::span<const std::byte> body, device::AhHead* out) {
  wire::ByteReader in(body);
  return device::parse(in, out) && finished(in);
}

bool parse(std::span<const std::byte> body, SrqRecord* out) {
  wire::ByteReader in(body);
  if (!device::parse(in, out)) return false;
  out->state = in.take(in.remaining());
  return out->max_wr >= 1 && out->max_wr <= SharedReceiveQueue::kMaxWr && out->max_sge >= 1 &&
         out->max_sge <= SharedReceiveQueue::kMaxSge;
}

bool parse(std::span<const std::byte> body, QpRecord* out) {
  wire::ByteReader in(body);
  if (!device::parse(in, out)) return false;
  out->state = in.take(in.remaining());
  // A capacity that was granted is granted again unchanged; so any other one is refused here.
  const ibv_qp_cap saved = out->cap;
  return port::index_of(out->virtual_qpn) >= port::kReservedIndices &&
         port::index_of(out->virtual_qpn) == port::index_of(out->wire_qpn) &&
         QueuePair::grant(static_cast<ibv_qp_type>(out->type), out->srq != 0, &out->cap) == 0 &&
         std::memcmp(&saved, &out->cap, sizeof saved) == 0;
}

}  // namespace ferry::rnic
