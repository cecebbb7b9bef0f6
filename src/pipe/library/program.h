#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/unique_fd.h"
#include "pipe/library/mapping.h"
#include "pipe/library/socket.h"
#include "pipe/protocol/control.h"
#include "pipe/protocol/queues.h"

namespace ferry::pd {

// The program's end of its session with the driver.
class Program {
 public:
  // pd_init(): 0 or errno.
  static int open(const char* engine, unsigned submission_batch, unsigned completion_batch);
  static int close();
  // Null: pd_init() was not called in this process.
  static Program* get();

  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Asks the driver: 0, errno, or pipe::kForeign. `descriptor` goes with the request; those of the
  // answer come in `descriptors`.
  int ask(pipe::ControlRequest request, pipe::ControlReply* reply,
          std::vector<UniqueFd>* descriptors = nullptr, int descriptor = -1);
  bool is_over() const { return over_; }
  void set_over();

  // Null: there is no such socket.
  Socket* find(int sid) const;
  // The driver has made a socket: its place in the table, which is empty. The caller fills it.
  Socket* place(const pipe::SocketId& id, std::uint16_t family);
  void clear(Socket& socket);
  // The socket whose ring holds the address, or null.
  Socket* find_by_address(const void* address) const;

  // Of this socket; the caller has its mutex. False: the queue is full.
  bool submit(Socket& socket, const pipe::Entry& entry);
  // Until the driver has taken some entry, which it does soon: it waits for no program. False: it has ended.
  bool await_driver();
  // Before the driver is asked something that it has to do after what was submitted.
  void settle(const Socket& socket);
  // Wakes the driver if it sleeps. `now`: not only when a batch of requests is full.
  void ring(bool now);
  // The lane of the processor that this thread is on.
  std::uint32_t lane() const;
  // Takes what the driver has told.
  void reap();
  bool has_completions();

  // For those that sleep: the descriptor is readable when there is something to reap, after
  // want_notice() and a last look.
  int notice() const { return notice_.get(); }
  int control() const { return control_.get(); }
  void want_notice() { pipe::want(memory().notice_wanted); }
  // Somebody else has to look: this thread had the notice, and goes.
  void pass_notice_on();
  std::atomic<int> sleepers{0};
  // No other program of this process has had it: what threads keep may be of a former one.
  const std::uint64_t number;

 private:
  Program(UniqueFd control, UniqueFd doorbell, UniqueFd notice, Mapping queues, std::uint32_t lanes,
          unsigned batch);
  pipe::QueueMemory& memory() const {
    return *reinterpret_cast<pipe::QueueMemory*>(queues_.base());
  }
  static void note(Socket& socket, const pipe::Entry& entry);
  void keep_early(const pipe::Entry& entry);
  static void before_fork();
  static void after_fork();
  static void in_child();

  UniqueFd control_, doorbell_, notice_;
  Mapping queues_;
  const std::uint32_t lanes_;
  const unsigned batch_;
  std::atomic<unsigned> not_rung_{0};
  std::atomic<bool> over_{false};
  std::atomic<unsigned> waits_{0};
  std::mutex control_mutex_, reap_mutex_;
  std::vector<pipe::CompletionReader> readers_;
  // Of sockets that the driver has made and place() does not know yet, by number.
  std::map<std::uint16_t, pipe::Entry> early_;

  mutable std::mutex table_mutex_;
  std::array<std::atomic<Socket*>, 65536> table_{};  // none is deleted before the program
  std::atomic<std::size_t> places_{0};               // of the table, that have been used
};

}  // namespace ferry::pd
