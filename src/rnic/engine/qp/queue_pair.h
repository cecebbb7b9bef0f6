#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/movable.h"
#include "rnic/engine/completion_queue.h"
#include "rnic/engine/endpoints/destinations.h"
#include "rnic/engine/endpoints/lanes.h"
#include "rnic/engine/qp/shared_receive_queue.h"
#include "rnic/engine/requests/qp_state.h"
#include "rnic/engine/requests/receive_queue.h"
#include "rnic/engine/timing/pacer.h"
#include "rnic/engine/timing/reply_habit.h"
#include "rnic/engine/timing/timer_heap.h"
#include "rnic/memory/memory.h"
#include "transport/host.h"
#include "transport/movable.h"
#include "transport/transport.h"
#include "transport/ud/datagram.h"

namespace ferry::rnic {

class Engine;

// Whether a QP is in the engine's queue of touched QPs, or rests (resting_qps.h). It is never both,
// so one comparison tells touch() whether there is something to do.
enum class Turn : std::uint8_t { kNone, kTouched, kResting };

// A queue pair: the verbs side (checks, queues, completions) around its transport, whose Host it
// is. queue_pair.cc has its life and states, posting.cc the work requests, qp_memory.cc,
// qp_packets.cc and qp_completions.cc the Host, qp_datagram.cc what only UD has, qp_record.cc the
// record.
class QueuePair final : public device::Qp,
                        public StrictTimer,
                        public LenientTimer,
                        private transport::Host {
 public:
  static constexpr int kMaxWr = 16384;
  static constexpr int kMaxSge = 30;
  static constexpr int kMaxInline = static_cast<int>(transport::kMaxInline);
  // The device grants this without being asked, as kernel devices do: programs post inline data
  // without having asked for it.
  static constexpr std::uint32_t kMinInline = 64;
  // As rdma_rxe and siw have: perftest and others ask for as many as the peer's device says it takes.
  static constexpr int kMaxRdAtomic = 128;

  static bool supports(ibv_qp_type type);
  // Rounds up what was asked for; queues that the QP lacks get 0. EINVAL: more than the device has.
  static int grant(ibv_qp_type type, bool has_srq, ibv_qp_cap* cap);

  // An XRC target QP has an XRC domain and nothing else; an XRC initiator no receive queue.
  struct Init {
    Handle handle = 0;
    ibv_qp_type type = IBV_QPT_RC;
    ProtectionDomain* pd = nullptr;
    CompletionQueue* send_cq = nullptr;
    CompletionQueue* recv_cq = nullptr;
    SharedReceiveQueue* srq = nullptr;  // may be null
    XrcDomain* xrcd = nullptr;
    ibv_qp_cap cap{};  // granted
    bool sq_sig_all = false;
    bool block_multicast_loopback = false;  // UD
    std::uint32_t virtual_qpn = 0;
    std::uint32_t wire_qpn = 0;
    // Whether it has the objects that a QP of its type needs, and none that such a QP may not have
    // (clause 11.2.5.1, annex A14).
    bool has_its_objects() const;
  };
  QueuePair(Engine& engine, device::EventSink& sink, const AttributeLimits& limits,
            const Init& init);
  ~QueuePair() override;

  std::uint32_t qpn() const override { return init_.virtual_qpn; }
  ibv_qp_state state() const override;
  int post_send(ibv_send_wr* list, ibv_send_wr** bad) override;
  int post_all(ibv_send_wr* list) override;
  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override;
  // Called before a reset or the end: has transmit() acknowledge what the peer has sent so far.
  void say_farewell();
  int modify(const ibv_qp_attr& attributes, int mask) override;
  int query(ibv_qp_attr* attributes) const override;
  int limit_rate(const ibv_qp_rate_limit_attr& attributes) override;
  int attach_mcast(const ibv_gid& gid, std::uint16_t lid) override;
  int detach_mcast(const ibv_gid& gid, std::uint16_t lid) override;
  int bind_mw(device::Mw* window, const device::MwBind& bind, std::uint32_t* rkey) override;

  // --- For the RNIC, under the engine's lock ---------------------------------------------------
  const Init& init() const { return init_; }
  transport::Transport& transport() { return *transport_; }
  const transport::Transport& transport() const { return *transport_; }
  Lane* lane() const { return lane_; }
  bool is_datagram() const { return init_.type == IBV_QPT_UD; }
  // Whether the QP's packets come through this lane.
  bool serves(const Lane& lane) const;
  std::uint32_t wire_qpn() const { return wire_qpn_; }
  void handle_packet(const wire::Packet& packet, const port::Endpoint& from, transport::Time now);
  void handle_multicast(const wire::Packet& packet, const port::Endpoint& from,
                        const port::Address& group, transport::Time now);
  // Enters the error state if one of its CQs has overflowed.
  void check_overflow(transport::Time now);
  // Called when an XRC SRQ is destroyed.
  void forget_srq(const SharedReceiveQueue* srq) {
    if (selected_srq_ == srq) selected_srq_ = nullptr;
  }
  // When handle_timeout() is to be called next.
  transport::Deadlines deadlines() const {
    transport::Deadlines at = transport_->deadlines();
    at.strict = std::min(at.strict, pacer_.waits_until());
    return at;
  }
  void handle_timeout(transport::Time now);
  // The QP goes on with the slot that its lane has now.
  void resume(bool rollback, transport::Time now);
  device::QpStatus status() const;

  // The QP's part of its record (records.h): attributes, receive queue, transport, rate limit.
  void save(wire::ByteWriter& out) const;
  bool load(wire::ByteReader& in);
  bool is_paced() const { return pacer_.rate() > 0; }

  // Whether a peer that is not known to be of our kind may send to it.
  bool hears_strangers() const;
  // Whether it may rest: a stop that comes while it is as it is now need not look at it.
  bool can_rest() const {
    return turn == Turn::kNone && !waiting && lane_ != nullptr && lane_->port != nullptr &&
           deadlines().first() == transport::kNever && transport_->idle();
  }

  // Links of the engine's queues. Only the engine uses them.
  QueuePair* next_touched = nullptr;
  QueuePair* next_waiting = nullptr;
  Turn turn = Turn::kNone;
  bool waiting = false;
  ReplyHabit reply_habit;           // for the engine as well
  std::uint8_t resting_row = 0;     // for RestingQps, while it rests
  std::uint32_t resting_index = 0;  // for RestingQps, while it rests

 private:
  void meet_strangers(transport::Time now);
  // transport::Host
  transport::EmitResult emit(const transport::OutPacket& packet) override;
  bool take_receive(transport::ReceiveRequest* out) override;
  SrqResult take_receive_of(std::uint32_t srqn, transport::ReceiveRequest* out) override;
  bool select_srq(std::uint32_t srqn) override;
  std::uint32_t receives_posted() const override;
  transport::MemoryResult scatter(std::span<const transport::Sge> sges, std::uint64_t offset,
                                  std::span<const std::byte> data) override;
  transport::MemoryResult scatter_receive(std::span<const transport::Sge> sges,
                                          std::uint64_t offset,
                                          std::span<const std::byte> data) override;
  transport::MemoryResult check_region(std::uint32_t rkey, std::uint64_t address,
                                       std::uint64_t length, std::uint32_t access) override;
  transport::MemoryResult write_region(std::uint32_t rkey, std::uint64_t address,
                                       std::span<const std::byte> data) override;
  transport::MemoryResult atomic(transport::Operation operation, std::uint32_t rkey,
                                 std::uint64_t address, std::uint64_t compare_add,
                                 std::uint64_t swap, std::uint64_t* original) override;
  transport::MemoryResult write_atomic(std::uint32_t rkey, std::uint64_t address,
                                       std::span<const std::byte, 8> data) override;
  transport::MemoryResult flush_region(const wire::Feth& what, std::uint32_t rkey,
                                       std::uint64_t address, std::uint64_t length) override;
  bool invalidate(std::uint32_t rkey, bool remote) override;
  transport::Status bind_window(const transport::WindowBinding& binding) override;
  void complete_send(const transport::SendCompletion& completion) override;
  void complete_receive(const transport::ReceiveCompletion& completion) override;
  void flush_receives() override;
  void raise(Event event) override;
  void seek(const port::Endpoint& name) override;
  std::uint64_t random() override;
  std::int64_t window(const port::Endpoint& to) const override;
  void account(const port::Endpoint& to, std::int64_t bytes) override;
  bool place_towards(const port::Address& address, transport::DatagramSource* out) const override;
  bool own_place(const port::Address& gid, std::uint32_t qpn,
                 transport::DatagramPlace* out) const override;

  transport::MemoryResult gather(std::span<const transport::Sge> sges, std::uint64_t offset,
                                 std::byte* out, std::uint32_t length) const;
  transport::MemoryResult scatter(const ProtectionDomain* pd, std::span<const transport::Sge> sges,
                                  std::uint64_t offset, std::span<const std::byte> data) const;
  // Where the memory that the peer names lies in this process, if the QP and the key allow the
  // access; null: access error.
  std::byte* region(std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                    std::uint32_t access) const;
  // The PD whose keys the peer may use: that of the QP, or of the XRC SRQ that its request names.
  const ProtectionDomain* remote_pd() const;
  void add(CompletionQueue& cq, const ibv_wc& completion, bool notable);
  // Checks the request and, with `post`, posts it. 0 or errno.
  int take(const ibv_send_wr& request, bool post);
  // `head`: the fields that requests of all kinds have.
  int take_data(const ibv_send_wr& wr, const transport::SendRequest& head, bool post);
  int take_bind(const transport::WindowBinding& binding, ibv_mw_type type, bool names_region,
                const transport::SendRequest& head, bool post);
  // Carries out a checked modify(); `merged` has the attributes of the mask already. 0 or errno.
  int transition(ibv_qp_state from, ibv_qp_state to, const ibv_qp_attr& merged, int mask);
  int to_rtr(const ibv_qp_attr& merged, transport::Time now);
  // *peer gets the endpoint that the address vector names, and the QP the lane that leads there.
  // EINVAL: no lane does.
  int take_path(const ibv_qp_attr& merged, port::Endpoint* peer);
  int take_datagram(const ibv_send_wr& wr, transport::DatagramAddress* out) const;
  void save_datagram(wire::ByteWriter& out) const;
  bool load_datagram(wire::ByteReader& in);
  void set_lane(Lane* lane);
  void set_all_lanes(bool use);
  void forget();
  [[gnu::cold]] void account_elsewhere(const port::Endpoint& to, std::int64_t bytes);
  void drop_destination();
  // Handles a packet that may begin or end a pause of the peer.
  [[gnu::cold]] void handle_in_pause(const wire::Packet& packet, const port::Endpoint& from,
                                     transport::Time now);
  // Whether destination_ is that of `to`; false also when the peer has moved.
  bool accounts_at(const port::Endpoint& to) const {
    return destination_ != nullptr && (!transport::kMovable || destination_->endpoint == to);
  }
  bool is_under_way() const { return destination_ != nullptr && destination_->outstanding > 0; }

  Engine& engine_;
  device::EventSink& sink_;
  const AttributeLimits limits_;
  const Init init_;
  std::uint32_t wire_qpn_;
  ibv_qp_attr attributes_{};
  Lane* lane_ = nullptr;         // of a connection
  std::uint8_t lanes_used_ = 0;  // of a UD QP: one bit for each lane
  ReceiveQueue receives_;
  Pacer pacer_;
  SharedReceiveQueue* selected_srq_ = nullptr;  // XRC target
  mutable Destination* destination_ = nullptr;
  std::int64_t outstanding_ = 0;  // this QP's share of destination_
  std::unique_ptr<transport::Transport> transport_;

  // The latest pause of this QP, whose peer was moved.
  transport::Time last_packet_{0};
  transport::Time pause_began_{0};
  enum class PauseStage : std::uint8_t {
    kNone,
    kPaused,
    kResumed
  } pause_stage_ = PauseStage::kNone;
  std::uint64_t last_pause_ns_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace ferry::rnic
