#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/record.h"
#include "rnic/completion_queue.h"
#include "rnic/memory.h"
#include "rnic/queue_pair.h"

// Bodies of the records of an image (docs/image.md has them byte by byte). parse() is false for a
// body that is malformed; version_of() is what a record must say so that it is understood.
namespace ferry::rnic {

struct ContextRecord {
  std::uint32_t origin_slot = 0;
  Handle next_handle = 0;
  std::uint64_t guid = 0;
  std::uint32_t max_mtu = 0;  // bytes of payload
  std::vector<port::Address> gids;
};

struct MrRecord {
  Handle pd = 0;
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t iova = 0;
  std::uint32_t access = 0;  // kNullRegion: of a null MR, and nothing else
};
inline constexpr std::uint32_t kNullRegion = 1u << 31;

// PDs and XRC domains have no body.

struct MwRecord {
  Handle pd = 0;
  std::uint32_t key = 0;
  std::uint32_t posted_key = 0;
  std::uint8_t type = 0;  // ibv_mw_type
  Handle region = 0;      // 0: not bound, and the rest says nothing
  Handle qp = 0;          // of a bound window of type 2
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t iova = 0;
  std::uint32_t access = 0;
};

struct AhRecord {
  Handle pd = 0;
  ibv_ah_attr attributes{};
};

struct CqRecord {
  std::uint32_t capacity = 0;
  bool timestamps = false;
  bool ignore_overrun = false;
  CompletionQueue::Contents contents;
};

// `state` is the rest of the body (SharedReceiveQueue::save).
struct SrqRecord {
  Handle pd = 0, xrcd = 0, cq = 0;  // xrcd, cq: 0 unless XRC
  std::uint32_t number = 0;
  std::uint32_t max_wr = 0, max_sge = 0;
  std::span<const std::byte> state;
};

// `state` is the rest of the body: attributes, receive queue and transport (QueuePair::save).
struct QpRecord {
  Handle pd = 0, send_cq = 0, recv_cq = 0, srq = 0, xrcd = 0;  // 0: it has none
  std::uint32_t virtual_qpn = 0;
  std::uint32_t wire_qpn = 0;
  ibv_qp_cap cap{};
  std::uint8_t type = IBV_QPT_RC;
  bool sq_sig_all = false;
  bool block_multicast_loopback = false;
  std::span<const std::byte> state;
};

inline std::uint16_t version_of(const MrRecord& record) {
  return record.access == kNullRegion ? 2 : 1;
}
inline std::uint16_t version_of(const CqRecord& record) {
  return record.contents.moderation.is_on() ? 2 : 1;
}
inline std::uint16_t version_of(const QpRecord& record) {
  return record.block_multicast_loopback ? 2 : 1;
}

void encode(const ContextRecord& record, wire::ByteWriter& out);
void encode(const MrRecord& record, wire::ByteWriter& out);
void encode(const CqRecord& record, wire::ByteWriter& out);
void encode(const MwRecord& record, wire::ByteWriter& out);
void encode(const AhRecord& record, wire::ByteWriter& out);
void encode(const SrqRecord& record, wire::ByteWriter& out);  // without `state`
void encode(const QpRecord& record, wire::ByteWriter& out);   // without `state`
bool parse(std::span<const std::byte> body, ContextRecord* out);
bool parse(std::span<const std::byte> body, MrRecord* out);
bool parse(std::span<const std::byte> body, CqRecord* out);
bool parse(std::span<const std::byte> body, MwRecord* out);
bool parse(std::span<const std::byte> body, AhRecord* out);
bool parse(std::span<const std::byte> body, SrqRecord* out);
bool parse(std::span<const std::byte> body, QpRecord* out);

// The attributes part of a QP's state.
void encode(const ibv_qp_attr& attributes, wire::ByteWriter& out);
void parse(wire::ByteReader& in, ibv_qp_attr* out);

}  // namespace ferry::rnic
