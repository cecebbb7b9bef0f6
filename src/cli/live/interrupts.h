#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "host/peers/messages.h"

namespace ferry::cli {

// As long as an Interrupts lives, SIGINT has ferryd give up what the command waits for, as soon as that has an id, and
// a second one ends the command alone. A command that ignores the signal (as a shell starts commands in the background)
// goes on doing so.
class Interrupts {
 public:
  // `what`: "move". `add`: asks for what has this id.
  using Add = std::function<void(std::uint64_t id, v1::CancelRequest* request)>;
  Interrupts(std::string what, Add add);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;

  // What is to be given up.
  void begun(std::uint64_t id) { id_ = id; }
  // The user has said so.
  bool are_wanted() const { return are_wanted_; }

 private:
  void wait();
  void give_up(std::uint64_t id) const;

  const std::string what_;
  const Add add_;
  sigset_t signal_;
  std::atomic<std::uint64_t> id_{0};
  std::atomic<bool> is_over_{false}, are_wanted_{false};
  std::thread thread_;
};

// Throws Failure: there is nothing of that, or it is too late.
void cancel(const v1::CancelRequest& request);

}  // namespace ferry::cli
