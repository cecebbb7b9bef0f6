#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

#include "wire/bytes.h"

// The front of the bodies of records (docs/image.md, version 1): what the application's structs
// show and a restored device object does not tell. Handles that are 0 name nothing.
namespace ferry::verbs {

struct MrLinks {
  std::uint32_t pd = 0;  // handle
  std::uint64_t address = 0, length = 0;
};

struct CqLinks {
  bool timestamps = false;
};

struct SrqLinks {
  std::uint32_t pd = 0, xrcd = 0, cq = 0;
};

struct MwLinks {
  std::uint32_t pd = 0;
  ibv_mw_type type = IBV_MW_TYPE_1;
};

struct AhLinks {
  std::uint32_t pd = 0;
};

struct QpLinks {
  std::uint32_t pd = 0, send_cq = 0, recv_cq = 0, srq = 0, xrcd = 0;
  ibv_qp_cap cap{};
  ibv_qp_type type = IBV_QPT_RC;
  bool sq_sig_all = false;
};

inline bool parse(std::span<const std::byte> body, MrLinks* out) {
  wire::ByteReader in(body);
  out->pd = in.get<std::uint32_t>();
  in.get<std::uint32_t>();  // key
  out->address = in.get<std::uint64_t>();
  out->length = in.get<std::uint64_t>();
  return in.ok();
}

inline bool parse(std::span<const std::byte> body, CqLinks* out) {
  wire::ByteReader in(body);
  in.get<std::uint32_t>();  // capacity
  in.get<std::uint8_t>();   // armed
  in.get<std::uint8_t>();   // overflowed
  out->timestamps = in.get<std::uint8_t>() != 0;
  return in.ok();
}

inline bool parse(std::span<const std::byte> body, SrqLinks* out) {
  wire::ByteReader in(body);
  out->pd = in.get<std::uint32_t>();
  out->xrcd = in.get<std::uint32_t>();
  out->cq = in.get<std::uint32_t>();
  return in.ok();
}

inline bool parse(std::span<const std::byte> body, MwLinks* out) {
  wire::ByteReader in(body);
  out->pd = in.get<std::uint32_t>();
  in.get<std::uint32_t>();  // rkey
  in.get<std::uint32_t>();  // rkey of the latest bind
  out->type = static_cast<ibv_mw_type>(in.get<std::uint8_t>());
  return in.ok();
}

inline bool parse(std::span<const std::byte> body, AhLinks* out) {
  wire::ByteReader in(body);
  out->pd = in.get<std::uint32_t>();
  return in.ok();
}

inline bool parse(std::span<const std::byte> body, QpLinks* out) {
  wire::ByteReader in(body);
  out->pd = in.get<std::uint32_t>();
  out->send_cq = in.get<std::uint32_t>();
  out->recv_cq = in.get<std::uint32_t>();
  out->srq = in.get<std::uint32_t>();
  out->xrcd = in.get<std::uint32_t>();
  in.get<std::uint32_t>();  // virtual QPN
  in.get<std::uint32_t>();  // wire QPN
  out->cap.max_send_wr = in.get<std::uint32_t>();
  out->cap.max_recv_wr = in.get<std::uint32_t>();
  out->cap.max_send_sge = in.get<std::uint32_t>();
  out->cap.max_recv_sge = in.get<std::uint32_t>();
  out->cap.max_inline_data = in.get<std::uint32_t>();
  out->type = static_cast<ibv_qp_type>(in.get<std::uint8_t>());
  out->sq_sig_all = in.get<std::uint8_t>() != 0;
  return in.ok();
}

}  // namespace ferry::verbs
