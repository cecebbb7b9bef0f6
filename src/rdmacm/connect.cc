#include <errno.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>

#include "rdmacm/service.h"

// Connecting, accepting, disconnecting; the attributes of the QP; multicast groups.
namespace ferry::rdmacm {
namespace {

constexpr std::uint8_t kMaxRetry = 7;  // 3 bits
// A route's packet lifetime, as a code: 4.096 µs · 2^16 is 0.27 s; the QP's timeout is twice that.
constexpr std::uint8_t kPacketLifeTime = 16;

std::span<const std::byte> private_data(const void* data, std::size_t size) {
  return {static_cast<const std::byte*>(data), size};
}

std::optional<cm::Transport> transport_of(std::uint8_t qp_type) {
  switch (qp_type) {
    case IBV_QPT_RC: return cm::Transport::kRc;
    case IBV_QPT_UC: return cm::Transport::kUc;
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV: return cm::Transport::kXrc;
    default: return std::nullopt;
  }
}

// The IP header of annex A11, then what the program says. EINVAL when it does not fit.
template <std::size_t N>
int fill(const Id& id, const port::Address& source, const rdma_ucm_conn_param& p,
         cm::Private<N>* out) {
  if (p.private_data_len > N - cm::kIpHeaderSize) return EINVAL;
  cm::encode(cm::IpHeader{id.source.port, source, id.destination.ip}, *out);
  std::memcpy(out->data() + cm::kIpHeaderSize, p.private_data, p.private_data_len);
  return 0;
}

}  // namespace

port::Address Service::gid(const Id& id) {
  return sockets_.current(id.source.ip, id.device.netdev);
}

std::uint8_t Service::route_ack_timeout(const Id& id) const {
  return id.ack_timeout != 0 ? id.ack_timeout : kPacketLifeTime + 1;
}

int Service::connect(Id& id, const rdma_ucm_conn_param& p) {
  if (!p.valid) return EINVAL;
  if (id.state != Id::State::kRouteResolved) return EINVAL;
  if (const int error = start_manager(); error != 0) return error;
  const port::Address from = gid(id);
  const cm::ServiceId service = cm::service_id(id.port_space, id.destination.port);
  if (is_datagram(id)) {
    cm::SidrReq req;
    req.service_id = service;
    if (const int error = fill(id, from, p, &req.data); error != 0) return error;
    id.comm = manager_->resolve(req, from, id.destination.ip, now());
  } else {
    const auto transport = transport_of(id.qp_type);
    if (!transport) return EINVAL;
    id.qpn = p.qp_num & 0xFFFFFF;
    Devices::QpPlace place{id.qpn, {}};
    devices_.find_qp(id.device, id.qpn, &place);
    cm::Req req;
    if (const int error = fill(id, from, p, &req.data); error != 0) return error;
    req.service_id = service;
    req.guid = id.device.guid;
    req.qpn = place.wire_qpn;
    req.responder_resources = p.responder_resources;
    req.initiator_depth = p.initiator_depth;
    req.transport = *transport;
    req.flow_control = p.flow_control != 0;
    req.srq = p.srq != 0;
    req.psn = id.psn;
    req.retry_count = std::min(p.retry_count, kMaxRetry);
    req.rnr_retry = std::min(p.rnr_retry_count, kMaxRetry);
    req.mtu = devices_.active_mtu(id.device);
    req.path.local = from;
    req.path.remote = id.destination.ip;
    req.path.traffic_class = id.traffic_class;
    req.path.hop_limit = kHopLimit;
    req.path.rate = IBV_RATE_100_GBPS;
    req.path.ack_timeout = route_ack_timeout(id);
    id.comm = manager_->connect(req, from, id.destination.ip, now());
    devices_.peer_was_told(id.device, id.qpn,
                           {req.path.ack_timeout, req.retry_count, req.rnr_retry});
  }
  if (id.comm == 0) return ENOMEM;
  id.state = Id::State::kConnecting;
  return 0;
}

int Service::accept(Id& id, const rdma_ucm_accept& c) {
  if (!manager_ || id.comm == 0) return EINVAL;
  const rdma_ucm_conn_param& p = c.conn_param;
  if (!p.valid) {
    // The active side has taken the reply.
    return is_datagram(id)
               ? manager_->answer_sidr(id.comm, cm::SidrStatus::kRejected, 0, 0, {}, now())
               : manager_->establish(id.comm, now());
  }
  id.qpn = p.qp_num & 0xFFFFFF;
  // The peer is given a QPN of the slot that belongs to the address by which it knows this side. At
  // the present address that is the wire QPN. A peer that was redirected from the former address
  // is given the virtual QPN, of the name for life.
  Devices::QpPlace place{id.qpn, {}};
  if (gid(id) == id.source.ip) devices_.find_qp(id.device, id.qpn, &place);
  int error = 0;
  if (is_datagram(id)) {
    if (p.private_data_len > sizeof(cm::SidrRep::data)) return EINVAL;
    error = manager_->answer_sidr(id.comm, cm::SidrStatus::kValid, place.wire_qpn,
                                  p.qkey != 0 ? p.qkey : kUdpQkey,
                                  private_data(p.private_data, p.private_data_len), now());
  } else {
    if (p.private_data_len > sizeof(cm::Rep::data)) return EINVAL;
    cm::Reply reply;
    reply.qpn = place.wire_qpn;
    reply.psn = id.psn;
    reply.responder_resources = p.responder_resources;
    reply.initiator_depth = p.initiator_depth;
    reply.flow_control = p.flow_control != 0;
    reply.srq = p.srq != 0;
    reply.rnr_retry = std::min(p.rnr_retry_count, kMaxRetry);
    reply.guid = id.device.guid;
    reply.data = private_data(p.private_data, p.private_data_len);
    error = manager_->accept(id.comm, reply, now());
    // The peer's timeout and retry count are those of its own request: both sides use them.
    const cm::Connection* const connection = manager_->find(id.comm);
    if (error == 0 && connection != nullptr) {
      devices_.peer_was_told(
          id.device, id.qpn,
          {connection->path.ack_timeout, connection->retry_count, reply.rnr_retry});
    }
  }
  if (error == 0) id.uid = c.uid;
  return error;
}

int Service::reject(Id& id, const rdma_ucm_reject& c) {
  if (!manager_ || id.comm == 0) return EINVAL;
  const auto reason = c.reason != 0 ? static_cast<cm::Reason>(c.reason) : cm::Reason::kConsumer;
  constexpr auto kOptionNotSupported = static_cast<cm::Reason>(35);
  if (reason != cm::Reason::kConsumer && reason != kOptionNotSupported) return EINVAL;
  const auto data = private_data(c.private_data, c.private_data_len);
  if (is_datagram(id)) {
    if (data.size() > sizeof(cm::SidrRep::data)) return EINVAL;
    return manager_->answer_sidr(id.comm, cm::SidrStatus::kRejected, 0, 0, data, now());
  }
  if (data.size() > sizeof(cm::Rej::data)) return EINVAL;
  return manager_->reject(id.comm, reason, data, now());
}

// Succeeds also for a connection that is not up: it is disconnected already.
int Service::disconnect(Id& id) {
  if (!manager_ || id.comm == 0) return EINVAL;
  refresh(id);
  manager_->disconnect(id.comm, now());
  return 0;
}

// --- The QP

ib_uverbs_ah_attr Service::address_handle(const Id& id, const port::Address& remote) {
  ib_uverbs_ah_attr a{};
  std::memcpy(a.grh.dgid, remote.bytes.data(), sizeof a.grh.dgid);
  a.grh.sgid_index = devices_.gid_index(id.device, id.source.ip);
  a.grh.hop_limit = kHopLimit;
  a.grh.traffic_class = id.traffic_class;
  a.is_global = 1;
  a.port_num = 1;
  return a;
}

// Gives those attributes of clause 12.9.7 and 11.2.5.2 that the CM knows and that the QP needs to
// go to the state `c.qp_state`.
int Service::init_qp_attributes(Id& id, const rdma_ucm_init_qp_attr& c) {
  if (id.device.guid == 0) return EINVAL;
  ib_uverbs_qp_attr a{};
  a.qp_state = c.qp_state;
  const cm::Connection* connection =
      manager_ && id.comm != 0 && !is_datagram(id) ? manager_->find(id.comm) : nullptr;
  if (connection == nullptr || c.qp_state == IBV_QPS_INIT) {
    if (connection == nullptr && c.qp_state != IBV_QPS_INIT) return EINVAL;
    a.port_num = 1;
    a.qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (is_datagram(id)) {
      a.qkey = kUdpQkey;
      a.qp_attr_mask |= IBV_QP_QKEY;
    } else {
      a.qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
      if (connection != nullptr) {
        a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        if (connection->responder_resources > 0)
          a.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
      }
    }
    respond(c.response, a);
    return 0;
  }
  const bool known = connection->state == cm::State::kReqReceived ||
                     connection->state == cm::State::kRepReceived ||
                     connection->state == cm::State::kRepSent ||
                     connection->state == cm::State::kEstablished;
  if (!known) return EINVAL;
  const bool acknowledged = connection->transport != cm::Transport::kUc;
  if (c.qp_state == IBV_QPS_RTR) {
    a.qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    a.ah_attr = address_handle(id, connection->path.remote);
    a.ah_attr.grh.traffic_class = connection->path.traffic_class;
    a.path_mtu = connection->mtu;
    a.dest_qp_num = connection->remote_qpn;
    a.rq_psn = id.psn;
    if (acknowledged && id.qp_type != IBV_QPT_XRC_SEND) {
      a.qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
      a.max_dest_rd_atomic = connection->responder_resources;
    }
  } else if (c.qp_state == IBV_QPS_RTS) {
    a.qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    a.sq_psn = connection->sq_psn;
    if (acknowledged) {
      a.qp_attr_mask |= IBV_QP_TIMEOUT;
      a.timeout = id.ack_timeout != 0 ? id.ack_timeout : connection->path.ack_timeout;
      if (id.qp_type != IBV_QPT_XRC_RECV) {
        a.qp_attr_mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        a.retry_cnt = connection->retry_count;
        a.rnr_retry = connection->rnr_retry;
        a.max_rd_atomic = connection->initiator_depth;
      }
    }
  } else {
    return EINVAL;
  }
  respond(c.response, a);
  return 0;
}

// --- Multicast: RoCE has no subnet administrator to ask. The GID of a group is its IP address
// (annex A17.4.6), and whoever knows it is a member.

int Service::join(Id& id, std::uint64_t response, std::uint64_t uid, const Address& group) {
  if (!is_datagram(id) || !group.is_multicast() || group.family == kAfIb) return EINVAL;
  if (id.device.guid == 0) return EINVAL;
  for (const auto& [handle, joined] : id.groups) {
    if (joined.address.ip == group.ip) return EADDRINUSE;
  }
  std::uint32_t handle = 1;
  while (groups_.contains(handle)) ++handle;
  groups_[handle] = id.handle;
  id.groups[handle] = {uid, group, 0};
  respond(response, rdma_ucm_create_id_resp{handle});
  QueuedEvent joined;
  joined.id = id.handle;
  joined.group = handle;
  joined.response.uid = uid;
  joined.response.id = handle;
  joined.response.event = event::kMulticastJoin;
  joined.response.param.ud.qp_num = 0xFFFFFF;
  joined.response.param.ud.qkey = kUdpQkey;
  joined.response.param.ud.ah_attr = address_handle(id, group.ip);
  id.channel->push(joined);
  return 0;
}

int Service::leave_group(const rdma_ucm_destroy_id& c, const Channel& channel) {
  const auto owner = groups_.find(c.id);
  Id* id = owner != groups_.end() ? find(owner->second, channel) : nullptr;
  if (id == nullptr) return ENOENT;
  id->channel->withdraw([&](const QueuedEvent& e) { return e.group == c.id; });
  respond(c.response, rdma_ucm_destroy_id_resp{id->groups[c.id].events_reported});
  id->groups.erase(c.id);
  groups_.erase(owner);
  return 0;
}

}  // namespace ferry::rdmacm
