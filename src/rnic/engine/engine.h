#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "gsi/holder.h"
#include "rnic/engine/completion_events.h"
#include "rnic/engine/endpoints/destinations.h"
#include "rnic/engine/endpoints/lanes.h"
#include "rnic/engine/endpoints/multicast.h"
#include "rnic/engine/endpoints/seeker.h"
#include "rnic/engine/held_packets.h"
#include "rnic/engine/held_ports.h"
#include "rnic/engine/object_tables.h"
#include "rnic/engine/qp_table.h"
#include "rnic/engine/reception.h"
#include "rnic/engine/scheduler.h"
#include "rnic/engine/suspension.h"
#include "rnic/engine/timers.h"
#include "rnic/engine/timing/poll_yields.h"
#include "rnic/engine/timing/thread_sleep.h"
#include "rnic/engine/timing/thread_waker.h"
#include "rnic/system/environment.h"
#include "rnic/system/settings.h"
#include "transport/types.h"
#include "transport/ud/location_table.h"

// The engine of one RNIC: takes packets from its ports to QPs, lets QPs transmit in turn, and runs
// their timers. It has no thread of its own: the threads of the program that post or poll run it,
// and the progress thread when none does.
namespace ferry::rnic {

class Engine {
 public:
  // `bind` and `watches` are those of HeldPorts.
  Engine(Environment& environment, const Settings& settings, gsi::Holder::Bind bind, bool watches);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The engine's lock; thread cancellation is off while it is held. Its release raises the events
  // of CQs, and, after the mutex, wakes the progress thread and tells of names that are sought.
  class Lock {
   public:
    explicit Lock(Engine& engine);
    Lock(Engine& engine, std::try_to_lock_t);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    bool owned() const { return lock_.owns_lock(); }

   private:
    Engine& engine_;
    int cancel_state_ = 0;
    std::unique_lock<std::mutex> lock_;
  };

  Environment& environment() const { return environment_; }
  const Settings& settings() const { return settings_; }
  transport::Time now() const { return environment_.now(); }

  // --- Called under the lock, down to "Any thread" ---------------------------------------------

  Lanes& lanes() { return lanes_; }
  const Lanes& lanes() const { return lanes_; }

  HeldPorts& held_ports() { return held_ports_; }
  Reception& reception() { return reception_; }
  // Called when others may have let go of UDP port 4791.
  void look_whether_port_was_freed() {
    if (!suspended()) held_ports_.look_whether_freed(now());
  }

  QpTable& qps() { return qps_; }
  const QpTable& qps() const { return qps_; }
  // Enters a QP in the table, under a free index, and in whatever else knows all QPs.
  void add_qp(QueuePair* qp, std::uint32_t index);
  void remove_qp(QueuePair* qp, std::uint32_t index);

  ObjectTables& objects() { return objects_; }
  const ObjectTables& objects() const { return objects_; }

  transport::LocationTable& locations() { return locations_; }  // UD
  MulticastGroups& multicast() { return multicast_; }           // UD
  Destinations& destinations() { return destinations_; }

  HeldPackets& held_packets() { return held_packets_; }
  Suspension& suspension() { return suspension_; }
  const Suspension& suspension() const { return suspension_; }

  // Says that something happens to the QP: it may have packets to send, and its deadline may have
  // changed; transmit() looks at it. A caller that depends on whether the QP is Stopped touches it
  // first: until then a resting QP may be Stopped in name only.
  void touch(QueuePair* qp) { suspension_.touch(qp); }
  // The program has posted to a QP: lets the QP send now, or soon together with the next requests
  // (PostGatherer). `under_way`: a packet of the QP is under way, and will be acknowledged sooner
  // or later.
  void post(QueuePair* qp, bool under_way);
  // Lets touched QPs send, in turn. With `hold`, acknowledgements may be held (Scheduler).
  void transmit(transport::Time now, bool hold = false) {
    if (!suspended()) scheduler_.transmit(now, hold);
  }

  struct Pass {
    std::size_t received = 0;
    bool more = false;  // packets may be left in the sockets
  };
  // Who runs the engine: a program that polls runs it again at once, the progress thread when
  // something is due.
  enum class Caller : std::uint8_t { kAnyone, kProgram, kThread };
  // One pass: receive, timers, transmit.
  Pass run(transport::Time now, Caller caller = Caller::kAnyone);

  // The next deadlines, or earlier times: of QPs, of CQs that hold events back, of resting QPs that
  // are resumed in turn, of the held ports.
  transport::Deadlines deadlines() const;
  bool port_full() const { return scheduler_.port_full(); }

  CompletionEvents& events() { return events_; }
  Seeker& seeker() { return seeker_; }
  ThreadSleep& thread_sleep() { return thread_sleep_; }

  // --- Any thread, without the lock ------------------------------------------------------------

  // One pass for a program that polls; none while another thread has the lock, or while suspended.
  void run_for_poller();
  std::uint64_t program_runs() const { return program_runs_.load(std::memory_order_relaxed); }
  // Whether the program has polled since program_runs() was `runs`, or waits for a core to do so.
  bool polled_since(std::uint64_t runs) const {
    return program_runs() != runs || poll_yields_.away(now());
  }

  // A CQ was armed, so the program is about to sleep: the progress thread listens from now on.
  void listen() { thread_waker_.listen(); }
  ThreadWaker& thread_waker() { return thread_waker_; }

  bool suspended() const { return suspension_.suspended(); }
  // Called in a forked child: the RNIC is its parent's.
  void abandon() { abandoned_.store(true, std::memory_order_relaxed); }
  bool abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

 private:
  void run_timers(transport::Time now);
  void handle_overflows(transport::Time now);
  bool may_hold(Caller caller, transport::Time now) const;
  bool looks_at_all_lanes(Caller caller) const;

  Environment& environment_;
  const Settings settings_;
  std::mutex mutex_;
  std::atomic<bool> abandoned_{false};

  Lanes lanes_;
  QpTable qps_;
  ObjectTables objects_;
  transport::LocationTable locations_;
  MulticastGroups multicast_;
  Destinations destinations_;
  Seeker seeker_;
  CompletionEvents events_;
  ThreadSleep thread_sleep_;
  ThreadWaker thread_waker_;

  Timers timers_;
  HeldPackets held_packets_{events_, thread_sleep_};
  Scheduler scheduler_{lanes_, timers_, held_packets_};
  Suspension suspension_{environment_, lanes_, qps_, scheduler_};
  HeldPorts held_ports_;
  Reception reception_{lanes_, held_ports_, multicast_, qps_, suspension_};

  PollYields poll_yields_;
  std::atomic<std::uint64_t> program_runs_{0};
};

}  // namespace ferry::rnic
