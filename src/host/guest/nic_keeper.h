#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "host/guest/configure_nic.h"
#include "host/guest/nic_note.h"
#include "host/timeline/timeline.h"

namespace ferry::host {

// A NIC is unplugged before its machine moves, and another one with the same MAC is plugged in afterwards. To the guest
// that is a new interface without a configuration. The keeper notes how a NIC is configured, and when there is another
// one with its MAC, has the kernel configure that the same. What somebody else in the guest has configured
// already stays. The notes are in a file: the next ferryd goes on with them.
class NicKeeper {
 public:
  struct Setup {
    std::string file;  // of the notes
    MakeRdmaDevice make_device = make_rdma_device;
    std::string sysfs = kInfinibandClass;
    // Between tries: udev and others may be at the interface as well.
    std::vector<std::chrono::milliseconds> pauses = {
        std::chrono::milliseconds(20),  std::chrono::milliseconds(50),
        std::chrono::milliseconds(100), std::chrono::milliseconds(200),
        std::chrono::milliseconds(500), std::chrono::milliseconds(1000),
        std::chrono::milliseconds(2000)};
    // systemd-networkd takes away what others have configured when it comes to the interface itself: for so long the
    // keeper gives that again.
    std::chrono::milliseconds hold = std::chrono::seconds(10);
  };

  using WhenBack = std::function<void(const Timeline::Span& configured)>;

  // In the network namespace of the caller.
  explicit NicKeeper(Setup setup);
  ~NicKeeper();
  NicKeeper(const NicKeeper&) = delete;

  // Is called, from now on, when a NIC that was noted is there again, as far as programs need it, and no other one that
  // was noted is awaited; null: nobody is.
  void when_back(WhenBack call);
  // The kernel's RDMA devices on these NICs.
  std::set<std::string> devices_on(const std::vector<std::string>& macs) const;
  // Returns when the notes are on the disk. A NIC that is not there, or has not got back all that was noted before, has
  // the former note still. Throws Failure.
  void note(const std::vector<std::string>& macs);
  // NICs that are there still are not going to be unplugged: gives them what they lack, and forgets them.
  void stay();

 private:
  using Clock = std::chrono::steady_clock;
  struct Kept {
    NicNote note;
    unsigned tries = 0;
    Clock::time_point next = {};                       // try
    std::optional<Clock::time_point> held_until = {};  // when it has got all
    bool is_told = false;                              // that it is back
  };

  void load();
  void save() const;  // throws Failure
  void run();
  void tell_back();
  bool await_news(Clock::time_point until) const;
  bool drain_news() const;
  bool is_settled(Kept& kept);
  struct Given {
    std::string lack;        // what it lacks still, one line; empty: nothing
    bool is_usable = false;  // programs can use its devices
  };
  Given give(const Kept& kept, const Nic& nic);

  const Setup setup_;
  const UniqueFd interfaces_,
      woken_;  // readable when interfaces have changed; when the thread is to look
  std::atomic<bool> is_ending_{false};
  std::mutex when_back_mutex_;  // held while it is called
  WhenBack when_back_;
  std::mutex mutex_;  // a NIC is configured by one thread
  std::vector<Kept> kept_;
  // Of the thread: interfaces or addresses have changed; it has changed some itself; NICs that are back.
  bool has_news_ = true, has_made_ = false;
  std::vector<Timeline::Span> back_;
  std::thread thread_;
};

}  // namespace ferry::host
