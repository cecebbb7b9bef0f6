#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "gsi/holder.h"
#include "rnic/engine/lanes.h"
#include "rnic/engine/qp_table.h"
#include "rnic/engine/thread_sleep.h"
#include "transport/types.h"

namespace ferry::rnic {

// UDP port 4791 of the lanes whose slot is another: where nobody else has it, this RNIC holds it
// while it has QPs that standard NICs may send to, so that these are reached. Under the engine's
// lock, but for awaits().
class HeldPorts {
 public:
  // The former two are those of the gsi::Holder.
  HeldPorts(gsi::Holder::Bind bind, bool watches, const Lanes& lanes, const QpTable& qps,
            ThreadSleep& thread)
      : holder_(std::move(bind), watches), lanes_(lanes), qps_(qps), thread_(thread) {}

  const std::map<port::Address, std::unique_ptr<port::Port>>& ports() const {
    return holder_.ports();
  }
  // Readable when look_whether_freed() is to be called; -1: it need not be.
  int watch_descriptor() const { return holder_.watch_descriptor(); }

  // A QP of the lane may be sent to from now on, by a peer of which it is not known whether it is of
  // our kind: it is to be looked at whether the port is needed.
  void meets_stranger(const Lane& lane, transport::Time now);
  // All lanes' are closed, for a stop; after it the QPs meet strangers anew.
  void let_go();
  // Others may have let go of the port.
  void look_whether_freed(transport::Time now);

  // When it is to be looked at next whether the ports are needed.
  transport::Time next() const { return look_at_; }
  void run(transport::Time now) {
    if (look_at_ <= now) look(now);
  }

  // Others hold UDP port 4791, and it is told when it is freed.
  bool awaits() const { return awaits_.load(std::memory_order_relaxed); }
  // A forked child: the ports are its parent's.
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
