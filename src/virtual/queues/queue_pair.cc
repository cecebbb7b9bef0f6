#include "virtual/queues/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "device/gids.h"
#include "port/slot.h"
#include "virtual/queues/completion_queue.h"
#include "virtual/queues/shared_receive_queue.h"

namespace ferry::virt {
namespace {

port::Endpoint endpoint_of(const ibv_gid& gid) {
  return {device::address_of(gid), port::kRoceUdpPort};
}

std::uint32_t receives_of(const device::QpInit& init) {
  return init.srq != nullptr ? 0 : init.cap.max_recv_wr;
}

// Of a UD QP, twice as many as its queue takes: the receive of a datagram is looked up when its completion
// is polled, and further receives may have been posted by then.
std::uint32_t noted_receives_of(const device::QpInit& init) {
  return init.type == IBV_QPT_UD ? 2 * receives_of(init) : receives_of(init);
}

}  // namespace

Qp::Qp(device::Qp& object, const device::QpInit& init, Calls& calls, Returns& returns,
       const Gids& gids, Introducer& introducer, Datagrams& datagrams, Windows& windows)
    : Shadow(object),
      qpn_(object.qpn()),
      init_(init),
      calls_(calls),
      returns_(returns),
      gids_(gids),
      introducer_(introducer),
      datagrams_(datagrams),
      windows_(windows),
      queue_(&object),
      send_marker_(returns),
      receives_(receives_of(init), init.cap.max_recv_sge, noted_receives_of(init), object) {}

std::optional<PostedReceives::Receive> Qp::posted_receive(std::uint32_t index,
                                                          std::uint64_t wr_id) {
  if (init_.srq != nullptr) return static_cast<Srq*>(init_.srq)->posted_receive(wr_id);
  return has_receive_queue() ? receives_.find(index) : std::nullopt;
}

void Qp::put_renamed() {
  const NumberTable* lkeys = numbers_ != nullptr ? &numbers_->lkeys : nullptr;
  const NumberTable* rkeys = nullptr;
  const NumberTable* srqns = nullptr;
  if (peer_ != nullptr) {
    rkeys = &peer_->rkeys;
    srqns = peer_->srqns.get();
  } else if (numbers_ != nullptr && is_own(attributes_.values())) {
    rkeys = &numbers_->rkeys;
    srqns = &numbers_->srqns;
  }
  for (const NumberTable** table : {&lkeys, &rkeys, &srqns}) {
    if (*table != nullptr && !(*table)->is_used()) *table = nullptr;
  }
  if (init_.type != IBV_QPT_XRC_SEND) srqns = nullptr;
  const Datagrams* datagrams = is_ud() && datagrams_.are_used() ? &datagrams_ : nullptr;
  std::unique_ptr<RenamedQp> renamed;
  if (lkeys != nullptr || rkeys != nullptr || srqns != nullptr || datagrams != nullptr)
    renamed = std::make_unique<RenamedQp>(*inner, lkeys, rkeys, srqns, datagrams, init_.cap);
  device::Qp* const next = renamed != nullptr ? static_cast<device::Qp*>(renamed.get()) : inner;
  std::unique_ptr<WindowQp> window_queue;
  if (windows_.are_used() && !is_ud())
    window_queue =
        std::make_unique<WindowQp>(*next, *inner, windows_, numbers_, qpn_, init_.cap.max_send_wr);
  queue_ = window_queue != nullptr ? static_cast<device::Qp*>(window_queue.get()) : next;
  receives_.direct(*next);
  renamed_ = std::move(renamed);
  window_queue_ = std::move(window_queue);
}

void Qp::rename_by(const Numbers& numbers) {
  numbers_ = &numbers;
  if (inner != nullptr) put_renamed();
}

void Qp::redirect() {
  const auto sends = send_gate_.lock();
  const auto receives = receive_gate().lock();
  if (inner != nullptr) put_renamed();
  // The thread that uses the queues shall own the gates, not the caller.
  for (Gate* gate : {&send_gate_, &receive_gate()}) {
    if (!gate->is_shut()) gate->open();
  }
}

void Qp::meet(const Introduction& peer) {
  if (peer_ == nullptr) peer_ = std::make_unique<Peer>();
  peer_->qpn = peer.qpn;
  peer_->gid = peer.gid;
  peer_->rkeys.clear();
  for (const Introduction::Key& key : peer.rkeys) peer_->rkeys.set(key.known, key.real);
  for (const Introduction::Key& key : peer.window_rkeys)
    peer_->rkeys.set_index(key.known, key.real);
  peer_->srqns.reset();
  if (!peer.srqns.empty()) peer_->srqns = std::make_unique<NumberTable>(0);
  for (const Introduction::Key& srqn : peer.srqns) peer_->srqns->set(srqn.known, srqn.real);
  put_renamed();
}

ibv_qp_state Qp::state() const {
  const Calls::Call call(calls_);
  std::lock_guard lock(mutex_);
  return apart_ != Apart::kNo ? left_in_ : inner->state();
}

// --- Data path

// Whether the device behind would take a request that is held: elements and inline data fit.
bool Qp::takes(const ibv_send_wr& request) const {
  if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > init_.cap.max_send_sge)
    return false;
  if ((request.send_flags & IBV_SEND_INLINE) == 0) return true;
  std::size_t bytes = 0;
  for (int i = 0; i < request.num_sge; ++i) bytes += request.sg_list[i].length;
  return bytes <= init_.cap.max_inline_data;
}

int Qp::hold(ibv_send_wr* list, ibv_send_wr** bad) try {
  for (; list != nullptr; list = list->next) {
    *bad = list;
    if (left_in_ < IBV_QPS_RTS || !takes(*list)) return EINVAL;
    if (held_.size() >= init_.cap.max_send_wr) return ENOMEM;
    held_.append(*list, is_ud());
  }
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

// The bind will give the window the next variant of its key: libibverbs' providers all count so.
int Qp::hold_bind(Mw& window, const device::MwBind& bind, std::uint32_t* rkey) try {
  if (left_in_ < IBV_QPS_RTS || window.type != IBV_MW_TYPE_1 ||
      (bind.mr == nullptr && bind.length != 0))
    return EINVAL;
  if (held_.size() >= init_.cap.max_send_wr) return ENOMEM;
  const std::uint32_t next = ibv_inc_rkey(window.given_rkey);
  held_.append(window, bind, next);
  *rkey = next;
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int Qp::post_slowly(ibv_send_wr* list, ibv_send_wr** bad) {
  const auto lock = send_gate_.lock();
  return holding_ ? hold(list, bad) : queue_->post_send(list, bad);
}

int Qp::post_all(ibv_send_wr* list) {
  const auto lock = send_gate_.lock();
  if (!holding_) return queue_->post_all(list);
  const std::size_t before = held_.size();
  ibv_send_wr* bad = nullptr;
  const int error = hold(list, &bad);
  if (error != 0) held_.shrink(before);
  return error;
}

// --- Control

// Whether the peer of these attributes is a QP of this context.
bool Qp::is_own(const ibv_qp_attr& attributes) const {
  return gids_.is_own(attributes.ah_attr) && numbers_->qpns.has_index_of(attributes.dest_qp_num);
}

bool Qp::rename(ibv_qp_attr* attributes, int mask) const {
  if ((mask & IBV_QP_AV) == 0) return true;
  const bool own = numbers_ != nullptr && is_own(*attributes);
  if (numbers_ != nullptr && !gids_.rename_source(&attributes->ah_attr)) return false;
  if (peer_ != nullptr) {
    attributes->dest_qp_num = peer_->qpn;
    attributes->ah_attr.grh.dgid = peer_->gid;
  } else if (own) {
    attributes->dest_qp_num = numbers_->qpns[attributes->dest_qp_num];
    attributes->ah_attr.grh.dgid = gids_.real_of(attributes->ah_attr.grh.dgid);
  }
  return true;
}

// Until meet(), the device's QP stays in INIT: to connect this QP with the place that the peer has left
// would take as long as a search for a host that may be gone.
int Qp::keep_apart(const ibv_qp_attr& attributes, int mask) {
  if (!QpAttributes::suffice_for_rtr(init_.type, mask)) return EINVAL;
  Gate* const gates[] = {&send_gate_};
  Gate::shut(gates);
  const auto sends = send_gate_.lock();
  std::lock_guard lock(mutex_);
  attributes_.merge(attributes, mask);
  holding_ = true;
  apart_ = Apart::kUnmet;
  left_in_ = attributes.qp_state;
  return 0;
}

void Qp::stay_away() {
  std::lock_guard lock(mutex_);
  apart_ = Apart::kAway;
}

void Qp::fail_away() {
  {
    const auto sends = send_gate_.lock();
    std::lock_guard lock(mutex_);
    ibv_qp_attr error{};
    error.qp_state = left_in_ = IBV_QPS_ERR;
    attributes_.merge(error, IBV_QP_STATE);
  }
  if (connect() != 0) fail();
}

// With mutex_ and the lock of send_gate_. The requests that are held are flushed.
int Qp::fail_apart() {
  if (apart_ == Apart::kAway) return 0;  // connect() does it
  if (const int error = to_error_state()) return error;
  apart_ = Apart::kNo;
  holding_ = false;
  post_held();
  held_.clear();
  send_gate_.open();
  return 0;
}

std::optional<int> Qp::modify_apart(const ibv_qp_attr& attributes, int mask) {
  const bool transits = (mask & IBV_QP_STATE) != 0;
  if (!is_apart()) {
    const bool connects = transits && attributes.qp_state == IBV_QPS_RTR && !is_ud() &&
                          inner->state() == IBV_QPS_INIT;
    if (!connects || !introducer_.must_introduce(*this, attributes)) return std::nullopt;
    return introducer_.introduce(*this, attributes, mask);
  }
  const auto sends = send_gate_.lock();
  std::lock_guard lock(mutex_);
  if (apart_ == Apart::kNo) return std::nullopt;  // the QP has been connected just now
  const ibv_qp_state state = transits ? attributes.qp_state : left_in_;
  if (state != IBV_QPS_RTR && state != IBV_QPS_RTS && state != IBV_QPS_ERR) return EINVAL;
  if (transits && state == IBV_QPS_ERR) {
    if (const int error = fail_apart()) return error;
  }
  attributes_.merge(attributes, mask);
  left_in_ = state;
  return 0;
}

int Qp::reset_by_program(const ibv_qp_attr& attributes, int mask) {
  if (const int error = inner->modify(attributes, mask)) return error;
  if (is_ud() && has_receive_queue()) {
    static_cast<Cq*>(init_.recv_cq)->keep_all();  // a device may leave older completions there
    datagrams_.empty(qpn_, receives_.posted());
  }
  windows_.reset_qp(qpn_);
  std::lock_guard lock(mutex_);
  attributes_.merge(attributes, mask);
  return 0;
}

void Qp::abandon() {
  {
    const auto sends = send_gate_.lock();
    std::lock_guard lock(mutex_);
    send_marker_.withdraw();
    if (receive_marker_ != 0) returns_.withdraw(std::exchange(receive_marker_, 0));
    held_.clear();
    holding_ = false;
    apart_ = Apart::kNo;
    left_in_ = IBV_QPS_RESET;
    if (send_gate_.is_shut()) send_gate_.open();
  }
  returns_.count_flushed(qpn_, nullptr);
  returns_.forget_use(qpn_);
  receives_.drop();
}

int Qp::modify(const ibv_qp_attr& attributes, int mask) {
  const Calls::Call call(calls_);
  const bool transits = (mask & IBV_QP_STATE) != 0;
  const bool resets = transits && attributes.qp_state == IBV_QPS_RESET;
  if (resets) {
    const int error = introducer_.part(*this, [&] { return reset_by_program(attributes, mask); });
    if (error != 0) return error;
  } else {
    if (const auto error = modify_apart(attributes, mask)) return *error;
    ibv_qp_attr wanted = attributes;
    if (!rename(&wanted, mask)) return EINVAL;
    if (const int error = inner->modify(wanted, mask)) return error;
    std::lock_guard lock(mutex_);
    attributes_.merge(attributes, mask);
  }
  if (transits && holding_) {
    const auto sends = send_gate_.lock();
    std::lock_guard lock(mutex_);
    if (holding_) left_in_ = attributes.qp_state;
  }
  if (!resets && (mask & IBV_QP_AV) == 0) return 0;
  if (numbers_ == nullptr && peer_ == nullptr) return 0;
  // Another peer has other keys.
  const auto sends = send_gate_.lock();
  const auto receives = receive_gate().lock();
  if (resets) peer_.reset();
  put_renamed();
  return 0;
}

int Qp::query(ibv_qp_attr* attributes) const {
  const Calls::Call call(calls_);
  const bool has_object = this->has_object();
  if (has_object) {
    if (const int error = inner->query(attributes)) return error;
  }
  std::lock_guard lock(mutex_);
  if (!has_object) {
    *attributes = {};
    attributes->cap = init_.cap;
    attributes->cur_qp_state = left_in_;
  }
  if (!has_object || apart_ != Apart::kNo) {
    attributes_.give(attributes);
    attributes->qp_state = left_in_;
  }
  if (attributes_.has(IBV_QP_DEST_QPN)) attributes->dest_qp_num = attributes_.values().dest_qp_num;
  if (attributes_.has(IBV_QP_AV)) attributes->ah_attr = attributes_.values().ah_attr;
  return 0;
}

int Qp::limit_rate(const ibv_qp_rate_limit_attr& attributes) {
  const Calls::Call call(calls_);
  return has_object() ? inner->limit_rate(attributes) : EINVAL;
}

int Qp::attach_mcast(const ibv_gid& gid, std::uint16_t lid) {
  const Calls::Call call(calls_);
  if (const int error = inner->attach_mcast(gid, lid)) return error;
  std::lock_guard lock(mutex_);
  groups_.push_back({gid, lid});
  return 0;
}

int Qp::detach_mcast(const ibv_gid& gid, std::uint16_t lid) {
  const Calls::Call call(calls_);
  if (const int error = inner->detach_mcast(gid, lid)) return error;
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) {
    return device::address_of(group.gid) == device::address_of(gid) && group.lid == lid;
  });
  if (found != groups_.end()) groups_.erase(found);
  return 0;
}

int Qp::bind_mw(device::Mw* window, const device::MwBind& bind, std::uint32_t* rkey) {
  const Calls::Call call(calls_);
  auto& shadow = *static_cast<Mw*>(window);
  const auto lock = send_gate_.lock();
  int error = EINVAL;
  if (holding_) {
    error = hold_bind(shadow, bind, rkey);
  } else if (window_queue_ != nullptr) {
    error = window_queue_->bind_mw(window, bind, rkey);
  }
  if (error == 0) shadow.given_rkey = *rkey;
  return error;
}

device::QpStatus Qp::status(device::Context* device) const {
  device::QpStatus status;
  status.qpn = qpn_;
  status.type = static_cast<std::uint8_t>(init_.type);
  std::lock_guard lock(mutex_);
  const ibv_qp_attr& set = attributes_.values();
  ibv_qp_state state = set.qp_state;
  if (apart_ != Apart::kNo) {
    state = left_in_;
  } else if (inner != nullptr) {
    state = inner->state();
  }
  status.state = static_cast<std::uint8_t>(state);
  status.wire_qpn = inner != nullptr ? inner->qpn() : qpn_;
  if (!attributes_.has(IBV_QP_DEST_QPN)) return status;
  status.peer_qpn = status.peer_wire_qpn = set.dest_qp_num;
  if (set.ah_attr.is_global == 0) return status;
  status.peer = endpoint_of(set.ah_attr.grh.dgid);
  ibv_gid_entry local{};
  const bool is_known =
      gids_.source_of(set.ah_attr, &local.gid) ||
      (device != nullptr &&
       device->query_gid(set.ah_attr.port_num, set.ah_attr.grh.sgid_index, &local) == 0);
  if (is_known) status.local = endpoint_of(local.gid);
  return status;
}

// --- A stop

void Qp::hold() {
  const auto lock = send_gate_.lock();
  holding_ = true;
  was_used_ = false;
  returns_.note_use(qpn_);
  std::lock_guard attributes(mutex_);
  if (apart_ == Apart::kNo) left_in_ = inner->state();
}

void Qp::settle() {
  const auto lock = send_gate_.lock();
  was_used_ = returns_.forget_use(qpn_);
}

bool Qp::is_in_use() {
  const auto lock = send_gate_.lock();
  return held_.size() > 0 || was_used_;
}

bool Qp::sends_are_done() {
  if (is_xrc_target()) return true;  // it sends nothing
  const auto lock = send_gate_.lock();
  const int error = is_ud()
                        ? send_marker_.post_datagram(*inner, *to_itself_, attributes().qkey)
                        : send_marker_.post(*inner, window_, static_cast<Pd*>(init_.pd)->region);
  // After other errors than ENOMEM the QP has failed, and does nothing more.
  if (error == ENOMEM || (error == 0 && send_marker_.is_out())) return false;
  windows_.done(qpn_);
  return true;
}

int Qp::flush(bool* flushes) {
  ibv_qp_state left_in = IBV_QPS_RESET;
  {
    std::lock_guard lock(mutex_);
    left_in = left_in_;
  }
  const bool receives = left_in != IBV_QPS_RESET && left_in != IBV_QPS_ERR;
  *flushes = receives && has_receive_queue();
  receives_.wait(has_receive_queue() && left_in != IBV_QPS_RESET);
  flushed_ = 0;
  if (receives && is_ud() && init_.srq != nullptr) return to_error_state();
  if (!*flushes) return 0;
  returns_.count_flushed(qpn_, &flushed_);
  return to_error_state();
}

int Qp::to_error_state() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  return inner->modify(attributes, IBV_QP_STATE);
}

bool Qp::receives_are_back() {
  if (receive_marker_ == 0) {
    ibv_recv_wr receive{};
    receive.wr_id = returns_.add_marker();
    ibv_recv_wr* bad = nullptr;
    if (const int error = inner->post_recv(&receive, &bad)) {
      returns_.withdraw(receive.wr_id);
      return error != ENOMEM;
    }
    receive_marker_ = receive.wr_id;
    to_error_state();  // once more: rdma_rxe does not flush a receive that is posted in that state
  }
  if (returns_.is_out(receive_marker_)) return false;
  receive_marker_ = 0;
  return true;
}

void Qp::leave_device() {
  returns_.count_flushed(qpn_, nullptr);
  receives_.leave(flushed_);
  std::lock_guard lock(mutex_);
  inner = queue_ = nullptr;
}

int Qp::reset() {
  returns_.count_flushed(qpn_, nullptr);
  receives_.keep(flushed_);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  return inner->modify(attributes, IBV_QP_STATE);
}

device::QpInit Qp::remade() const {
  device::QpInit init = init_;
  init.pd = behind(init_.pd);
  init.send_cq = behind(init_.send_cq);
  init.recv_cq = behind(init_.recv_cq);
  init.srq = behind(init_.srq);
  init.xrcd = behind(init_.xrcd);
  return init;
}

int Qp::go_to(ibv_qp_state state) {
  const int mask = state == IBV_QPS_ERR ? IBV_QP_STATE : attributes_.mask_to(init_.type, state);
  ibv_qp_attr wanted = attributes_.values();
  wanted.qp_state = state;
  return rename(&wanted, mask) ? inner->modify(wanted, mask) : EADDRNOTAVAIL;
}

int Qp::begin_to_connect() {
  std::lock_guard lock(mutex_);
  if (left_in_ == IBV_QPS_RESET) return 0;
  apart_ = Apart::kAway;
  return go_to(IBV_QPS_INIT);
}

int Qp::connect() {
  std::lock_guard lock(mutex_);
  apart_ = Apart::kNo;
  if (left_in_ == IBV_QPS_RESET) return 0;
  // No transition leads from RESET to ERR (IBTA vol. 1, figure 124).
  const ibv_qp_state last = left_in_ == IBV_QPS_ERR ? IBV_QPS_INIT : left_in_;
  if (left_in_ != IBV_QPS_ERR || inner->state() == IBV_QPS_RESET) {
    for (int state = IBV_QPS_INIT; state <= last; ++state) {
      if (const int error = go_to(static_cast<ibv_qp_state>(state))) return error;
    }
    for (const Group& group : groups_) {
      if (const int error = inner->attach_mcast(group.gid, group.lid)) return error;
    }
  }
  return left_in_ == IBV_QPS_ERR ? go_to(IBV_QPS_ERR) : 0;
}

void Qp::fail() {
  {
    std::lock_guard lock(mutex_);
    apart_ = Apart::kNo;
  }
  to_error_state();
}

bool Qp::resume() {
  if (pass_receives() != 0) fail();
  const auto lock = send_gate_.lock();
  if (send_marker_.is_out()) return false;
  if (post_held() != 0) fail();
  held_.clear();
  holding_ = false;
  returns_.forget_use(qpn_);
  if (send_gate_.is_shut()) send_gate_.open();
  return true;
}

}  // namespace ferry::virt
