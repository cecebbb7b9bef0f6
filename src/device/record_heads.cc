#include "device/record_heads.h"

namespace ferry::device {
namespace {

void put(const ibv_ah_attr& a, wire::ByteWriter& out) {
  out.append(a.grh.dgid.raw, 16);
  out.put(std::uint32_t{a.grh.flow_label});
  out.put(a.grh.sgid_index);
  out.put(a.grh.hop_limit);
  out.put(a.grh.traffic_class);
  out.put(std::uint16_t{a.dlid});
  out.put(a.sl);
  out.put(a.src_path_bits);
  out.put(a.static_rate);
  out.put(a.is_global);
  out.put(a.port_num);
}

void get(wire::ByteReader& in, ibv_ah_attr* a) {
  in.read(a->grh.dgid.raw, 16);
  a->grh.flow_label = in.get<std::uint32_t>();
  a->grh.sgid_index = in.get<std::uint8_t>();
  a->grh.hop_limit = in.get<std::uint8_t>();
  a->grh.traffic_class = in.get<std::uint8_t>();
  a->dlid = in.get<std::uint16_t>();
  a->sl = in.get<std::uint8_t>();
  a->src_path_bits = in.get<std::uint8_t>();
  a->static_rate = in.get<std::uint8_t>();
  a->is_global = in.get<std::uint8_t>();
  a->port_num = in.get<std::uint8_t>();
}

}  // namespace

void encode(const ContextHead& head, wire::ByteWriter& out) {
  out.put(head.next_handle);
  out.put(head.guid);
  out.put(head.max_mtu);
  out.put(static_cast<std::uint32_t>(head.gids.size()));
  for (const ibv_gid& gid : head.gids) out.append(gid.raw, sizeof gid.raw);
}

bool parse(wire::ByteReader& in, ContextHead* out) {
  constexpr std::uint32_t kMaxGids = 256;  // a GID's index is 8 bits wide (ibv_global_route)
  out->next_handle = in.get<std::uint32_t>();
  out->guid = in.get<std::uint64_t>();
  out->max_mtu = in.get<std::uint32_t>();
  const auto count = in.get<std::uint32_t>();
  if (!in.ok() || count == 0 || count > kMaxGids) return false;
  if (out->max_mtu < 256 || out->max_mtu > 4096 || (out->max_mtu & (out->max_mtu - 1)) != 0) {
    return false;
  }
  out->gids.resize(count);
  for (ibv_gid& gid : out->gids) in.read(gid.raw, sizeof gid.raw);
  return in.ok();
}

void encode(const MrHead& head, wire::ByteWriter& out) {
  out.put(head.pd);
  out.put(head.key);
  out.put(head.address);
  out.put(head.length);
  out.put(head.iova);
  out.put(head.access);
}

bool parse(wire::ByteReader& in, MrHead* out) {
  out->pd = in.get<std::uint32_t>();
  out->key = in.get<std::uint32_t>();
  out->address = in.get<std::uint64_t>();
  out->length = in.get<std::uint64_t>();
  out->iova = in.get<std::uint64_t>();
  out->access = in.get<std::uint32_t>();
  const bool is_null = (out->access & kNullRegion) != 0;
  return in.ok() && (!is_null || (out->access == kNullRegion && out->address == 0 &&
                                  out->length == 0 && out->iova == 0));
}

void encode(const MwHead& head, wire::ByteWriter& out) {
  out.put(head.pd);
  out.put(head.key);
  out.put(head.posted_key);
  out.put(head.type);
  out.put(head.region);
  out.put(head.qp);
  out.put(head.address);
  out.put(head.length);
  out.put(head.iova);
  out.put(head.access);
}

bool parse(wire::ByteReader& in, MwHead* out) {
  out->pd = in.get<std::uint32_t>();
  out->key = in.get<std::uint32_t>();
  out->posted_key = in.get<std::uint32_t>();
  out->type = in.get<std::uint8_t>();
  out->region = in.get<std::uint32_t>();
  out->qp = in.get<std::uint32_t>();
  out->address = in.get<std::uint64_t>();
  out->length = in.get<std::uint64_t>();
  out->iova = in.get<std::uint64_t>();
  out->access = in.get<std::uint32_t>();
  const bool type_2 = out->type == IBV_MW_TYPE_2;
  return in.ok() && (type_2 || out->type == IBV_MW_TYPE_1) &&
         (out->qp != 0) == (type_2 && out->region != 0);
}

void encode(const AhHead& head, wire::ByteWriter& out) {
  out.put(head.pd);
  put(head.attributes, out);
}

bool parse(wire::ByteReader& in, AhHead* out) {
  out->pd = in.get<std::uint32_t>();
  get(in, &out->attributes);
  return in.ok() && out->pd != 0;
}

void encode(const CqHead& head, wire::ByteWriter& out) {
  out.put(head.capacity);
  out.put(head.armed);
  out.put(static_cast<std::uint8_t>(head.overflowed));
  out.put(static_cast<std::uint8_t>(head.timestamps));
  out.put(static_cast<std::uint8_t>(head.ignore_overrun));
}

bool parse(wire::ByteReader& in, CqHead* out) {
  out->capacity = in.get<std::uint32_t>();
  out->armed = in.get<std::uint8_t>();
  out->overflowed = in.get<std::uint8_t>() != 0;
  out->timestamps = in.get<std::uint8_t>() != 0;
  out->ignore_overrun = in.get<std::uint8_t>() != 0;
  return in.ok() && out->armed <= 2 && out->capacity != 0;
}

void encode(const SrqHead& head, wire::ByteWriter& out) {
  out.put(head.pd);
  out.put(head.xrcd);
  out.put(head.cq);
  out.put(head.number);
  out.put(head.max_wr);
  out.put(head.max_sge);
}

bool parse(wire::ByteReader& in, SrqHead* out) {
  out->pd = in.get<std::uint32_t>();
  out->xrcd = in.get<std::uint32_t>();
  out->cq = in.get<std::uint32_t>();
  out->number = in.get<std::uint32_t>();
  out->max_wr = in.get<std::uint32_t>();
  out->max_sge = in.get<std::uint32_t>();
  const bool is_xrc = out->xrcd != 0;
  return in.ok() && is_xrc == (out->cq != 0) && is_xrc == (out->number != 0) &&
         out->number <= 0xFFFFFF;
}

void encode(const QpHead& head, wire::ByteWriter& out) {
  out.put(head.pd);
  out.put(head.send_cq);
  out.put(head.recv_cq);
  out.put(head.srq);
  out.put(head.xrcd);
  out.put(head.virtual_qpn);
  out.put(head.wire_qpn);
  out.put(head.cap.max_send_wr);
  out.put(head.cap.max_recv_wr);
  out.put(head.cap.max_send_sge);
  out.put(head.cap.max_recv_sge);
  out.put(head.cap.max_inline_data);
  out.put(head.type);
  out.put(static_cast<std::uint8_t>(head.sq_sig_all));
  out.put(static_cast<std::uint16_t>(head.block_multicast_loopback));
}

bool parse(wire::ByteReader& in, QpHead* out) {
  out->pd = in.get<std::uint32_t>();
  out->send_cq = in.get<std::uint32_t>();
  out->recv_cq = in.get<std::uint32_t>();
  out->srq = in.get<std::uint32_t>();
  out->xrcd = in.get<std::uint32_t>();
  out->virtual_qpn = in.get<std::uint32_t>();
  out->wire_qpn = in.get<std::uint32_t>();
  out->cap.max_send_wr = in.get<std::uint32_t>();
  out->cap.max_recv_wr = in.get<std::uint32_t>();
  out->cap.max_send_sge = in.get<std::uint32_t>();
  out->cap.max_recv_sge = in.get<std::uint32_t>();
  out->cap.max_inline_data = in.get<std::uint32_t>();
  out->type = in.get<std::uint8_t>();
  out->sq_sig_all = in.get<std::uint8_t>() != 0;
  const auto flags = in.get<std::uint16_t>();
  out->block_multicast_loopback = flags == 1;
  return in.ok() && flags <= (out->type == IBV_QPT_UD ? 1 : 0) && out->virtual_qpn <= 0xFFFFFF;
}

void encode(const ibv_qp_attr& a, wire::ByteWriter& out) {
  out.put(static_cast<std::uint32_t>(a.qp_access_flags));
  out.put(std::uint32_t{a.dest_qp_num});
  out.put(std::uint32_t{a.rq_psn});
  out.put(std::uint32_t{a.sq_psn});
  put(a.ah_attr, out);
  out.put(static_cast<std::uint8_t>(a.path_mtu));
  out.put(a.port_num);
  out.put(std::uint16_t{a.pkey_index});
  out.put(a.timeout);
  out.put(a.retry_cnt);
  out.put(a.rnr_retry);
  out.put(a.min_rnr_timer);
  out.put(a.max_rd_atomic);
  out.put(a.max_dest_rd_atomic);
}

bool parse(wire::ByteReader& in, ibv_qp_attr* a) {
  *a = {};
  a->qp_access_flags = in.get<std::uint32_t>();
  a->dest_qp_num = in.get<std::uint32_t>();
  a->rq_psn = in.get<std::uint32_t>();
  a->sq_psn = in.get<std::uint32_t>();
  get(in, &a->ah_attr);
  const auto mtu = in.get<std::uint8_t>();  // 0: not set yet
  if (mtu > IBV_MTU_4096) {
    in.fail();
  } else {
    a->path_mtu = static_cast<ibv_mtu>(mtu);
  }
  a->port_num = in.get<std::uint8_t>();
  a->pkey_index = in.get<std::uint16_t>();
  a->timeout = in.get<std::uint8_t>();
  a->retry_cnt = in.get<std::uint8_t>();
  a->rnr_retry = in.get<std::uint8_t>();
  a->min_rnr_timer = in.get<std::uint8_t>();
  a->max_rd_atomic = in.get<std::uint8_t>();
  a->max_dest_rd_atomic = in.get<std::uint8_t>();
  return in.ok();
}

}  // namespace ferry::device
