#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

namespace ferry::virt {

// Looks through the completions that come back from the device behind. A stop puts requests of its
// own into the queues (markers), whose completions are not for the application. Any thread calls
// any function.
class Returns {
 public:
  // Gives the wr_id of a new marker, which is out until sift() finds its completion. `asks`: has_failed()
  // will be asked then.
  std::uint64_t add_marker(bool asks = false);
  // No completion of the marker will come: it was not posted, or its QP was reset or destroyed.
  void withdraw(std::uint64_t marker);
  bool is_out(std::uint64_t marker) const;
  // Whether the marker, which is back, has failed. Is asked once.
  bool has_failed(std::uint64_t marker);

  // From now on flushed receives of this QP are counted in *flushed instead of being given to the
  // application. `qpn`: as the application knows it. `flushed` null: they are not counted any more.
  void count_flushed(std::uint32_t qpn, std::uint32_t* flushed);

  // From now on all completions of this QPN are counted instead of being given to the application; taken() gives
  // their number.
  void count_taken(std::uint32_t qpn);
  std::uint32_t taken(std::uint32_t qpn) const;
  // Ends what count_taken() began: no more completions of the QP come.
  void forget_taken(std::uint32_t qpn);

  // Notes from now on, until forget_use(), whether the application gets completions of this QP. `qpn`: as
  // the application knows it.
  void note_use(std::uint32_t qpn);
  // A completion of this QP waits for the application.
  void keep_use(std::uint32_t qpn);
  // Ends what note_use() began. True: the application got completions.
  bool forget_use(std::uint32_t qpn);

  // Whether completions need sift().
  bool sifts() const { return sifts_.load(std::memory_order_acquire); }
  // Moves the application's completions to the front of the array, and gives their number.
  int sift(ibv_wc* completions, int count);

 private:
  bool is_ours(const ibv_wc& completion);
  void update();

  mutable std::mutex mutex_;
  std::uint64_t next_marker_ = 0;
  std::map<std::uint64_t, bool> markers_;  // whether has_failed() will be asked
  std::set<std::uint64_t> failed_;
  std::map<std::uint32_t, std::uint32_t*> flushed_;
  std::map<std::uint32_t, std::uint32_t> taken_;
  std::map<std::uint32_t, bool> used_;
  std::atomic<bool> sifts_{false};
};

}  // namespace ferry::virt
