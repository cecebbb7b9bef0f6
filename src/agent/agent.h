#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "agent/correspondence.h"
#include "agent/peer_watch.h"
#include "agent/protocol.h"
#include "agent/registry.h"

// The library's side of the talk with ferryd (protocol.h): one thread per process, `ferry-agent`,
// with all signals but SIGSEGV and SIGBUS blocked. Without a ferryd it holds no descriptor and
// looks for one every second. While the process is Stopped it holds no descriptor either.
namespace ferry::agent {

class Agent {
 public:
  // `registry` and `control` live as long as the agent.
  Agent(Registry& registry, ControlBlock& control);
  // Ends the thread. The library's own agent is never destroyed.
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Starts the thread unless it runs. Gives 0 or errno: without the thread the program runs, but
  // cannot be moved.
  int start();
  // In a child after fork(), where the thread does not exist: closes the parent's connection. The
  // object is of no more use.
  void abandon_in_child();

  // Returns when ferryd has been sent the letters that contexts have written, and after `limit` in any case.
  void await_letters_sent(std::chrono::milliseconds limit);
  // A context has something in device::MovableContext::sought() or take_letters(), or its moved_datagram_qps() have
  // changed: the agent tells ferryd. Any thread may call; never blocks.
  void has_news();

 private:
  struct Halt;  // the contexts of a stop, and how far each has come (agent.cc)

  static void* thread_main(void* self);
  void run();
  void serve(int socket);
  bool answer_status(int socket);
  static bool give_userfaultfd(int socket, const Message& message);
  // Gives a connected socket after a move or a rollback by ferryd; -1 when the stop did not happen
  // and `socket` is still good; -2 when it is not.
  int stop(int socket, const Message& message);
  int come_back(Halt& halt, std::uint64_t move_id);
  bool take_back(Halt& halt, Message& message, std::uint64_t move_id, int socket);
  ControlBlock::Command watch(std::uint32_t limit_ms);
  bool tell_peers_know(int socket);
  bool ask_for_peers(int socket);
  void take_located(const Message& message);
  void take_moved_names(const Message& message);
  bool tell_datagram_qps(int socket);
  void await_datagram_qps_told(int socket);
  // Handles a message that is neither STOP nor TRACK. False: the connection is of no more use.
  bool take(int socket, const Message& message);
  bool suspend(int socket, const Message& message);
  bool take_letters(int socket, const Message& message);
  bool send_letters(int socket);
  int next_look() const;
  bool wait(int socket, int timeout_ms, bool* asked);
  Register registration() const;
  void set_socket(int socket);
  void pause(std::chrono::milliseconds time);

  Registry& registry_;
  ControlBlock& control_;
  const std::string build_;
  PeerWatch peers_;
  Correspondence correspondence_;
  DatagramQps told_;                  // what ferryd has been told over this connection
  bool are_told_ = true;              // ferryd has answered told_
  std::optional<Message> postponed_;  // what serve() takes first

  std::mutex mutex_;
  std::condition_variable wake_;
  std::uint64_t rounds_begun_ = 0, rounds_done_ = 0;  // of send_letters()
  pthread_t thread_{};
  bool started_ = false;
  std::atomic<bool> ending_{false};
  std::atomic<int> socket_{-1};  // the open connection
  std::mutex telling_;
  int news_event_ = -1;  // while there is a connection
};

}  // namespace ferry::agent
