#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "guest.pb.h"
#include "host/detach/detachments.h"
#include "host/timeline/timeline.h"

namespace ferry::host {

// Programs that have left their devices, from then on until they are back: when their NIC is there again, when the
// host asks for them, or unasked after a limit.
class Absence {
 public:
  // `timeline`: with what the guest has done so far.
  Absence(std::shared_ptr<Detachment> detachment, std::unique_ptr<Timeline> timeline,
          std::chrono::milliseconds limit);
  // Returns when the programs are back, or ThisHost::stopping is set.
  ~Absence();
  Absence(const Absence&) = delete;

  // From now on they may come back: nobody takes away anything any more.
  void may_end();
  // The programs come back as soon as they may, and can.
  void come_back();
  // Returns when the programs are back or have ended, when they wait for something else than `*waiting`, which it is
  // then, or after `limit`. True: they are back, or this ferryd ends.
  bool await(std::string* waiting, std::chrono::milliseconds limit);
  bool is_over() const;
  std::vector<v1::GuestProgram> programs() const;
  Timeline& timeline() { return *timeline_; }

 private:
  void run(std::chrono::milliseconds limit);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const std::unique_ptr<Timeline> timeline_;
  std::shared_ptr<Detachment> detachment_;  // of the thread; null when it is over
  bool may_end_ = false, is_asked_ = false, is_over_ = false;
  std::string waiting_;
  std::vector<v1::GuestProgram> programs_;
  std::thread thread_;
};

}  // namespace ferry::host
