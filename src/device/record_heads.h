#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "wire/bytes.h"

// The heads of the bodies of records (docs/image.md): what an application asked for, and what it
// was told. A device of any kind can make the object anew from its head. In the body the head is
// followed by state that only the device that wrote it understands; in a context's body that state
// stands before the head.
//
// encode() appends a head to `out`, parse() takes one off `in`. False: malformed. parse() does not
// check the limits of a device.
namespace ferry::device {

// The number of an object in its context, which no other object of that context ever gets; records
// name objects by it. 0: no object.
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
  std::uint32_t access = 0;  // ibv_access_flags; kNullRegion alone: a null MR
};
inline constexpr std::uint32_t kNullRegion = 1u << 31;

struct MwHead {
  Handle pd = 0;
  std::uint32_t key = 0;
  std::uint32_t posted_key = 0;  // type 1: the rkey of the latest bind that was posted
  std::uint8_t type = 0;         // ibv_mw_type
  Handle region = 0;             // its MR; 0: not bound, and what follows means nothing
  Handle qp = 0;                 // type 2, bound: the QP that it is bound to
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

// In a QP's body the attributes of ibv_modify_qp follow the head.
struct QpHead {
  Handle pd = 0, send_cq = 0, recv_cq = 0, srq = 0, xrcd = 0;  // 0: the QP has none
  std::uint32_t virtual_qpn = 0;                               // what the application sees
  std::uint32_t wire_qpn = 0;                                  // what packets carry
  ibv_qp_cap cap{};
  std::uint8_t type = IBV_QPT_RC;
  bool sq_sig_all = false;
  bool block_multicast_loopback = false;
};

// The version that a record with this head must have (kImageVersion in record.h).
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
