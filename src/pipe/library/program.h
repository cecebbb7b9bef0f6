#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
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

  ~Program();  // after end(), or before begin_thread()
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Asks the driver: 0, errno, or pipe::kForeign. `descriptor` goes with the request; those of the answer come in
  // `descriptors`. Waits for the next driver where this one was killed, and asks that. The caller has the mutex of the
  // request's socket. `then`: is called before anybody else asks, if the answer is 0. ENOBUFS: that driver has no
  // memory for the rings of this socket.
  int ask(const pipe::ControlRequest& request, pipe::ControlReply* reply,
          std::vector<UniqueFd>* descriptors = nullptr, int descriptor = -1,
          const std::function<void()>& then = {});
  // The driver has ended, and no other one has come.
  bool is_over() const { return over_; }

  Socket& at(const pipe::SocketId& id) const { return *table_.at(id.number); }
  // Null: there is no such socket.
  Socket* find(int sid) const;
  // The driver has made a socket: its place in the table, which is empty. The caller fills it, in ask()'s `then`.
  Socket* place(const pipe::SocketId& id, std::uint16_t family);
  void clear(Socket& socket);
  // What it has sent is not done, and it is kind kEnding: it is closed later.
  void close_later(Socket& socket);
  // The driver has given it the block. The caller has its mutex.
  void add_block(Socket& socket, std::uint64_t offset, const Socket::Block& block);
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
  int ended() const { return ended_.get(); }  // readable from when it is over on
  void want_notice() { pipe::want(memory().notice_wanted); }
  // Somebody else has to look: this thread had the notice, and goes.
  void pass_notice_on();
  std::atomic<int> sleepers{0};
  // No other program of this process has had it: what threads keep may be of a former one.
  const std::uint64_t number;

 private:
  struct Session {
    std::string path;  // where the driver is
    std::uint64_t name = 0;
    std::chrono::milliseconds away{0};  // so long it waits for another one
    std::uint32_t lanes = 0;
    unsigned submission_batch = 0, completion_batch = 0;
  };
  void end();
  Program(Session session, UniqueFd control, std::vector<UniqueFd> descriptors, Mapping queues);
  pipe::QueueMemory& memory() const {
    return *reinterpret_cast<pipe::QueueMemory*>(queues_.base());
  }
  static void note(Socket& socket, const pipe::Entry& entry);
  void keep_early(const pipe::Entry& entry);
  void reap_all();

  // The thread of the program (restart.cc), which finds the next driver and tells it what the program has.
  void begin_thread();
  void run();
  void rest();
  bool find_driver();
  int resume(int control, std::chrono::steady_clock::time_point until);
  bool await_stop(std::chrono::milliseconds time);
  void restore_all();
  void set_over();
  void finish_closing();
  // The caller has the socket's mutex, of a driver of this epoch. False, kLost: that was killed.
  bool give_up(Socket& socket, std::uint64_t epoch);
  enum class Restored { kYes, kLost, kLater };  // kLater: there is no memory for its rings
  Restored restore(Socket& socket, std::uint64_t epoch);
  bool restore_connection(Socket& socket, std::uint64_t epoch);
  bool say_sends(Socket& socket, std::uint64_t epoch);
  // As ask(), and EPIPE where the driver of this epoch was killed.
  int tell(std::uint64_t epoch, const pipe::ControlRequest& request,
           const std::vector<int>& descriptors = {}, const std::function<void()>& then = {});
  void lose();
  bool is_lost(std::uint64_t epoch);

  static void before_fork();
  static void after_fork();
  static void in_child();

  const Session session_;
  UniqueFd control_, memory_, doorbell_, notice_;
  UniqueFd ended_, wake_;
  Mapping queues_;
  const std::uint32_t lanes_;
  const unsigned batch_;
  std::atomic<unsigned> not_rung_{0};
  std::atomic<bool> over_{false};
  std::atomic<unsigned> waits_{0};
  std::mutex control_mutex_, reap_mutex_;
  std::condition_variable changed_;       // of what follows, which control_mutex_ guards
  std::atomic<bool> is_connected_{true};  // and reads without it
  std::atomic<std::uint64_t> epoch_{1};   // likewise: counts drivers
  std::uint64_t restored_ = 1;            // the last one that knows all sockets
  std::uint32_t newest_ = 0;              // generation of a socket
  std::atomic<bool> stops_{false};
  std::atomic<unsigned> closing_{0};  // sockets of kind kEnding
  std::thread thread_;
  std::vector<pipe::CompletionReader> readers_;
  // Of sockets that the driver has made and place() does not know yet, by number.
  std::map<std::uint16_t, pipe::Entry> early_;

  mutable std::mutex table_mutex_;
  std::array<std::atomic<Socket*>, 65536> table_{};  // none is deleted before the program
  std::atomic<std::size_t> places_{0};               // of the table, that have been used
};

}  // namespace ferry::pd
