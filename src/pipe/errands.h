#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/unique_fd.h"
#include "pipe/driver/session.h"

namespace ferry::pipe {

// What may wait for as long as a program likes: closing a descriptor that it has given (a TCP socket that lingers, a
// file of FUSE), or asking about one that it has locked. Threads do it that nobody waits for. Each party has one at a
// time, so that it keeps no other party waiting. Any thread may call.
class Errands {
 public:
  using Party = std::pair<std::uint64_t, std::uint64_t>;

  explicit Errands(unsigned most_threads);
  Errands(const Errands&) = delete;
  ~Errands();

  void run(Party party, std::function<void()> errand);
  void close(Party party, UniqueFd descriptor);
  // Whoever drops it last does not wait for its close.
  Given keep(Party party, UniqueFd descriptor);
  // Errands that are not done.
  std::size_t waiting(Party party) const;
  std::size_t waiting() const;

 private:
  struct State;
  static void run_in(const std::shared_ptr<State>& state, Party party,
                     std::function<void()> errand);
  static void work(const std::shared_ptr<State>& state, bool stays);

  // Of the threads as well: those that wait still outlive this.
  const std::shared_ptr<State> state_;
};

}  // namespace ferry::pipe
