#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cm/message.h"
#include "device/objects.h"
#include "gsi/holder.h"
#include "port/port.h"
#include "port/slot.h"
#include "rnic/completion_events.h"
#include "rnic/destinations.h"
#include "rnic/environment.h"
#include "rnic/held_packets.h"
#include "rnic/lanes.h"
#include "rnic/multicast.h"
#include "rnic/object_tables.h"
#include "rnic/poll_yields.h"
#include "rnic/qp_table.h"
#include "rnic/scheduler.h"
#include "rnic/seeker.h"
#include "rnic/settings.h"
#include "rnic/suspension.h"
#include "rnic/thread_sleep.h"
#include "rnic/timers.h"
#include "transport/location_table.h"
#include "transport/movable.h"
#include "wire/header.h"

// The engine of one RNIC: takes packets from its ports to QPs, lets QPs transmit in turn, and runs
// their timers. It has no thread of its own: whoever posts or polls runs it, and the progress
// thread when nobody does.
namespace ferry::rnic {

class QueuePair;
class ProgressThread;

// Packets that were dropped before they reached a QP, by reason.
struct DropCounters {
  std::uint64_t bad_icrc = 0;   // also shorter than a header
  std::uint64_t malformed = 0;  // headers or lengths that contradict each other
  std::uint64_t unknown_qp = 0;
};

class Adapter {
 public:
  // The latter two are those of the holder().
  Adapter(Environment& environment, const Settings& settings, gsi::Holder::Bind bind, bool watches);
  ~Adapter();
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  // The engine's lock, with thread cancellation off while it is held. On release it does what must
  // not be done under the lock: waking the progress thread.
  class Lock {
   public:
    explicit Lock(Adapter& adapter);
    Lock(Adapter& adapter, std::try_to_lock_t);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    bool owned() const { return lock_.owns_lock(); }

   private:
    Adapter& adapter_;
    int cancel_state_ = 0;
    std::unique_lock<std::mutex> lock_;
  };

  Environment& environment() const { return environment_; }
  const Settings& settings() const { return settings_; }
  transport::Time now() const { return environment_.now(); }

  // --- Everything below down to "Any thread" is called under the lock
  // ------------------------------------------------------------------

  Lanes& lanes() { return lanes_; }
  const Lanes& lanes() const { return lanes_; }

  // Takes messages for QP 1, which come to slot 0 (gsi/local.h): MAD, the two addresses. Called
  // under the lock. Without one, nobody has QP 1.
  using Management =
      std::function<void(const cm::Mad&, const port::Address& from, const port::Address& to)>;
  void set_management(Management management) { management_ = std::move(management); }
  // UDP port 4791 of the lanes whose slot is another: where nobody else has it, this RNIC holds it
  // while it has QPs that standard NICs may send to, so that these are reached.
  gsi::Holder& holder() { return holder_; }
  // A QP of the lane may be sent to from now on, by a peer of which it is not known whether it is of
  // our kind: it is to be looked at whether the port is needed.
  void meets_stranger(const Lane& lane);
  // All lanes' are closed, for a stop; after it the QPs meet strangers anew.
  void let_go_of_ports();
  // Others may have let go of the port.
  void look_whether_port_was_freed();

  // Of these all QPs are in the table; add_qp() and remove_qp() know where else they are.
  const QpTable& qps() const { return qps_; }
  QpTable& qps() { return qps_; }
  // Enters a QP in the table, under an index that is free.
  void add_qp(QueuePair* qp, std::uint32_t index);
  void remove_qp(QueuePair* qp, std::uint32_t index);

  ObjectTables& objects() { return objects_; }
  const ObjectTables& objects() const { return objects_; }

  // UD.
  transport::LocationTable& locations() { return locations_; }
  MulticastGroups& multicast() { return multicast_; }
  Destinations& destinations() { return destinations_; }

  HeldPackets& held_packets() { return held_packets_; }
  Suspension& suspension() { return suspension_; }
  const Suspension& suspension() const { return suspension_; }

  // Something happens to the QP: it may have packets to send, and its deadline may have changed.
  // transmit() looks. What depends on whether it is Stopped comes after the touch.
  void touch(QueuePair* qp) { suspension_.touch(qp); }
  // The program has posted to a connection: lets it send now, or soon together with what comes next
  // (PostGatherer). `under_way`: one of its packets is, and will be acknowledged sooner or later.
  void post(QueuePair* qp, bool under_way);
  // Lets touched QPs send, in turn. With `hold`, acknowledgements may be held (Scheduler).
  void transmit(transport::Time now, bool hold = false) {
    if (!suspended()) scheduler_.transmit(now, hold);
  }

  struct Pass {
    std::size_t received = 0;
    bool more = false;  // packets may be left in the sockets
  };
  // Who runs the engine: a program that polls does so again at once, the progress thread when
  // something is due.
  enum class Caller : std::uint8_t { kAnyone, kProgram, kThread };
  // One pass: receive, timers, transmit.
  Pass run(transport::Time now, Caller caller = Caller::kAnyone);

  // No later than the next deadlines of any QP or CQ.
  transport::Deadlines deadlines() const;
  bool port_full() const { return scheduler_.port_full(); }
  const DropCounters& drops() const { return drops_; }

  CompletionEvents& events() { return events_; }
  Seeker& seeker() { return seeker_; }
  ThreadSleep& thread_sleep() { return thread_sleep_; }

  // --- Any thread, without the lock
  // ----------------------------------------------------------------------------------------------------

  // A pass for a program that polls; nothing when somebody else is just at it.
  void run_for_poller();
  std::uint64_t program_runs() const { return program_runs_.load(std::memory_order_relaxed); }
  // Whether the program has polled since there were `runs`, or waits for a core to do so.
  bool polled_since(std::uint64_t runs) const {
    return program_runs() != runs || poll_yields_.away(now());
  }

  // A CQ was armed: the program is about to sleep.
  void listen();
  void set_thread(ProgressThread* thread) { thread_ = thread; }

  bool suspended() const { return suspension_.suspended(); }
  // A forked child: the RNIC is its parent's.
  void abandon() { abandoned_.store(true, std::memory_order_relaxed); }
  bool abandoned() const { return abandoned_.load(std::memory_order_relaxed); }
  // Others hold UDP port 4791, and it is told when it is freed.
  bool awaits_port() const { return awaits_port_.load(std::memory_order_relaxed); }

 private:
  std::size_t receive(transport::Time now, Caller caller, bool* more);
  void handle(Lane& lane, port::Port& port, const port::Received& received, transport::Time now);
  [[gnu::cold]] void handle_other(Lane& lane, port::Port& port, const port::Received& received,
                                  const wire::Packet& packet, transport::Time now);
  QueuePair* find(const Lane& lane, std::uint32_t qpn) const;
  [[gnu::cold]] void flush_passed(port::Port& port);
  std::size_t receive_held(transport::Time now, bool* more);
  [[gnu::cold]] void look_at_held_ports(transport::Time now);
  void handle_multicast(const MulticastGroups::Group& group, const port::Received& received,
                        transport::Time now);
  void run_timers(transport::Time now);
  void handle_overflows(transport::Time now);
  bool may_hold(Caller caller, transport::Time now) const;

  Environment& environment_;
  const Settings settings_;
  std::mutex mutex_;
  Lanes lanes_;
  gsi::Holder holder_;
  transport::Time look_at_held_ports_at_ = transport::kNever;
  static constexpr transport::Time kNotYet = std::chrono::seconds(-1);
  transport::Time looked_at_held_ports_ = kNotYet;
  bool passed_on_ = false;  // to be flushed
  Management management_;
  QpTable qps_;
  ObjectTables objects_;
  transport::LocationTable locations_;
  MulticastGroups multicast_;
  Timers timers_;
  Destinations destinations_;
  CompletionEvents events_;
  ThreadSleep thread_sleep_;
  HeldPackets held_packets_{events_, thread_sleep_};
  Scheduler scheduler_{lanes_, timers_, held_packets_};
  Suspension suspension_{environment_, lanes_, qps_, scheduler_};
  Seeker seeker_;
  DropCounters drops_;

  ProgressThread* thread_ = nullptr;

  std::atomic<std::uint64_t> program_runs_{0};
  PollYields poll_yields_;
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> awaits_port_{false};
  std::array<port::Received, 64> batch_;
};

}  // namespace ferry::rnic
