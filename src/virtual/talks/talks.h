#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "device/movable.h"
#include "virtual/messages/letters.h"
#include "virtual/queues/marker_objects.h"
#include "virtual/queues/queue_pair.h"
#include "virtual/shadows/device_behind.h"
#include "virtual/shadows/shadow_table.h"
#include "virtual/stop/calls.h"
#include "virtual/talks/late_qps.h"
#include "virtual/talks/qp_stops.h"
#include "virtual/talks/quiet_qps.h"
#include "virtual/windows/windows.h"

namespace ferry::virt {

// The talks of a context's QPs with their peers around a move (letters.h): of QPs that move with the
// context, of QPs whose peers move, and of QPs that the program connects after a move.
class Talks final : public Introducer {
 public:
  // `watch`: for how long nothing may go over a QP that leaves the device before a stop.
  Talks(ShadowTable& shadows, DeviceBehind& device, Calls& calls, MarkerObjects& markers,
        QpStops& stops, Windows& windows, device::MoveSink& moves, std::chrono::milliseconds watch)
      : shadows_(shadows),
        device_(device),
        calls_(calls),
        markers_(markers),
        stops_(stops),
        windows_(windows),
        moves_(moves),
        watch_(watch),
        late_(device) {}

  // While the lock lives, no QP is destroyed, and no talk goes on.
  std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }

  // --- As device::MovableContext has them

  void suspend_peers();
  void release_peers();
  bool peers_are_suspended();
  void take_letters(std::vector<device::Letter>* out);
  int deliver(const device::Letter& letter);
  bool progress();
  bool awaits_letters();
  void repeat_letters();
  void tell_peer(const device::Letter::End& own, const device::Letter::End& peer,
                 device::CmNews news);
  // Replaces the GIDs of programs that have moved.
  void moved(std::set<port::Address> gids);

  // --- The stop of the context. The caller has hold().

  // False: a peer is not suspended, or is in the midst of a move of its own, or idle QPs have not left yet.
  bool can_stop();
  // The device has nothing to do any more.
  void stopped();
  // The context has entered a device: makes the objects of all QPs but late ones. 0 or errno.
  int make_qps();
  // After make_qps(): gives the QPs that wait for no peer; the other ones stay away (Qp::stay_away()).
  std::vector<Qp*> made_anew();
  // Each QP goes on, at once or when its peer does.
  void resume(bool is_made_anew);
  // Whether a late QP, of which the device does not know, needs the object.
  bool is_needed(const device::Object& object);
  // The QP was reset or destroyed.
  void forget(Qp& qp);

  // --- Introducer (meetings.cc)

  bool must_introduce(const Qp& qp, const ibv_qp_attr& attributes) override;
  int introduce(Qp& qp, const ibv_qp_attr& attributes, int mask) override;
  int part(Qp& qp, const std::function<int()>& reset) override;

 private:
  struct Talk {
    // rdma_cm of this end's kernel has made the connection, and does not know it any more.
    bool is_detached = false;
    // When this end moves:
    std::uint32_t attempt = 0;       // the number of the latest SUSPEND that this end has written
    bool is_told = false;            // this end has written SUSPEND because it moves
    bool peer_is_suspended = false;  // the peer has said so by SUSPENDED
    bool peer_is_in_use = false;     // the peer has said so by SUSPENDED
    bool is_meeting = false;         // this end has written SUSPEND: it was connected after a move
    bool awaits_peer = false;        // SWITCHED, or the peer's own SWITCH, is still to come
    bool is_met = false;             // the peer's SWITCH has come, SWITCHED has not
    bool asks_again = false;         // and this end has repeated its own SWITCHED
    // When this end is about to move, and the QP is idle (idle_qps.cc): SUSPEND is written; then the steps by
    // which the QP leaves the device, in this order. kDrain: the peer has not suspended this end.
    enum class Leave : std::uint8_t { kNo, kAsked, kDrain, kFlush };
    Leave leave = Leave::kNo;
    // When the peer moves: the steps of this end, in this order.
    enum class Step : std::uint8_t { kNone, kDrain, kSuspended, kFlush, kConnected };
    Step step = Step::kNone;
    std::uint32_t peers_attempt = 0;
    bool peer_asks_for_use = false;  // LetterBody::asks_for_use
    bool peer_goes_on =
        false;  // the peer's QP is in use, so that SWITCH comes as soon as it has moved
    bool is_in_use = false;  // whether the QP was in use when it was suspended
    std::optional<Introduction> peer;
    // Letters come back, because nobody receives them: the peer is gone, or stands still. kOnce: this end writes
    // again. kAgain: it has written again since.
    enum class Missed : std::uint8_t { kNo, kOnce, kAgain };
    Missed missed = Missed::kNo;
    bool is_alone = false;  // the peer was taken for gone: its introduction would come too late
  };

  // Whether the peer that these attributes name is a QP of this context.
  bool is_own(const ibv_qp_attr& attributes);
  // Gives the QP of this number that is connected with `peer`, or null.
  Qp* connected(std::uint32_t qpn, const device::Letter::End& peer);
  // Whether the QP is connected with a QP of another context, which has to be told of a move.
  bool has_remote_peer(Qp& qp);
  bool has_suspended_peer(Qp& qp);
  // Whether the QP's talk is at a step that a stop cannot interrupt.
  bool is_in_the_midst(Qp& qp);
  // Whether the device can do nothing for the QP: in a stop, while the QP is late, or is about to be.
  bool is_stopped(Qp& qp) { return is_stopped_ || !qp.has_object() || is_leaving(qp); }
  // Whether the QP can be late.
  bool can_be_late(Qp& qp);
  // A late QP gets its object, and goes on with its talk. 0 or errno.
  int make_late(Qp& qp);
  // Makes some of the late QPs. True: not all are made.
  bool make_some();

  void write(Qp& qp, LetterKind kind);
  void write(Qp& qp, LetterBody body);
  void write_suspend(Qp& qp, const Talk& talk);
  void write_suspended(Qp& qp, const Talk& talk);
  Introduction introduction_of(const Qp& qp, const ibv_ah_attr& path);
  // Gives the kind of the letter of a talk whose answer has not come; std::nullopt: there is none.
  static std::optional<LetterKind> unanswered(const Qp& qp, const Talk& talk);

  // --- The end that moves (moving_end.cc)

  void tell(Qp& qp);
  void release_peer(Qp& qp, Talk& talk);
  void resume_talk(Qp& qp, Talk& talk, bool is_made_anew);
  void take_suspended(Qp& qp, Talk& talk, const LetterBody& letter);

  // --- The idle QPs of the end that is about to move (idle_qps.cc)

  bool can_leave_early(Qp& qp);
  // Has the peers of idle QPs suspended, or else those of all.
  void suspend_idle();
  // Has all peers suspended that have not been asked yet.
  void suspend_all();
  // Carries the QPs on that leave. True: ask again.
  bool leave_some();
  // True: the QP has left the device, or stays for the stop.
  bool leave_step(Qp& qp, Talk& talk);
  void flush_or_stay(Qp& qp, Talk& talk);
  // Whether the QP is being flushed.
  bool is_leaving(Qp& qp);
  // The QPs that have not left stay, because there is no stop.
  void keep_idle();
  // Whether it is too early for a stop.
  bool are_idle_leaving() const {
    return suspending_ == Suspending::kWatch || suspending_ == Suspending::kIdle ||
           !leaving_.empty();
  }

  // --- Its peer (peer_end.cc)

  void begin_suspension(Qp& qp, Talk& talk);
  void go_on(Qp& qp, Talk& talk);
  // The QP goes on, unless this end waits for its peer, or the peer has asked for its suspension.
  void let_go(Qp& qp, Talk& talk);
  void take_introduction(Qp& qp, Talk& talk, LetterKind kind, const Introduction& introduction);
  void take_ready(Qp& qp, Talk& talk);
  // True: the step is not done.
  bool drain_step(Qp& qp, Talk& talk);
  bool flush_step(Qp& qp, Talk& talk);
  // The QP is suspended: the peer hears of it.
  void suspended(Qp& qp, Talk& talk);
  // Gets ready for SWITCH, and ends what it has left. True: not all is done.
  bool set_up_partners();

  // --- Connections that are made after a move (meetings.cc)

  // Whether the device's GID, QPN or rkeys of the QP are not those that the application knows, so that the
  // peer at the other end of `path` has to be told.
  bool has_news(const Qp& qp, const ibv_ah_attr& path);
  void begin_meeting(Qp& qp, Talk& talk);
  void take_seek(Qp& qp, Talk& talk);
  // Connects the QP, because nobody will introduce the QP and its peer.
  void connect_alone(Qp& qp, Talk& talk);
  // A letter has come back: nobody receives what this end writes.
  void take_back(Qp& qp, Talk& talk);

  // --- Peers that are gone (gone_peers.cc)

  // A letter has come back to an end that waits for its peer.
  void miss(Qp& qp, Talk& talk);
  // The QP goes on without its peer.
  void go_on_alone(Qp& qp, Talk& talk);

  ShadowTable& shadows_;
  DeviceBehind& device_;
  Calls& calls_;
  MarkerObjects& markers_;
  QpStops& stops_;
  Windows& windows_;
  device::MoveSink& moves_;
  const std::chrono::milliseconds watch_;
  std::mutex moved_mutex_;  // guards moved_gids_
  std::set<port::Address> moved_gids_;
  std::mutex mutex_;  // guards what follows, and stops_
  LateQps late_;
  std::unordered_map<Qp*, Talk> talks_;
  std::vector<device::Letter> letters_;
  std::uint32_t attempts_ = 0;
  // From suspend_peers() until resume() or release_peers() not kNo (idle_qps.cc): letters and progress() make no
  // late QP, because a new QP would be in the midst of a talk with its peer.
  enum class Suspending : std::uint8_t { kNo, kWatch, kIdle, kAll };
  Suspending suspending_ = Suspending::kNo;
  std::uint32_t first_attempt_ = 0;  // the first that can be of this suspension
  QuietQps quiet_;
  std::chrono::steady_clock::time_point watched_until_{};
  std::vector<Qp*> leaving_;  // those that are to leave the device
  std::set<Qp*>
      unprepared_;  // those whose peers are about to move, and for which nothing is prepared yet
  bool is_stopped_ = false;  // between stopped() and resume()
};

}  // namespace ferry::virt
