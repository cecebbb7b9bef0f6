#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/movable.h"
#include "virtual/events/asynchronous_events.h"
#include "virtual/messages/letters.h"
#include "virtual/messages/needs.h"
#include "virtual/queues/completion_queue.h"
#include "virtual/queues/datagrams.h"
#include "virtual/queues/queue_pair.h"
#include "virtual/queues/shared_receive_queue.h"
#include "virtual/shadows/address_handle.h"
#include "virtual/shadows/gids.h"
#include "virtual/shadows/objects.h"
#include "virtual/stop/calls.h"
#include "virtual/stop/returns.h"

// A decorator: it is a device, and has one of any kind (hca/, rnic/, a fake), which needs to know
// nothing of moves. The application holds shadows of its objects. A stop empties the queues of the
// device behind (MigrRDMA's wait-before-stop) and closes it; the objects are made anew, on this host
// or on another one, and the application keeps the numbers that it knows (docs/any_rnic.md).
namespace ferry::virt {

class Context final : public device::MovableContext, private device::EventSink, private Introducer {
 public:
  // Opens the device behind. Null and *error (errno): it cannot be opened.
  static std::unique_ptr<Context> open(std::shared_ptr<device::Rnic> rnic, device::EventSink& sink,
                                       device::MoveSink& moves, int* error);
  ~Context() override;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int query_device(ibv_device_attr_ex* out) override;
  int query_port(std::uint8_t port_number, ibv_port_attr* out) override;
  int query_gid(std::uint8_t port_number, unsigned index, ibv_gid_entry* out) override;
  int query_pkey(std::uint8_t port_number, int index, std::uint16_t* out) override;
  int alloc_pd(device::Pd** out) override;
  int reg_mr(const device::MrInit& init, device::Mr** out) override;
  int create_cq(const device::CqInit& init, device::Cq** out) override;
  int create_qp(device::QpInit* init, device::Qp** out) override;
  int alloc_null_mr(device::Pd* pd, device::Mr** out) override;
  int rereg_mr(device::Mr* mr, int flags, const device::MrInit& init) override;
  int alloc_mw(device::Pd* pd, ibv_mw_type type, device::Mw** out) override;
  int create_ah(device::Pd* pd, const ibv_ah_attr& attributes, device::Ah** out) override;
  int create_srq(device::SrqInit* init, device::Srq** out) override;
  int open_xrcd(device::Xrcd** out) override;
  int completion_vectors() const override;
  int create_channel(device::Channel** out) override;
  int asynchronous_descriptor() const override { return events_.descriptor(); }
  int take_asynchronous(device::AsynchronousEvent* out) override;
  void acknowledge(const device::AsynchronousEvent& event) override;
  // That of the device where the program began.
  int command_descriptor() const override { return command_descriptor_; }
  bool checks_requests() const override;
  std::uint64_t clock() const override;
  int destroy(device::Object* object) override;
  bool survives_fork() const override;
  void abandon() override;
  void leave() override;
  // None in a stop: ferryd asks for them at any time.
  void counters(std::vector<device::Counter>* out) override;

  void prepare() override;
  // ETIMEDOUT: a request was not done in time; EBUSY: a peer is not suspended, or in the midst of a
  // move of its own; EOPNOTSUPP: the context has what cannot be made anew yet (docs/any_rnic.md).
  int quiesce(std::chrono::nanoseconds limit, std::uint32_t* unacked_psns) override;
  int park(device::Parcel* out) override;
  int unpark(const device::Parcel& parcel) override;
  void resume(bool rollback) override;
  int describe(std::vector<std::byte>* /*out*/, int* /*count*/) override { return EOPNOTSUPP; }
  int restore(device::ObjectType /*type*/, device::RestoreCommand /*command*/,
              std::span<const std::byte> /*record*/, device::Object** /*object*/) override {
    return EOPNOTSUPP;
  }
  void suspend_peers() override;
  void release_peers() override;
  bool peers_are_suspended() override;
  void take_letters(std::vector<device::Letter>* out) override;
  int deliver(const device::Letter& letter) override;
  bool progress() override;
  bool awaits_letters() override;
  void repeat_letters() override;
  void moved(const device::MovedNames& names) override;
  device::DatagramQps moved_datagram_qps() override;
  std::vector<port::Address> datagram_destinations() override;
  void status(std::vector<device::QpStatus>* out) override;
  const char* obstacle() override;
  std::string needs() override;
  // The name of the device.
  device::Parcel place() override;

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  Context(std::shared_ptr<device::Rnic> rnic, device::EventSink& sink, device::MoveSink& moves)
      : rnic_(std::move(rnic)), sink_(sink), moves_(moves) {}

  void completion(device::Cq& cq) override;
  void asynchronous(ibv_event_type type, device::Object* object) override;

  // Makes an object behind by make(&object), and its shadow, a T of that object and `arguments`.
  // Gives 0 or errno.
  template <typename T, typename Base, typename Make, typename... Arguments>
  int keep(Base** out, Make make, const Arguments&... arguments);
  // Whether the number of an object that is new behind is one that the application has for another.
  bool collides(const device::Object& made) const;
  // Whether datagrams with this number mean another QP, or another AH.
  bool is_taken(const device::Object& made) const;
  // `real_qpn`: the number that the QP had behind.
  void forget_numbers(device::Object* shadow, std::uint32_t real_qpn);
  void name(const Mr& mr);
  // Calls look(shadow) for each shadow of type T. None of them goes meanwhile.
  template <typename T, typename Look>
  void for_each(Look look) {
    std::lock_guard lock(mutex_);
    for (const auto& [object, owner] : objects_) {
      if (auto* shadow = dynamic_cast<T*>(object)) look(*shadow);
    }
  }
  // The shadows of type T, for who knows that none of them goes.
  template <typename T>
  std::vector<T*> all() {
    std::vector<T*> found;
    for_each<T>([&](T& shadow) { found.push_back(&shadow); });
    return found;
  }

  // --- The parts of a stop (context_move.cc)

  int can_stop();
  const char* obstacle_of(Qp& qp);
  // Whether the peer of these attributes is a QP of this context.
  bool is_own(const ibv_qp_attr& attributes);
  // What markers need. With talks_mutex_, or while the program's calls wait.
  int make_window(Qp& qp);
  int make_windows();
  int make_paths_to_themselves();
  // Also when a marker may have been flushed: then the provider and the device may have other keys of
  // the window, and the device would refuse the next bind of it.
  void destroy_window(Qp& qp);
  void destroy_region(Pd& pd);
  void shut_gates();
  // True: some completion came.
  bool sweep();
  // Sweeps until is_done(qp) of each. 0, or ETIMEDOUT.
  template <typename IsDone>
  int await(std::vector<Qp*> qps, Deadline deadline, IsDone is_done);
  static bool sends_are_done(Qp& qp);
  // Waits until the device has done what it has. 0, ETIMEDOUT.
  int drain(Deadline deadline);
  int drive_out(Deadline deadline);
  int make_anew();
  int make_memory_anew();
  int make_queues_anew();
  void number_anew();
  void leave_device();

  // --- Talks with peers (context_peers.cc)

  struct Talk {
    // Of the end that moves.
    std::uint32_t attempt = 0;  // of SUSPEND
    bool is_told = false;       // SUSPEND
    bool is_suspended = false;  // the peer has said so
    bool is_meeting = false;    // told because the program has connected the QP after a move
    bool awaits_peer = false;   // SWITCHED, or the peer's own SWITCH
    bool is_met = false;        // the other's SWITCH has come, SWITCHED has not
    // Of the peer, in this order.
    enum class Step : std::uint8_t { kNone, kDrain, kSuspended, kFlush, kConnected };
    Step step = Step::kNone;
    std::uint32_t peers_attempt = 0;
    std::optional<Introduction> peer;
  };

  // Whether its peer is a QP of another context, which has to be told.
  bool has_remote_peer(Qp& qp);
  bool has_suspended_peer(Qp& qp);
  // Whether a talk is at a step that a stop cannot interrupt.
  bool is_in_the_midst(Qp& qp);
  // The latest letter of a talk whose answer has not come. Nothing: there is none.
  std::optional<LetterKind> unanswered(const Qp& qp, const Talk& talk) const;
  void tell(Qp& qp);
  // The QP is at the beginning again, or ends.
  void forget_talk(Qp& qp);
  void release_peer(Qp& qp, Talk& talk);
  void stopped();
  void resume_talk(Qp& qp, Talk& talk);
  void write(Qp& qp, LetterKind kind, std::uint32_t attempt = 0);
  Introduction introduction_of(const Qp& qp, const ibv_ah_attr& path);
  // The queues of one QP, of which some completions are not the application's now.
  void stop_queues(Qp& qp);
  void resume_queues(Qp& qp);
  void begin_suspension(Qp& qp, Talk& talk);
  void take_introduction(Qp& qp, Talk& talk, LetterKind kind, const Introduction& introduction);
  void go_on(Qp& qp, Talk& talk);
  void let_go(Qp& qp, Talk& talk);
  // True: the step is not done.
  bool drain_step(Qp& qp, Talk& talk);
  bool flush_step(Qp& qp, Talk& talk);
  // Gives the QP another one of the device. 0 or errno: it still has the old one.
  int replace(Qp& qp);
  void sweep_queues(Qp& qp);
  void resume_qp(Qp& qp);
  void connect_with_peer(Qp& qp, const Introduction& peer);

  // --- Datagrams (context_datagrams.cc)

  // The program has a UD QP more, or one less.
  void add_ud(Qp& qp);
  void remove_ud(Qp& qp);
  // With mutex_: makes the AHs by which datagrams of this one go to the places of moved QPs, as far as
  // the device gives some.
  void add_ways(Ah& ah);
  int destroy_ah(Ah& ah);
  // After a move, and when UD QPs come or go later: tells datagrams_ where those of this context are.
  void name_own_datagrams();
  // What of the destination the AHs and the UD QPs need.
  void need_paths(Needs* needs);
  // As query_gid(), for the source of a path; also while the device is away.
  int query_source(const ibv_ah_attr& path, ibv_gid_entry* out);

  // --- Connections that are made after a move (context_meetings.cc)

  bool must_introduce(const Qp& qp, const ibv_qp_attr& attributes) override;
  int introduce(Qp& qp, const ibv_qp_attr& attributes, int mask) override;
  int part(Qp& qp, const std::function<int()>& reset) override;
  // Whether anything that the peer at the other end of `path` has to know of the QP is not what the
  // application knows.
  bool has_news(const Qp& qp, const ibv_ah_attr& path);
  void begin_meeting(Qp& qp, Talk& talk);
  void suspended(Qp& qp, Talk& talk, std::uint32_t attempt);
  void sought(Qp& qp, Talk& talk);
  // Nobody will introduce the QP and its peer.
  void connect_alone(Qp& qp, Talk& talk);
  // Nobody receives what this end has written.
  void returned(Qp& qp, Talk& talk);

  const std::shared_ptr<device::Rnic> rnic_;
  device::EventSink& sink_;
  device::MoveSink& moves_;
  mutable Calls calls_;
  Returns returns_;
  Gids gids_;
  Datagrams datagrams_;
  AsynchronousEvents events_;
  std::string name_;  // of the device, where the program is
  int command_descriptor_ = -1;
  std::unique_ptr<Numbers> numbers_;  // null: no number has changed; set while all calls wait
  std::mutex mutex_;                  // guards objects_
  std::unordered_map<device::Object*, std::unique_ptr<device::Object>> objects_;
  std::mutex moved_mutex_;  // guards moved_gids_
  std::set<port::Address> moved_gids_;
  std::mutex talks_mutex_;  // guards what follows
  std::unordered_map<Qp*, Talk> talks_;
  std::vector<device::Letter> letters_;
  std::uint32_t attempts_ = 0;
  std::set<Qp*> late_;                      // Qp::resume() is to be called again
  bool is_stopped_ = false;                 // between quiesce() and resume()
  bool is_drained_ = false;                 // the queues are stopped
  bool is_made_anew_ = false;               // since quiesce()
  std::unique_ptr<device::Context> inner_;  // ends first: it may raise events. Null while parked
};

}  // namespace ferry::virt
