#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>

#include "rdmacm/service.h"

// What a program may ask of an ID: addresses, GIDs, the path.
namespace ferry::rdmacm {
namespace {

constexpr std::uint16_t kPkey = 0xFFFF;
constexpr std::uint32_t kNoIndex = ~0u;
constexpr std::uint8_t kExactly = 2;  // of the selectors of a path record (clause 15.2.5.16)

// A path record as on the wire (clause 15.2.5.16).
struct PathRecord {
  std::uint64_t service_id;
  std::uint8_t dgid[16], sgid[16];
  std::uint16_t dlid, slid;
  std::uint32_t flow_label_hop_limit;
  std::uint8_t traffic_class, reversible_path_count;
  std::uint16_t pkey, qos_class_sl;
  std::uint8_t mtu, rate, packet_life_time, preference;
  std::uint8_t reserved[6];
};
static_assert(sizeof(PathRecord) == sizeof(ib_path_rec_data::path_rec));

bool has_route(const Id& id) {
  return id.state == Id::State::kRouteResolved || id.state == Id::State::kConnecting ||
         id.state == Id::State::kDisconnected;
}

}  // namespace

int Service::query_route(const Id& id, std::uint64_t response, std::size_t size) {
  rdma_ucm_query_route_resp r{};
  id.source.store(&r.src_addr);
  id.destination.store(&r.dst_addr);
  if (id.device.guid != 0) {
    r.node_guid = htobe64(id.device.guid);
    r.port_num = 1;
    r.num_paths = has_route(id);
    ib_user_path_rec& path = r.ib_route[0];
    std::memcpy(path.sgid, id.source.ip.bytes.data(), sizeof path.sgid);
    std::memcpy(path.dgid, id.destination.ip.bytes.data(), sizeof path.dgid);
    path.pkey = htobe16(kPkey);
    path.reversible = 1;
    path.numb_path = 1;
    path.hop_limit = kHopLimit;
    path.traffic_class = id.traffic_class;
    path.mtu_selector = path.rate_selector = path.packet_life_time_selector = kExactly;
    path.mtu = devices_.active_mtu(id.device);
    path.rate = IBV_RATE_100_GBPS;
    path.packet_life_time = static_cast<std::uint8_t>(route_ack_timeout(id) - 1);
  }
  r.ibdev_index = kNoIndex;
  respond(response, r, size);
  return 0;
}

int Service::query(const Id& id, const rdma_ucm_query& c, std::size_t size) {
  if (c.option == RDMA_USER_CM_QUERY_PATH) {
    struct {
      std::uint32_t num_paths, reserved;  // rdma_ucm_query_path_resp
      ib_path_rec_data data;
    } r{};
    constexpr std::size_t kHead = sizeof(rdma_ucm_query_path_resp);
    r.num_paths = has_route(id) && size >= sizeof r;
    r.data.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
    PathRecord path{};
    std::memcpy(path.dgid, id.destination.ip.bytes.data(), sizeof path.dgid);
    std::memcpy(path.sgid, id.source.ip.bytes.data(), sizeof path.sgid);
    path.flow_label_hop_limit = htobe32(kHopLimit);
    path.traffic_class = id.traffic_class;
    path.reversible_path_count = 0x80 | 1;
    path.pkey = htobe16(kPkey);
    constexpr std::uint8_t kSelector = kExactly << 6;
    path.mtu = kSelector | devices_.active_mtu(id.device);
    path.rate = kSelector | IBV_RATE_100_GBPS;
    path.packet_life_time = kSelector | static_cast<std::uint8_t>(route_ack_timeout(id) - 1);
    std::memcpy(r.data.path_rec, &path, sizeof path);
    respond(c.response, r, std::min(size, r.num_paths != 0 ? sizeof r : kHead));
    return 0;
  }
  if (c.option != RDMA_USER_CM_QUERY_ADDR && c.option != RDMA_USER_CM_QUERY_GID) return ENOSYS;
  rdma_ucm_query_addr_resp r{};
  r.pkey = kPkey;
  if (id.device.guid != 0) {
    r.node_guid = htobe64(id.device.guid);
    r.port_num = 1;
  }
  r.ibdev_index = kNoIndex;
  Address source = id.source, destination = id.destination;
  if (c.option == RDMA_USER_CM_QUERY_GID) {
    for (Address* address : {&source, &destination}) {
      address->ib_service_id = cm::service_id(id.port_space, address->port);
      address->family = kAfIb;
    }
  }
  r.src_size = static_cast<std::uint16_t>(source.size());
  r.dst_size = static_cast<std::uint16_t>(destination.size());
  source.store(&r.src_addr);
  destination.store(&r.dst_addr);
  respond(c.response, r, size);
  return 0;
}

}  // namespace ferry::rdmacm
