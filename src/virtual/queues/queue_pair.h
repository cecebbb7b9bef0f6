#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "device/movable.h"
#include "virtual/messages/letters.h"
#include "virtual/queues/datagrams.h"
#include "virtual/queues/qp_attributes.h"
#include "virtual/queues/renamed_queues.h"
#include "virtual/queues/send_buffer.h"
#include "virtual/receives/receive_queue.h"
#include "virtual/shadows/gids.h"
#include "virtual/shadows/numbers.h"
#include "virtual/shadows/objects.h"
#include "virtual/stop/calls.h"
#include "virtual/stop/gate.h"
#include "virtual/stop/returns.h"
#include "virtual/stop/send_marker.h"
#include "virtual/windows/window_queue.h"

namespace ferry::virt {

class Qp;

// A QP asks its Introducer when the program connects the QP.
class Introducer {
 public:
  virtual ~Introducer() = default;
  // Whether the QP and the peer that these attributes name have to be introduced to each other before
  // they can be connected: one of them may have moved, and have another GID, QPN or keys on its device.
  virtual bool must_introduce(const Qp& qp, const ibv_qp_attr& attributes) = 0;
  // Keeps the QP apart with these attributes (Qp::keep_apart()), and begins the introduction. 0 or
  // errno.
  virtual int introduce(Qp& qp, const ibv_qp_attr& attributes, int mask) = 0;
  // Resets the QP by reset(), which gives 0 or errno; then the QP has no peer any more. 0 or errno.
  virtual int part(Qp& qp, const std::function<int()>& reset) = 0;
};

class Qp final : public Shadow<device::Qp> {
 public:
  // `init`: as the application gave it, with the capacities that the device has granted. Throws
  // std::bad_alloc.
  Qp(device::Qp& object, const device::QpInit& init, Calls& calls, Returns& returns,
     const Gids& gids, Introducer& introducer, Datagrams& datagrams, Windows& windows);

  // From now on requests get the numbers of the device, if the QP has an object behind. `numbers` must
  // stay valid. Throws std::bad_alloc.
  void rename_by(const Numbers& numbers);
  // The same for the attributes of modify() alone: no key has changed.
  void rename_attributes_by(const Numbers& numbers) { numbers_ = &numbers; }
  // Requests take the way that they need now: those of a UD QP to the places that datagrams_ gives them, those
  // about memory windows by windows_.
  void redirect();
  bool is_ud() const { return init_.type == IBV_QPT_UD; }
  bool is_xrc_target() const { return init_.type == IBV_QPT_XRC_RECV; }
  // Gives the receive that a completion of a UD QP is about: by its wr_id if the QP has an SRQ, else by the number
  // of those before it (PostedReceives::find()). std::nullopt: it is not known.
  std::optional<PostedReceives::Receive> posted_receive(std::uint32_t index, std::uint64_t wr_id);
  // From now on the device's QPN, GID and keys of the peer are these. Both gates are shut, and their locks
  // are held, or nobody posts.
  void meet(const Introduction& peer);

  // --- Apart: the program sees the QP connected, the device does not. The QP's requests are held.

  bool is_apart() const {
    std::lock_guard lock(mutex_);
    return apart_ != Apart::kNo;
  }
  // False: the device behind is away, or the QP is late (talks/late_qps.h); a late QP is apart as well.
  bool has_object() const {
    std::lock_guard lock(mutex_);
    return inner != nullptr;
  }
  // The program connects the QP; the device's QP waits in INIT for an introduction. 0 or errno.
  int keep_apart(const ibv_qp_attr& attributes, int mask);
  // Until connect(), the device's QP is not in the state that the program knows, or is missing.
  void stay_away();
  // The QP will not be connected any more: it goes to the error state.
  void fail_away();
  // The QP was reset, or has ended: nothing of it is held, kept or counted any more.
  void abandon();

  std::uint32_t qpn() const override { return qpn_; }
  ibv_qp_state state() const override;
  int post_send(ibv_send_wr* list, ibv_send_wr** bad) override {
    if (!send_gate_.enter()) [[unlikely]]
      return post_slowly(list, bad);
    const int error = queue_->post_send(list, bad);
    send_gate_.leave();
    return error;
  }
  int post_all(ibv_send_wr* list) override;
  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override { return receives_.post(list, bad); }
  int modify(const ibv_qp_attr& attributes, int mask) override;
  int query(ibv_qp_attr* attributes) const override;
  int limit_rate(const ibv_qp_rate_limit_attr& attributes) override;
  int attach_mcast(const ibv_gid& gid, std::uint16_t lid) override;
  int detach_mcast(const ibv_gid& gid, std::uint16_t lid) override;
  int bind_mw(device::Mw* window, const device::MwBind& bind, std::uint32_t* rkey) override;

  // Gives what the device tells of the QP by itself, and what the application has set. `device` null: the
  // device behind is away.
  device::QpStatus status(device::Context* device) const;
  const device::QpInit& init() const { return init_; }
  bool has_receive_queue() const {
    return init_.srq == nullptr && init_.type != IBV_QPT_XRC_SEND && !is_xrc_target() &&
           init_.cap.max_recv_wr > 0;
  }
  // The attributes that the application has set.
  ibv_qp_attr attributes() const {
    std::lock_guard lock(mutex_);
    return attributes_.values();
  }

  // --- A stop of the device behind. The program's calls wait, and both gates are shut.

  Gate& send_gate() { return send_gate_; }
  Gate& receive_gate() { return receives_.gate(); }
  // From now on requests are held, at most as many as the send queue takes; receives still go to the
  // device.
  void hold();
  // Ends what hold() has begun: to note whether the program uses the QP.
  void settle();
  // Whether completions for the program came between hold() and settle(), or waited for the program at hold(), or
  // requests are held. Receives that wait do not count.
  bool is_in_use();
  // Whether the device has done all requests: a marker behind them has come back, or the QP has failed.
  // False: not yet; the caller sweeps completions, and asks again. Before, a UD QP has got its path
  // (set_path_to_itself()), another QP its window.
  bool sends_are_done();
  // Whether the QP, which is not a UD QP, sends and lacks the window that its markers bind.
  bool wants_window() const {
    return has_object() && !is_ud() && !is_xrc_target() && window_ == nullptr;
  }
  // Null: the QP has no window any more. Gives the former window, which the caller destroys.
  device::Mw* set_window(device::Mw* window) { return std::exchange(window_, window); }
  // Whether a UD QP lacks the AH for its marker, which leads from the QP's port to this port.
  bool wants_path_to_itself() const {
    const std::uint8_t port = attributes().port_num;
    return is_ud() && port != 0 && (to_itself_ == nullptr || path_port_ != port);
  }
  // Null: the QP has no such AH any more. Gives the former AH, which the caller destroys.
  device::Ah* set_path_to_itself(device::Ah* path, std::uint8_t port) {
    path_port_ = port;
    return std::exchange(to_itself_, path);
  }
  // Brings the QP to the error state, which flushes its receives, and counts them. Threads that post
  // further receives wait until leave_device() or reset(). *flushes: the QP has a receive queue, and was
  // in a state in which this queue need not be empty. A UD QP with an SRQ goes to that state as well: other
  // programs' datagrams would take receives out of the SRQ. 0 or errno.
  int flush(bool* flushes);
  // Whether all flushed receives have come back. False: not yet; the caller sweeps, and asks again.
  bool receives_are_back();
  // The QP of the device is about to end. Receives are kept from now on.
  void leave_device();
  // Resets the device's QP, whose receives have come back, so that it can be connected anew, where the
  // device has no room for another QP. 0 or errno.
  int reset();
  // Gives the QpInit with which the QP is made anew.
  device::QpInit remade() const;
  // The QP has been made anew as `object`.
  void enter_device(device::Qp& object) {
    std::lock_guard lock(mutex_);
    attach(object);
  }
  // Whether connect() brings the device's QP to RTS.
  bool goes_to_rts() const {
    std::lock_guard lock(mutex_);
    return left_in_ == IBV_QPS_RTS;
  }
  // Brings the device's QP to the state in which the program knows the QP (left_in_). 0 or errno.
  int connect();
  // For a UD QP, which waits for no peer: it takes receives from now on, but no datagram before connect().
  // 0 or errno.
  int begin_to_connect();
  // Posts the receives that are kept and not posted yet.
  int refill() { return receives_.refill(); }
  // As refill(), and from now on the device gets receives as soon as they are posted. 0 or errno.
  int pass_receives() { return receives_.pass(); }
  // Posts the requests and receives that were held, and lets threads in again. False: a marker that was
  // given up still waits in the send queue, behind requests that are not done; the caller calls again.
  bool resume();
  // The device refuses something that the application believes done: the QP goes to the error state, as
  // it does when a device finds an error late.
  void fail();

 private:
  // 0 or errno; std::nullopt: the device's QP is to be modified.
  std::optional<int> modify_apart(const ibv_qp_attr& attributes, int mask);
  int reset_by_program(const ibv_qp_attr& attributes, int mask);
  int fail_apart();
  int to_error_state();
  // With mutex_.
  int go_to(ibv_qp_state state);
  int post_slowly(ibv_send_wr* list, ibv_send_wr** bad);
  int hold(ibv_send_wr* list, ibv_send_wr** bad);
  int hold_bind(Mw& window, const device::MwBind& bind, std::uint32_t* rkey);
  bool takes(const ibv_send_wr& request) const;
  // Puts renamed_ in front of the object behind if requests need other numbers there, and window_queue_ in
  // front of both if requests may be about windows.
  void put_renamed();
  // Posts the requests that are held. 0 or errno.
  int post_held() { return held_.post(*queue_, window_queue_.get()); }
  // Replaces the application's numbers by the device's. False: the device has no GID for the path's source. The GID
  // of a peer that is no QP of this context stays: somebody else may have a GID that the context had before a move.
  bool rename(ibv_qp_attr* attributes, int mask) const;
  bool is_own(const ibv_qp_attr& attributes) const;

  const std::uint32_t qpn_;
  const device::QpInit init_;
  Calls& calls_;
  Returns& returns_;
  const Gids& gids_;
  Introducer& introducer_;
  Datagrams& datagrams_;
  Windows& windows_;
  const Numbers* numbers_ = nullptr;  // null: no number of the context has changed
  // The QPN, GID, rkeys and SRQNs of the peer's device. peer_ null: they are those that the application knows, or
  // the peer is a QP of this context.
  struct Peer {
    std::uint32_t qpn = 0;
    ibv_gid gid{};
    NumberTable rkeys{8};
    std::unique_ptr<NumberTable>
        srqns;  // null: the peer has no XRC SRQs whose numbers have changed
  };
  std::unique_ptr<Peer> peer_;
  std::unique_ptr<RenamedQp> renamed_;
  // Null: the context has had no windows, or this is a UD QP.
  std::unique_ptr<WindowQp> window_queue_;
  device::Qp* queue_;  // window_queue_, or renamed_, or the object behind

  Gate send_gate_;
  // Guarded by the lock of send_gate_; holding_ is read without it:
  std::atomic<bool> holding_ = false;
  SendBuffer held_;
  bool was_used_ = false;  // whether completions for the program came in the last stop
  SendMarker send_marker_;

  ReceiveQueue<device::Qp> receives_;
  std::uint32_t flushed_ = 0;
  std::uint64_t receive_marker_ = 0;
  device::Mw* window_ = nullptr;
  device::Ah* to_itself_ = nullptr;
  std::uint8_t path_port_ = 0;  // the port of to_itself_

  mutable std::mutex mutex_;  // guards what follows
  QpAttributes attributes_;
  // The multicast groups that the QP is attached to, in this order.
  struct Group {
    ibv_gid gid{};
    std::uint16_t lid = 0;
  };
  std::vector<Group> groups_;
  enum class Apart : std::uint8_t {
    kNo,
    kUnmet,  // its peer has not introduced itself; the device's QP is in INIT
    kAway    // the QP or its peer has moved; the device's QP is not connected, or not made, yet
  };
  Apart apart_ = Apart::kNo;
  // The state to which connect() brings the device's QP. Written with mutex_ and the lock of send_gate_,
  // read with one of them.
  ibv_qp_state left_in_ = IBV_QPS_RESET;
};

}  // namespace ferry::virt
