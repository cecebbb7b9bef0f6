#include "rnic/records.h"

#include <cstring>

namespace ferry::rnic {
namespace {

bool finished(const wire::ByteReader& in) {
  return in.ok() && in.remaining() == 0;
}

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

void encode(const ContextRecord& record, wire::ByteWriter& out) {
  out.put(record.origin_slot);
  out.put(record.next_handle);
  out.put(record.guid);
  out.put(record.max_mtu);
  out.put(static_cast<std::uint32_t>(record.gids.size()));
  for (const port::Address& gid : record.gids) out.append(gid.bytes.data(), gid.bytes.size());
}

bool parse(std::span<const std::byte> body, ContextRecord* out) {
  wire::ByteReader in(body);
  out->origin_slot = in.get<std::uint32_t>();
  out->next_handle = in.get<std::uint32_t>();
  out->guid = in.get<std::uint64_t>();
  out->max_mtu = in.get<std::uint32_t>();
  const auto count = in.get<std::uint32_t>();
  if (!in.ok() || count == 0 || count > kLanes || out->origin_slot > port::kMaxSlot) return false;
  if (out->max_mtu < 256 || out->max_mtu > 4096 || (out->max_mtu & (out->max_mtu - 1)) != 0) {
    return false;
  }
  out->gids.resize(count);
  for (port::Address& gid : out->gids) in.read(gid.bytes.data(), gid.bytes.size());
  return finished(in);
}

void encode(const MrRecord& record, wire::ByteWriter& out) {
  out.put(record.pd);
  out.put(record.key);
  out.put(record.address);
  out.put(record.length);
  out.put(record.iova);
  out.put(record.access);
}

bool parse(std::span<const std::byte> body, MrRecord* out) {
  wire::ByteReader in(body);
  out->pd = in.get<std::uint32_t>();
  out->key = in.get<std::uint32_t>();
  out->address = in.get<std::uint64_t>();
  out->length = in.get<std::uint64_t>();
  out->iova = in.get<std::uint64_t>();
  out->access = in.get<std::uint32_t>();
  const bool is_null = (out->access & kNullRegion) != 0;
  return finished(in) && (!is_null || (out->access == kNullRegion && out->address == 0 &&
                                       out->length == 0 && out->iova == 0));
}

void encode(const CqRecord& record, wire::ByteWriter& out) {
  out.put(record.capacity);
  out.put(record.contents.armed);
  out.put(static_cast<std::uint8_t>(record.contents.overflowed));
  out.put(static_cast<std::uint8_t>(record.timestamps));
  out.put(static_cast<std::uint8_t>(record.ignore_overrun));
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
  out->capacity = in.get<std::uint32_t>();
  const auto armed = in.get<std::uint8_t>();
  out->contents.overflowed = in.get<std::uint8_t>() != 0;
  out->timestamps = in.get<std::uint8_t>() != 0;
  out->ignore_overrun = in.get<std::uint8_t>() != 0;
  const auto count = in.get<std::uint32_t>();
  constexpr std::size_t kModeration = 4;
  const std::size_t waiting = std::size_t{count} * (out->timestamps ? 48 : 32);
  if (!in.ok() || armed > 2 || out->capacity == 0 ||
      out->capacity > static_cast<std::uint32_t>(CompletionQueue::kMaxEntries) ||
      count > out->capacity ||
      (in.remaining() != waiting && in.remaining() != waiting + kModeration)) {
    return false;
  }
  const bool moderated = in.remaining() != waiting;
  out->contents.armed = static_cast<CompletionQueue::Armed>(armed);
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

void encode(const MwRecord& record, wire::ByteWriter& out) {
  out.put(record.pd);
  out.put(record.key);
  out.put(record.posted_key);
  out.put(record.type);
  out.put(record.region);
  out.put(record.qp);
  out.put(record.address);
  out.put(record.length);
  out.put(record.iova);
  out.put(record.access);
}

bool parse(std::span<const std::byte> body, MwRecord* out) {
  wire::ByteReader in(body);
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
  return finished(in) && (type_2 || out->type == IBV_MW_TYPE_1) &&
         out->posted_key >> 8 == out->key >> 8 && (out->qp != 0) == (type_2 && out->region != 0);
}

void encode(const AhRecord& record, wire::ByteWriter& out) {
  out.put(record.pd);
  put(record.attributes, out);
}

bool parse(std::span<const std::byte> body, AhRecord* out) {
  wire::ByteReader in(body);
  out->pd = in.get<std::uint32_t>();
  get(in, &out->attributes);
  return finished(in) && out->pd != 0;
}

void encode(const SrqRecord& record, wire::ByteWriter& out) {
  out.put(record.pd);
  out.put(record.xrcd);
  out.put(record.cq);
  out.put(record.number);
  out.put(record.max_wr);
  out.put(record.max_sge);
}

bool parse(std::span<const std::byte> body, SrqRecord* out) {
  wire::ByteReader in(body);
  out->pd = in.get<std::uint32_t>();
  out->xrcd = in.get<std::uint32_t>();
  out->cq = in.get<std::uint32_t>();
  out->number = in.get<std::uint32_t>();
  out->max_wr = in.get<std::uint32_t>();
  out->max_sge = in.get<std::uint32_t>();
  out->state = in.take(in.remaining());
  const bool is_xrc = out->xrcd != 0;
  return in.ok() && is_xrc == (out->cq != 0) && is_xrc == (out->number != 0) &&
         out->number <= 0xFFFFFF && out->max_wr >= 1 && out->max_wr <= SharedReceiveQueue::kMaxWr &&
         out->max_sge >= 1 && out->max_sge <= SharedReceiveQueue::kMaxSge;
}

void encode(const QpRecord& record, wire::ByteWriter& out) {
  out.put(record.pd);
  out.put(record.send_cq);
  out.put(record.recv_cq);
  out.put(record.srq);
  out.put(record.xrcd);
  out.put(record.virtual_qpn);
  out.put(record.wire_qpn);
  out.put(record.cap.max_send_wr);
  out.put(record.cap.max_recv_wr);
  out.put(record.cap.max_send_sge);
  out.put(record.cap.max_recv_sge);
  out.put(record.cap.max_inline_data);
  out.put(record.type);
  out.put(static_cast<std::uint8_t>(record.sq_sig_all));
  out.put(static_cast<std::uint16_t>(record.block_multicast_loopback));
}

bool parse(std::span<const std::byte> body, QpRecord* out) {
  wire::ByteReader in(body);
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
  out->state = in.take(in.remaining());
  // What was granted once is granted again as it is; so a wrong capacity is refused here.
  const ibv_qp_cap saved = out->cap;
  return in.ok() && flags <= (out->type == IBV_QPT_UD ? 1 : 0) && out->virtual_qpn <= 0xFFFFFF &&
         port::index_of(out->virtual_qpn) >= port::kReservedIndices &&
         port::index_of(out->virtual_qpn) == port::index_of(out->wire_qpn) &&
         QueuePair::grant(static_cast<ibv_qp_type>(out->type), out->srq != 0, &out->cap) == 0 &&
         std::memcmp(&saved, &out->cap, sizeof saved) == 0;
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

void parse(wire::ByteReader& in, ibv_qp_attr* a) {
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
}

}  // namespace ferry::rnic
