#include <endian.h>
#include <netinet/in.h>
#include <netinet/ip.h>

#include <cstring>

#include "verbs/entry.h"
#include "verbs/neighbour.h"
#include "verbs/objects.h"
#include "verbs/stock.h"

namespace ferry::verbs {
namespace {

// A received datagram begins with 40 bytes that tell where it came from (annex A17.4.5.2): an IPv6
// header, or 20 bytes of any content and an IPv4 header.
constexpr std::size_t kIpv4At = 20;
constexpr std::size_t kIpv4HeaderWords = 5;  // of 32 bits: options are not allowed in RoCEv2
static_assert(kIpv4At + sizeof(iphdr) == sizeof(ibv_grh));

constexpr std::chrono::milliseconds kResolveLimit{3000};  // as the stock library waits

std::uint16_t checksum(const iphdr& header) {
  std::uint16_t halves[sizeof header / 2];
  std::memcpy(halves, &header, sizeof header);
  std::uint32_t sum = 0;
  for (std::uint16_t half : halves) sum += half;
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

// The bytes in front of an IPv4 header can look like an IPv6 header: then the IPv4 checksum
// decides.
bool is_ipv4(const iphdr& ipv4, std::uint32_t first_word) {
  if (ipv4.version != 4 || ipv4.ihl != kIpv4HeaderWords) return false;
  return first_word >> 28 != 6 || checksum(ipv4) == 0xffff;
}

ibv_gid mapped(std::uint32_t address) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(gid.raw + 12, &address, sizeof address);
  return gid;
}

// The index of one of our own GIDs, or -1.
int find_gid(Context& context, std::uint8_t port, const ibv_gid& gid) {
  ibv_gid_entry entry;
  for (unsigned i = 0; i <= UINT8_MAX; ++i) {
    const int error = context.device->query_gid(port, i, &entry);
    if (error == ENODATA) continue;  // an empty entry, before others
    if (error) break;
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && !std::memcmp(&entry.gid, &gid, sizeof gid))
      return static_cast<int>(i);
  }
  return -1;
}

// Gives in *out where an answer to this datagram goes. 0 or errno.
int answer_to(Context& context, std::uint8_t port, const ibv_wc& wc, const ibv_grh* grh,
              ibv_ah_attr* out) {
  if (int error = usable(context)) return error;
  *out = {};
  out->dlid = wc.slid;
  out->sl = wc.sl;
  out->src_path_bits = wc.dlid_path_bits;
  out->port_num = port;
  if (!(wc.wc_flags & IBV_WC_GRH)) return 0;
  if (!grh) return EINVAL;
  out->is_global = 1;
  iphdr ipv4;
  std::memcpy(&ipv4, reinterpret_cast<const std::byte*>(grh) + kIpv4At, sizeof ipv4);
  const std::uint32_t first_word = be32toh(grh->version_tclass_flow);
  ibv_gid local;
  if (is_ipv4(ipv4, first_word)) {
    local = mapped(ipv4.daddr);
    out->grh.dgid = mapped(ipv4.saddr);
    out->grh.hop_limit = ipv4.ttl;
    out->grh.traffic_class = ipv4.tos;
  } else {
    if (first_word >> 28 != 6 || grh->next_hdr != IPPROTO_UDP) return EPROTONOSUPPORT;
    local = grh->dgid;
    out->grh.dgid = grh->sgid;
    out->grh.hop_limit = grh->hop_limit;
    out->grh.traffic_class = static_cast<std::uint8_t>(first_word >> 20);
    out->grh.flow_label = first_word & 0xfffff;
  }
  // The destination of a multicast datagram is none of our GIDs, and does not tell from which of
  // them to answer.
  const int index = find_gid(context, port, local);
  if (index < 0) return EINVAL;
  out->grh.sgid_index = static_cast<std::uint8_t>(index);
  return 0;
}

int make_ah(Context& context, ibv_pd* pd, const ibv_ah_attr& attributes, ibv_ah** out) {
  if (int error = usable(context)) return error;
  if (!context.device->checks_requests()) {
    // RoCE routes by GID: without a GRH there is no destination (annex A17.4.5).
    if (!attributes.is_global) return EINVAL;
    ibv_gid_entry source;
    if (context.device->query_gid(attributes.port_num, attributes.grh.sgid_index, &source))
      return EINVAL;
  }
  device::Ah* device = nullptr;
  if (int error = context.device->create_ah(to_pd(pd)->device, attributes, &device)) return error;
  *out = &wrap_ah(context, pd, device)->ah;
  return 0;
}

}  // namespace

Ah* wrap_ah(Context& context, ibv_pd* pd, device::Ah* device) {
  return adopt<Ah>(context, device, [&](Ah& ah) {
    ah.ah.context = context.application();
    ah.ah.pd = pd;
    ah.ah.handle = device->handle();
    ah.device = device;
    device->cookie = &ah;
    ++to_pd(pd)->users;
  });
}

}  // namespace ferry::verbs

using namespace ferry::verbs;

FERRY_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  if (!pd || !attributes) return pointer_or_errno<ibv_ah>(EINVAL, nullptr);
  Context* ours = context_of(pd->context);
  if (!ours) return FERRY_STOCK(ibv_create_ah, "IBVERBS_1.1")(pd, attributes);
  ibv_ah* ah = nullptr;
  const int error = guarded([&] { return make_ah(*ours, pd, *attributes, &ah); });
  return pointer_or_errno(error, ah);
}

FERRY_EXPORT int ibv_destroy_ah(ibv_ah* ah) {
  if (!ah) return EINVAL;
  Context* ours = context_of(ah->context);
  if (!ours) return FERRY_STOCK(ibv_destroy_ah, "IBVERBS_1.1")(ah);
  return guarded([&] {
    if (int e = usable(*ours)) return e;
    if (int e = ours->device->destroy(to_ah(ah)->device)) return e;
    --to_pd(ah->pd)->users;
    delete to_ah(ah);
    return 0;
  });
}

FERRY_EXPORT int ibv_init_ah_from_wc(ibv_context* context, uint8_t port_num, ibv_wc* wc,
                                     ibv_grh* grh, ibv_ah_attr* attributes) {
  if (!context || !wc || !attributes) return minus_one_or_errno(EINVAL);
  Context* ours = context_of(context);
  if (!ours) {
    return FERRY_STOCK(ibv_init_ah_from_wc, "IBVERBS_1.1")(context, port_num, wc, grh, attributes);
  }
  return minus_one_or_errno(
      guarded([&] { return answer_to(*ours, port_num, *wc, grh, attributes); }));
}

FERRY_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port_num) {
  if (!pd || !wc) return pointer_or_errno<ibv_ah>(EINVAL, nullptr);
  Context* ours = context_of(pd->context);
  if (!ours) return FERRY_STOCK(ibv_create_ah_from_wc, "IBVERBS_1.1")(pd, wc, grh, port_num);
  ibv_ah* ah = nullptr;
  const int error = guarded([&] {
    ibv_ah_attr attributes;
    if (int e = answer_to(*ours, port_num, *wc, grh, &attributes)) return e;
    return make_ah(*ours, pd, attributes, &ah);
  });
  return pointer_or_errno(error, ah);
}

// Only programs call this: for our own sockets the kernel finds the way. Errors are negative errno values, as those of
// the stock function.
FERRY_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attributes,
                                             uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t* vid) {
  if (!context || !attributes || !eth_mac) return -EINVAL;
  Context* ours = context_of(context);
  if (!ours) {
    return FERRY_STOCK(ibv_resolve_eth_l2_from_gid, "IBVERBS_1.1")(context, attributes, eth_mac,
                                                                   vid);
  }
  return -guarded([&] {
    if (int e = usable(*ours)) return e;
    ibv_gid_entry source;
    if (ours->device->query_gid(attributes->port_num, attributes->grh.sgid_index, &source))
      return EINVAL;
    uint8_t mac[ETHERNET_LL_SIZE];
    uint16_t vlan;
    if (int e = resolve_mac(attributes->grh.dgid, kResolveLimit, mac, &vlan)) return e;
    std::memcpy(eth_mac, mac, sizeof mac);
    if (vid) *vid = vlan;
    return 0;
  });
}
