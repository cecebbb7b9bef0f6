#include "rnic/attributes.h"

#include <endian.h>

#include <cerrno>
#include <cstring>

#include "rnic/context.h"
#include "rnic/system/link.h"

// What the RNIC says of itself (ibv_query_device, ibv_query_port, ibv_query_gid, ibv_query_pkey).
namespace ferry::rnic {
namespace {

constexpr std::uint8_t kPorts = 1;
// 4.096 us * 2^15 = 134 ms: the progress thread of a busy host may need that long to answer.
constexpr std::uint8_t kAckDelay = 15;
// We have no OUI. rdma_rxe, which has none either, uses the same value; programs take 0 for no
// device.
constexpr std::uint32_t kVendor = 0xFFFFFF, kPart = 1, kHardware = 1;
constexpr std::uint64_t kClockKhz = 1'000'000;  // Context::clock() counts nanoseconds

}  // namespace

void describe_port(const Netdev& netdev, std::uint32_t max_mtu, std::size_t gids,
                   ibv_port_attr* out) {
  *out = {};
  describe_link(netdev.name, out);
  out->max_mtu = IBV_MTU_4096;
  out->active_mtu = mtu_code(max_mtu);
  out->gid_tbl_len = static_cast<int>(gids);
  out->max_msg_sz = static_cast<std::uint32_t>(transport::kMaxMessage);
  out->pkey_tbl_len = 1;
  out->max_vl_num = 1;
  out->link_layer = IBV_LINK_LAYER_ETHERNET;
  out->flags = IBV_QPF_GRH_REQUIRED;
}

void describe_gid(const Netdev& netdev, const port::Address& address, unsigned index,
                  ibv_gid_entry* out) {
  *out = {};
  std::memcpy(out->gid.raw, address.bytes.data(), sizeof out->gid.raw);
  out->gid_index = index;
  out->port_num = 1;
  out->gid_type = IBV_GID_TYPE_ROCE_V2;
  out->ndev_ifindex = netdev.index;
}

int Context::query_device(ibv_device_attr_ex* out) {
  if (engine_.abandoned()) return ENODEV;
  *out = {};
  ibv_device_attr& a = out->orig_attr;
  std::strncpy(a.fw_ver, FERRY_RELEASE, sizeof a.fw_ver - 1);
  a.vendor_id = kVendor;
  a.vendor_part_id = kPart;
  a.hw_ver = kHardware;
  a.node_guid = htobe64(guid_);
  a.sys_image_guid = a.node_guid;
  a.max_mr_size = ~std::uint64_t{0};
  a.page_size_cap = 0xFFFFF000;
  a.max_qp = QpTable::kMaxQps;
  a.max_qp_wr = QueuePair::kMaxWr;
  a.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID |
                       IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_N_NOTIFY_CQ |
                       IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW |
                       IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC |
                       IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_PORT_ACTIVE_EVENT;
  a.max_sge = QueuePair::kMaxSge;
  a.max_sge_rd = QueuePair::kMaxSge;
  a.max_cq = kMaxCqs;
  a.max_cqe = CompletionQueue::kMaxEntries;
  a.max_mr = MemoryTable::kMaxRegions;
  a.max_pd = kMaxPds;
  a.max_qp_rd_atom = QueuePair::kMaxRdAtomic;
  a.max_res_rd_atom = static_cast<int>(QueuePair::kMaxRdAtomic * QpTable::kMaxQps);
  a.max_qp_init_rd_atom = QueuePair::kMaxRdAtomic;
  // Atomics are the processor's own instructions, so IBV_ATOMIC_GLOB would be true as well; but UCX
  // looks for IBV_ATOMIC_HCA, which all RNICs report.
  a.atomic_cap = IBV_ATOMIC_HCA;
  a.max_ah = kMaxAhs;
  a.max_mcast_grp = MulticastGroups::kMaxGroups;
  a.max_mcast_qp_attach = MulticastGroups::kMaxMembers;
  a.max_total_mcast_qp_attach = MulticastGroups::kMaxGroups * MulticastGroups::kMaxMembers;
  a.max_mw = MemoryTable::kMaxWindows;
  a.max_srq = kMaxSrqs;
  a.max_srq_wr = SharedReceiveQueue::kMaxWr;
  a.max_srq_sge = SharedReceiveQueue::kMaxSge;
  a.max_pkeys = 1;
  a.local_ca_ack_delay = kAckDelay;
  a.phys_port_cnt = kPorts;
  out->phys_port_cnt_ex = kPorts;
  out->packet_pacing_caps = {
      1, Pacer::kMaxRate,
      1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD | 1u << IBV_QPT_XRC_SEND};
  out->cq_mod_caps = {CompletionQueue::kMaxModeration, CompletionQueue::kMaxModeration};
  out->device_cap_flags_ex =
      a.device_cap_flags | device::kDeviceFlushGlobal | device::kDeviceAtomicWrite;
  out->completion_timestamp_mask = ~std::uint64_t{0};
  out->hca_core_clock = kClockKhz;
  // No memory of a program is ever pinned: every region is on demand.
  constexpr std::uint32_t kOnDemand = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
                                      IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
                                      IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
  out->odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  out->odp_caps.per_transport_caps.rc_odp_caps = kOnDemand;
  out->odp_caps.per_transport_caps.uc_odp_caps =
      kOnDemand & ~(IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV);
  out->odp_caps.per_transport_caps.ud_odp_caps =
      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
  out->xrc_odp_caps = kOnDemand;
  return 0;
}

int Context::query_port(std::uint8_t port_number, ibv_port_attr* out) {
  if (engine_.abandoned()) return ENODEV;
  if (port_number != 1) return EINVAL;
  describe_port(netdev_, max_mtu_, engine_.lanes().gids().size(), out);
  return 0;
}

int Context::query_gid(std::uint8_t port_number, unsigned index, ibv_gid_entry* out) {
  if (engine_.abandoned()) return ENODEV;
  if (port_number != 1) return EINVAL;
  const auto& gids = engine_.lanes().gids();
  if (index >= gids.size()) return EINVAL;
  describe_gid(netdev_, gids[index], index, out);
  return 0;
}

int Context::query_pkey(std::uint8_t port_number, int index, std::uint16_t* out) {
  if (engine_.abandoned()) return ENODEV;
  if (port_number != 1 || index != 0) return EINVAL;
  *out = 0xFFFF;
  return 0;
}

}  // namespace ferry::rnic
