#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "agent/protocol.h"
#include "base/unique_fd.h"
#include "host/journal/process_slots.h"

// ferryd's end of the control protocol (agent/protocol.h): the UNIX socket, the processes that are
// registered, and what CRIU's plugin and action scripts ask. A peer's pid and user come from the
// kernel (SO_PEERCRED), never from a message. A registration ends with its process, also when
// another process holds the connection open.
namespace ferry::host {

// A running process with the library, as REGISTER or AWAKE announced it.
struct FerryProcess {
  pid_t pid = 0;  // in ferryd's pid namespace
  std::uint64_t control_block = 0;
  std::string build;
};

// What a process that has woken up is to do.
struct WakeUp {
  // Nothing: STAY. The server closes its descriptors when they were sent.
  std::optional<ResumeSlots> resume;
  std::uint32_t retry_ms = 10;
};

// Called from the threads of the connections; every call may block.
class ControlHandler {
 public:
  virtual ~ControlHandler() = default;
  virtual agent::Done pause_tree(pid_t root) = 0;
  virtual agent::Done frozen(pid_t pid) = 0;
  virtual agent::Done dump_failed(pid_t pid) = 0;
  virtual agent::Done claim(pid_t criu, const std::string& note) = 0;
  virtual agent::Done restore_failed(pid_t criu, const std::string& note) = 0;
  virtual agent::Done restored(const agent::Restored& process) = 0;
  virtual agent::Done action(const agent::Action& action) = 0;
  virtual WakeUp awake(pid_t pid, const agent::Awake& awake) = 0;
  virtual void resumed(pid_t pid, const agent::Resumed& resumed) = 0;
  virtual void peers_know(pid_t pid, const agent::PeersKnow& peers) = 0;
  // These four must not wait for the process: its answers come through the same thread.
  virtual void datagram_qps(pid_t pid, const std::vector<device::DatagramQps>& contexts) = 0;
  virtual void registered(pid_t pid) = 0;
  virtual void letters(pid_t pid, agent::Letters letters) = 0;
  // The answer, if there is one, is given by ControlServer::located().
  virtual void locate(pid_t pid, const agent::Locate& question) = 0;
};

class ControlServer {
 public:
  // Replaces a stale socket; throws Failure when another ferryd serves it. Nobody is served yet:
  // those who connect wait. `connections_of_user`: the most connections of a user other than root,
  // and of the root of a container.
  explicit ControlServer(std::string path, std::size_t connections_of_user = 4096);
  ~ControlServer();
  // From now on threads of this object call the handler, until shut_down().
  void start(ControlHandler& handler);
  // Ends all connections and serves no more: when this returns the handler is called no more, and
  // no process is registered.
  void shut_down();

  const std::string& path() const { return path_; }

  // The folder in which a ferryd with this socket has a second one, `programs_socket`, which serves
  // programs only: root has no rights there. Containers have this folder in the place of /run/ferry
  // (cli/cdi.cc).
  static std::string programs_folder(const std::string& socket);
  static std::string programs_socket(const std::string& socket);

  std::vector<FerryProcess> processes() const;

  // The user whose connection was given this ticket, while that connection lives.
  std::optional<uid_t> user_of(const std::string& ticket) const;

  // Asks a process. Throws Failure (not registered, no answer in time).
  agent::StatusReply status(pid_t pid, std::chrono::milliseconds timeout);
  // Asks all processes at once, and gives the answers that come in time. Halted processes are not
  // asked.
  std::map<pid_t, agent::StatusReply> statuses(std::chrono::milliseconds timeout);
  // Asks these of the processes only.
  std::map<pid_t, agent::StatusReply> statuses(const std::set<pid_t>& pids,
                                               std::chrono::milliseconds timeout);
  // Gets a userfaultfd from the process, which tracks what the process writes. Throws Failure.
  UniqueFd track(pid_t pid, std::chrono::milliseconds timeout);
  // Sends SUSPEND: true when all peers of the process are suspended. Throws Failure.
  bool suspend(pid_t pid, const agent::Suspend& request, std::chrono::milliseconds timeout);
  // Gives letters to the process; an error for each. Throws Failure.
  agent::Delivered deliver(pid_t pid, const agent::Letters& letters,
                           std::chrono::milliseconds timeout);
  // Sends STOP. The answer has the descriptors in its slots; they belong to the caller. Throws
  // Failure.
  agent::Stopped stop(pid_t pid, const agent::Stop& request, std::chrono::milliseconds timeout);
  // Tells the process that its stand-ins answer. Returns when the process has let go of its sockets
  // and of the connection (it is not registered any more). Throws Failure.
  void stop_taken(pid_t pid, std::chrono::milliseconds timeout);
  // Tells a process where its peers are; one that has ended is told nothing.
  void located(pid_t pid, const agent::Located& answer);
  // Tells a process where programs that have moved are. One that does not take it is dropped.
  void moved_names(pid_t pid, const device::MovedNames& moved);
  // Breaks the connection: a process that waits for stop_taken() goes on by itself, with its own
  // sockets.
  void drop(pid_t pid);

 private:
  struct Connection;
  using TakeStatus = std::function<void(const agent::StatusReply* reply)>;  // null: it has ended

  void accept_loop(const UniqueFd& listener, bool programs_only);
  void serve_new(UniqueFd socket, bool programs_only);
  void serve(const std::shared_ptr<Connection>& connection);
  void handle(const std::shared_ptr<Connection>& connection, agent::Message& message);
  // What programs say:
  template <typename Body>
  void parse_and_take(const std::shared_ptr<Connection>& connection, const agent::Message& message);
  void take(const std::shared_ptr<Connection>& connection, const agent::Register& registration);
  void take(const std::shared_ptr<Connection>& connection, const agent::Awake& awake);
  void take(const std::shared_ptr<Connection>& connection, const agent::Resumed& resumed);
  void take(const std::shared_ptr<Connection>& connection, const agent::Locate& question);
  void take(const std::shared_ptr<Connection>& connection, agent::Letters letters);
  void take(const std::shared_ptr<Connection>& connection, const agent::DatagramQps& qps);
  void take(const std::shared_ptr<Connection>& connection, const agent::PeersKnow& peers);
  static void take_answer(Connection& connection, agent::Message& message);
  template <typename Body, typename Call>
  static void answer_criu(Connection& connection, const agent::Message& message, Call call);
  void register_process(const std::shared_ptr<Connection>& connection,
                        const agent::Register& registration);
  void answer_ticket(const std::shared_ptr<Connection>& connection);
  std::string give_ticket(const std::shared_ptr<Connection>& connection);
  std::shared_ptr<Connection> find(pid_t pid) const;
  static void ask_status(Connection& connection, TakeStatus take);
  static bool take_status(Connection& connection, const agent::Message& message);
  static void close(Connection& connection);
  agent::Message ask(Connection& connection, agent::MessageType type,
                     std::span<const std::byte> body, std::span<const int> descriptors,
                     agent::MessageType answer, std::chrono::milliseconds timeout);

  std::string path_;
  ControlHandler* handler_ = nullptr;  // null until start()
  const std::size_t connections_of_user_;
  UniqueFd lock_, listener_, programs_listener_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::map<pid_t, std::shared_ptr<Connection>> processes_;
  std::map<Connection*, std::shared_ptr<Connection>> connections_;
  std::map<std::string, uid_t> tickets_;
  bool stopping_ = false;
  std::thread acceptor_, programs_acceptor_;
};

}  // namespace ferry::host
