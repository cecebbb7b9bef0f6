#include "rnic/engine/qp/queue_pair.h"

#include <bit>
#include <cerrno>
#include <cstring>

#include "rnic/engine/engine.h"
#include "transport/connected/connection.h"

// A QP's life: creation, states and attributes.
namespace ferry::rnic {

static_assert(static_cast<int>(transport::QpState::kSqe) == IBV_QPS_SQE);
static_assert(static_cast<int>(transport::QpState::kError) == IBV_QPS_ERR);

namespace {

std::uint32_t power_of_two(std::uint32_t wanted) {
  return wanted == 0 ? 0 : std::bit_ceil(wanted);
}

transport::ConnectionType connection_type(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_XRC_SEND: return transport::ConnectionType::kXrcInitiator;
    case IBV_QPT_XRC_RECV: return transport::ConnectionType::kXrcTarget;
    case IBV_QPT_UC: return transport::ConnectionType::kUc;
    default: return transport::ConnectionType::kRc;
  }
}

transport::QueueLimits queue_limits(const QueuePair::Init& init) {
  const transport::ConnectionType type = connection_type(init.type);
  transport::QueueLimits limits{
      .max_send_wr = init.cap.max_send_wr,
      .max_send_sge = init.cap.max_send_sge,
      .max_inline = init.cap.max_inline_data,
      .shared_receive_queue = init.srq != nullptr || type != transport::ConnectionType::kRc,
      .type = type};
  if (init.srq != nullptr) {
    limits.max_receive_sge = init.srq->init().max_sge;
  } else if (type != transport::ConnectionType::kXrcTarget) {  // any XRC SRQ may serve a target
    limits.max_receive_sge = init.cap.max_recv_sge;
  }
  return limits;
}

std::unique_ptr<transport::Transport> make_transport(transport::Host& host, Engine& engine,
                                                     const QueuePair::Init& init) {
  if (init.type == IBV_QPT_UD) {
    return std::make_unique<transport::Datagram>(host, engine.locations(), queue_limits(init),
                                                 engine.settings().migration, init.virtual_qpn);
  }
  return std::make_unique<transport::Connection>(
      host, queue_limits(init), engine.settings().migration, init.virtual_qpn, init.wire_qpn);
}

}  // namespace

bool QueuePair::supports(ibv_qp_type type) {
  switch (raw(type)) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_UD:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV: return true;
    default: return false;
  }
}

bool QueuePair::Init::has_its_objects() const {
  if (type == IBV_QPT_XRC_RECV) return xrcd != nullptr && pd == nullptr && srq == nullptr;
  if (pd == nullptr || send_cq == nullptr || xrcd != nullptr) return false;
  if (type == IBV_QPT_XRC_SEND) return srq == nullptr;
  return recv_cq != nullptr && (srq == nullptr || srq->init().xrcd == nullptr);
}

int QueuePair::grant(ibv_qp_type type, bool has_srq, ibv_qp_cap* cap) {
  if (type == IBV_QPT_XRC_RECV) cap->max_send_wr = cap->max_send_sge = cap->max_inline_data = 0;
  if (type == IBV_QPT_XRC_RECV || type == IBV_QPT_XRC_SEND || has_srq) {
    cap->max_recv_wr = cap->max_recv_sge = 0;
  }
  if (cap->max_send_wr > kMaxWr || cap->max_recv_wr > kMaxWr || cap->max_send_sge > kMaxSge ||
      cap->max_recv_sge > kMaxSge || cap->max_inline_data > kMaxInline) {
    return EINVAL;
  }
  cap->max_send_wr = power_of_two(cap->max_send_wr);
  cap->max_recv_wr = power_of_two(cap->max_recv_wr);
  return 0;
}

QueuePair::QueuePair(Engine& engine, device::EventSink& sink, const AttributeLimits& limits,
                     const Init& init)
    : engine_(engine),
      sink_(sink),
      limits_(limits),
      init_(init),
      wire_qpn_(init.wire_qpn),
      receives_(init.cap.max_recv_wr, init.cap.max_recv_sge),
      transport_(make_transport(*this, engine, init)) {}

QueuePair::~QueuePair() {
  transport_->reset();
  forget();
  engine_.multicast().forget(this);
}

ibv_qp_state QueuePair::state() const {
  Engine::Lock lock(engine_);
  return static_cast<ibv_qp_state>(transport_->state());
}

void QueuePair::set_lane(Lane* lane) {
  if (lane_ != nullptr) --lane_->users;
  lane_ = lane;
  if (lane_ != nullptr && lane_->users++ == 0) engine_.thread_sleep().sockets_changed();
}

void QueuePair::drop_destination() {
  if (destination_ == nullptr) return;
  destination_->outstanding -= outstanding_;
  outstanding_ = 0;
  engine_.destinations().release(destination_);
  destination_ = nullptr;
}

// A peer that has sent without asking for an acknowledgement would ask for one later, wait, and
// take this QP for lost.
void QueuePair::say_farewell() {
  if (transport_->acknowledge_rest()) engine_.touch(this);
}

// Gives back what a QP uses, when it is reset or destroyed. A QP that is reset stays in its
// multicast groups (clause 11.3: only a detach ends that).
void QueuePair::forget() {
  drop_destination();
  set_lane(nullptr);
  set_all_lanes(false);
  receives_.clear();
  pacer_.set(0, 0);
  selected_srq_ = nullptr;
  if (init_.send_cq != nullptr) init_.send_cq->remove_qp(init_.virtual_qpn);
  if (init_.recv_cq != nullptr && init_.recv_cq != init_.send_cq) {
    init_.recv_cq->remove_qp(init_.virtual_qpn);
  }
}

int QueuePair::take_path(const ibv_qp_attr& merged, port::Endpoint* peer) {
  std::memcpy(peer->address.bytes.data(), merged.ah_attr.grh.dgid.raw, 16);
  // The QPN of a standard NIC does not tell a slot.
  peer->udp_port = engine_.settings().migration.enabled ? port::udp_port_of_qpn(merged.dest_qp_num)
                                                        : port::kRoceUdpPort;
  // The peer must be reached from the address that the GID index names.
  const std::size_t index = lane_of(peer->address);
  Lane& lane = engine_.lanes()[index];
  if (index != lane_of(engine_.lanes().gids()[merged.ah_attr.grh.sgid_index]) ||
      (lane.port == nullptr && !engine_.suspended())) {
    return EINVAL;
  }
  set_lane(&lane);
  // The QP's wire QPN may have another slot in this lane.
  if (!engine_.suspended()) wire_qpn_ = port::make_qpn(lane.slot, port::index_of(wire_qpn_));
  return 0;
}

int QueuePair::to_rtr(const ibv_qp_attr& merged, transport::Time now) {
  transport::RtrAttributes rtr;
  if (is_datagram()) {
    rtr.mtu = 128u << limits_.max_mtu;
    set_all_lanes(true);
    meet_strangers(now);
    transport_->to_rtr(rtr, now);
    return 0;
  }
  if (const int error = take_path(merged, &rtr.peer); error != 0) return error;
  rtr.peer_qpn = merged.dest_qp_num;
  rtr.mtu = 128u << merged.path_mtu;
  rtr.expected_psn = merged.rq_psn;
  rtr.max_dest_rd_atomic = merged.max_dest_rd_atomic;
  rtr.min_rnr_timer = merged.min_rnr_timer;
  if (!engine_.suspended()) resume(false, now);
  account(rtr.peer, 0);
  transport_->to_rtr(rtr, now);
  return 0;
}

int QueuePair::transition(ibv_qp_state from, ibv_qp_state to, const ibv_qp_attr& merged, int mask) {
  const transport::Time now = engine_.now();
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
    say_farewell();
    engine_.transmit(now);  // sends what was kept or held (PostGatherer, ReplyHabit)
    engine_.touch(this);
  }
  if (to == IBV_QPS_RESET) {
    transport_->reset();
    forget();
  } else if (to == IBV_QPS_ERR) {
    if (from != IBV_QPS_ERR) transport_->to_error(now);
  } else if (from == IBV_QPS_RESET) {
    transport_->init();
  } else if (to == IBV_QPS_RTR) {
    if (const int error = to_rtr(merged, now); error != 0) return error;
  } else if (from == IBV_QPS_RTR) {
    transport_->to_rts(
        {merged.sq_psn, merged.timeout, merged.retry_cnt, merged.rnr_retry, merged.max_rd_atomic},
        now);
  } else if (from == IBV_QPS_SQD && to == IBV_QPS_SQD) {
    if ((mask & IBV_QP_AV) != 0) {
      port::Endpoint peer;
      if (const int error = take_path(merged, &peer); error != 0) return error;
      // With the same GID the path stays as it is: the peer may have moved since.
      if (std::memcmp(merged.ah_attr.grh.dgid.raw, attributes_.ah_attr.grh.dgid.raw, 16) != 0) {
        transport_->set_path(peer, wire_qpn_, now);
      }
    }
    transport_->set_limits(
        {merged.sq_psn, merged.timeout, merged.retry_cnt, merged.rnr_retry, merged.max_rd_atomic},
        merged.max_dest_rd_atomic);
  } else if (from != to) {
    transport_->set_sqd(to == IBV_QPS_SQD);
  }
  if ((mask & IBV_QP_QKEY) != 0) transport_->set_qkey(merged.qkey);
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) transport_->set_min_rnr_timer(merged.min_rnr_timer);
  if ((mask & IBV_QP_RATE_LIMIT) != 0) pacer_.set(merged.rate_limit, 0);
  return 0;
}

int QueuePair::modify(const ibv_qp_attr& attributes, int mask) {
  if (engine_.abandoned()) return ENODEV;
  Engine::Lock lock(engine_);
  const auto current = static_cast<ibv_qp_state>(transport_->state());
  mask = applicable_mask(init_.type, mask);
  ibv_qp_state next;
  if (const int error = check_modify(init_.type, current, attributes, mask, limits_, &next);
      error != 0) {
    return error;
  }
  ibv_qp_attr merged = attributes_;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) merged.qp_access_flags = attributes.qp_access_flags;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) merged.pkey_index = attributes.pkey_index;
  if ((mask & IBV_QP_PORT) != 0) merged.port_num = attributes.port_num;
  if ((mask & IBV_QP_AV) != 0) merged.ah_attr = attributes.ah_attr;
  if ((mask & IBV_QP_PATH_MTU) != 0) merged.path_mtu = attributes.path_mtu;
  if ((mask & IBV_QP_DEST_QPN) != 0) merged.dest_qp_num = attributes.dest_qp_num;
  if ((mask & IBV_QP_RQ_PSN) != 0) merged.rq_psn = attributes.rq_psn;
  if ((mask & IBV_QP_SQ_PSN) != 0) merged.sq_psn = attributes.sq_psn;
  if ((mask & IBV_QP_QKEY) != 0) merged.qkey = attributes.qkey;
  if ((mask & IBV_QP_TIMEOUT) != 0) merged.timeout = attributes.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) merged.retry_cnt = attributes.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) merged.rnr_retry = attributes.rnr_retry;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) merged.min_rnr_timer = attributes.min_rnr_timer;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) merged.max_rd_atomic = attributes.max_rd_atomic;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) {
    merged.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  }
  if ((mask & IBV_QP_RATE_LIMIT) != 0) merged.rate_limit = attributes.rate_limit;
  engine_.touch(this);
  if (const int error = transition(current, next, merged, mask); error != 0) return error;
  attributes_ = next == IBV_QPS_RESET ? ibv_qp_attr{} : merged;
  engine_.transmit(engine_.now());
  return 0;
}

int QueuePair::query(ibv_qp_attr* attributes) const {
  if (engine_.abandoned()) return ENODEV;
  Engine::Lock lock(engine_);
  const transport::TransportStatus status = transport_->status();
  *attributes = attributes_;
  attributes->qp_state = static_cast<ibv_qp_state>(status.state);
  attributes->cur_qp_state = attributes->qp_state;
  attributes->path_mig_state = IBV_MIG_MIGRATED;
  attributes->rate_limit = pacer_.rate();
  attributes->cap = init_.cap;
  if (status.state >= transport::QpState::kRtr) attributes->rq_psn = status.expected_psn;
  if (status.state >= transport::QpState::kRts) attributes->sq_psn = status.next_psn;
  attributes->sq_draining = status.state == transport::QpState::kSqd && status.unacked_psns > 0;
  return 0;
}

void QueuePair::check_overflow(transport::Time now) {
  const auto overflowed = [](const CompletionQueue* cq) { return cq && cq->overflowed(); };
  if (!overflowed(init_.send_cq) && !overflowed(init_.recv_cq)) return;
  const transport::QpState state = transport_->state();
  if (state == transport::QpState::kReset || state == transport::QpState::kError) return;
  transport_->to_error(now);
  raise(Event::kQpFatal);
  engine_.touch(this);
}

void QueuePair::resume(bool rollback, transport::Time now) {
  if (lane_ != nullptr) wire_qpn_ = port::make_qpn(lane_->slot, port::index_of(wire_qpn_));
  pacer_.set(pacer_.rate(), pacer_.burst());  // the clock may be another one
  transport_->resume(wire_qpn_, rollback, now);
  engine_.touch(this);
  meet_strangers(now);
}

bool QueuePair::hears_strangers() const {
  const transport::TransportStatus status = transport_->status();
  return status.state >= transport::QpState::kRtr && status.state != transport::QpState::kError &&
         status.peer_class != transport::PeerClass::kFerry;
}

void QueuePair::meet_strangers(transport::Time now) {
  for (const Lane& lane : engine_.lanes()) {
    if (is_datagram() || lane_ == &lane) engine_.held_ports().meets_stranger(lane, now);
  }
}

}  // namespace ferry::rnic
