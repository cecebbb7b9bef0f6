#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "pipe/driver/driver.h"

namespace ferry::pipe {

// A thread that deals with what some programs have submitted, and sleeps when there is nothing. After
// the last entry it looks for more during `patience`, and lets every other thread of its processor go
// first: who answers at once finds it awake. Where these others take long, because the processor has
// other things to do, it sleeps at once for a while: who is woken goes before them.
class Copier {
 public:
  // `processor`: where it runs. `completions`: of an engine that copies by itself, else -1.
  Copier(Driver& driver, std::optional<int> processor, std::chrono::microseconds patience,
         int completions);
  ~Copier();

  void add(std::shared_ptr<Session> session);
  void remove(const Session& session);
  // There is something that no doorbell tells of.
  void wake();

 private:
  using Sessions = std::vector<std::shared_ptr<Session>>;

  void run(std::optional<int> processor);
  bool pass(const Sessions& sessions);
  bool look_on();
  void sleep(const Sessions& sessions);

  Driver& driver_;
  const std::chrono::microseconds patience_;
  UniqueFd epoll_, wake_;
  std::chrono::steady_clock::time_point busy_until_;  // by its own thread
  int sleeps_at_once_ = 0;                            // likewise: so often
  std::mutex mutex_;
  std::shared_ptr<const Sessions> sessions_ = std::make_shared<Sessions>();
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace ferry::pipe
