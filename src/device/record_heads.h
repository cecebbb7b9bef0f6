#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "wire/bytes.h"

// The heads of the bodies of records (docs/image.md): what an application asked for, and what it
// was told. A device of any kind can make the object anew from them. What follows a head in the body
// is the own state of the device that wrote it; the own state of a context stands in front.
//
// parse() takes a head off `in`. False: malformed; the limits of a device are its own affair.
namespace ferry::device {

// Numbers the objects of one context for its life; records name objects by it. 0: none.
using Handle = std::uint32_t;

struct ContextHead {
  Handle next_handle = 0;
  std::uint64_t guid = 0;
  std::uint32_t max_mtu = 0;  // bytes of payload: 256, 512, …, 4096
  std::vector<ibv_gid> gids;
};

// PDs and XRC domains have no body.

struct MrHead {
  Handle pd = 0;
  std::uint32_t key = 0;  // lkey and rkey
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t iova = 0;
  std::uint32_t access = 0;  // kNullRegion: of a null MR, and nothing else
};
inline constexpr std::uint32_t kNullRegion = 1u << 31;

struct MwHead {
  Handle pd = 0;
  std::uint32_t key = 0;
  std::uint32_t posted_key = 0;  // of the latest bind of a window of type 1
  std::uint8_t type = 0;         // ibv_mw_type
  Handle region = 0;             // 0: not bound, and the rest says nothing
  Handle qp = 0;                 // of a bound window of type 2
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t iova = 0;
  std::uint32_t access = 0;
};

struct AhHead {
  Handle pd = 0;
  ibv_ah_attr attributes{};
};

struct CqHead {
  std::uint32_t capacity = 0;
  std::uint8_t armed = 0;  // 0 no, 1 for solicited completions, 2 for any
  bool overflowed = false;
  bool timestamps = false;
  bool ignore_overrun = false;
};

struct SrqHead {
  Handle pd = 0, xrcd = 0, cq = 0;  // xrcd, cq: 0 unless XRC
  std::uint32_t number = 0;         // 0 unless XRC
  std::uint32_t max_wr = 0, max_sge = 0;
};

// The attributes of ibv_modify_qp follow.
struct QpHead {
  Handle pd = 0, send_cq = 0, recv_cq = 0, srq = 0, xrcd = 0;  // 0: it has none
  std::uint32_t virtual_qpn = 0;                               // the application's
  std::uint32_t wire_qpn = 0;                                  // the device's
  ibv_qp_cap cap{};
  std::uint8_t type = IBV_QPT_RC;
  bool sq_sig_all = false;
  bool block_multicast_loopback = false;
};

// What a record must say so that it is understood.
inline std::uint16_t version_of(const MrHead& head) {
  return head.access == kNullRegion ? 2 : 1;
}
inline std::uint16_t version_of(const QpHead& head) {
  return head.block_multicast_loopback ? 2 : 1;
}

void encode(const ContextHead& head, wire::ByteWriter& out);
void encode(const MrHead& head, wire::ByteWriter& out);
void encode(const MwHead& head, wire::ByteWriter& out);
void encode(const AhHead& head, wire::ByteWriter& out);
void encode(const CqHead& head, wire::ByteWriter& out);
void encode(const SrqHead& head, wire::ByteWriter& out);
void encode(const QpHead& head, wire::ByteWriter& out);
void encode(const ibv_qp_attr& attributes, wire::ByteWriter& out);
bool parse(wire::ByteReader& in, ContextHead* out);
bool parse(wire::ByteReader& in, MrHead* out);
bool parse(wire::ByteReader& in, MwHead* out);
bool parse(wire::ByteReader& in, AhHead* out);
bool parse(wire::ByteReader& in, CqHead* out);
bool parse(wire::ByteReader& in, SrqHead* out);
bool parse(wire::ByteReader& in, QpHead* out);
bool parse(wire::ByteReader& in, ibv_qp_attr* out);

}  // namespace ferry::device
