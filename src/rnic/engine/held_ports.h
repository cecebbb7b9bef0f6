#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "gsi/holder.h"
#include "rnic/engine/endpoints/lanes.h"
#include "rnic/engine/qp_table.h"
#include "rnic/engine/timing/thread_sleep.h"
#include "transport/types.h"

namespace ferry::rnic {

// UDP port 4791 at the addresses of the lanes whose slot is not 0. Where nobody else has that port,
// this RNIC holds it while it has QPs that standard NICs may send to, so that their packets reach
// those QPs. Used under the engine's lock, but for awaits().
class HeldPorts {
 public:
  // `bind` and `watches` are those of gsi::Holder.
  HeldPorts(gsi::Holder::Bind bind, bool watches, const Lanes& lanes, const QpTable& qps,
            ThreadSleep& thread)
      : holder_(std::move(bind), watches), lanes_(lanes), qps_(qps), thread_(thread) {}

  const std::map<port::Address, std::unique_ptr<port::Port>>& ports() const {
    return holder_.ports();
  }
  // Readable when look_whether_freed() is to be called; -1: it need not be called.
  int watch_descriptor() const { return holder_.watch_descriptor(); }

  // From now on a peer that is not known to be of our kind may send to a QP of the lane: run() will
  // look whether the port is needed.
  void meets_stranger(const Lane& lane, transport::Time now);
  // Closes all held ports, for a stop. After it the QPs meet strangers anew.
  void let_go();
  // Called when others may have let go of the port.
  void look_whether_freed(transport::Time now);

  // When run() is to look next whether the ports are needed; kNever: no look is due.
  transport::Time next() const { return look_at_; }
  void run(transport::Time now) {
    if (look_at_ <= now) look(now);
  }

  // Whether others hold UDP port 4791, and watch_descriptor() tells when they let go of it.
  bool awaits() const { return awaits_.load(std::memory_order_relaxed); }
  // Called in a forked child: the ports are its parent's.
  void abandon() { holder_.abandon(); }

 private:
  static constexpr transport::Time kNotYet = std::chrono::seconds(-1);
  [[gnu::cold]] void look(transport::Time now);

  gsi::Holder holder_;
  const Lanes& lanes_;
  const QpTable& qps_;
  ThreadSleep& thread_;
  transport::Time look_at_ = transport::kNever;
  transport::Time looked_at_ = kNotYet;
  std::atomic<bool> awaits_{false};
};

}  // namespace ferry::rnic
