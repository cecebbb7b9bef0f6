#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/unique_fd.h"
#include "pipe/driver/connections.h"
#include "pipe/driver/stream.h"
#include "pipe/memory/pool.h"
#include "pipe/network/network.h"
#include "pipe/policy/rate_limit.h"
#include "pipe/protocol/control.h"
#include "pipe/protocol/queues.h"

namespace ferry::pipe {

// Who a program is, by the kernel's word.
struct Peer {
  std::int32_t pid = 0;
  std::uint32_t user = 0;
  std::uint64_t pid_namespace = 0;
  std::shared_ptr<NetworkNamespace> network;
  std::uint64_t started = 0;  // as Process has it

  Process process() const { return {pid, started}; }
  OwnerName owner() const { return {network->id(), pid_namespace, user}; }
};

// The most that programs of a container, or of a user, have together.
struct Limits {
  std::size_t memory, sessions, sockets;
  std::size_t waiting;  // connections that nobody has accepted
};

// Whose a program is: a container, which is a pair of a network and a PID namespace, or a user.
struct Owner {
  Owner(std::uint16_t number, const Limits& its_limits)
      : id(number), limits(its_limits), memory(std::make_shared<Account>(limits.memory)) {}

  const std::uint16_t id;  // of a container
  const Limits limits;
  const std::shared_ptr<Account> memory;
  // Of a container, in bytes each second; 0: none. All that it sends, and what each of its connections sends.
  std::atomic<std::uint64_t> rate{0}, connection_rate{0};
  RateLimit sending;
  std::atomic<std::size_t> sessions{0};
  // The thread of the control calls counts. Sessions: of programs that have not come since this driver began.
  std::size_t sockets = 0, waiting = 0, absent_sessions = 0;
};

using Owners =
    std::vector<std::shared_ptr<Owner>>;  // a container, and its user if that is not root
Accounts accounts_of(const Owners& owners);

// A descriptor that a program has given. To close it may take long: whoever made this says how that is done.
using Given = std::shared_ptr<const UniqueFd>;

struct Socket {
  enum class State { kActive, kListening, kConnected };

  SocketId id;
  std::uint16_t family = 0;
  State state = State::kActive;
  SocketAddress local, peer;
  std::uint64_t ring_sizes[2] = {4 << 20, 4 << 20};  // send, receive
  std::shared_ptr<Ring> rings[2];                    // until it is connected, or while it is
  std::shared_ptr<Stream> out = std::make_shared<Stream>(), in;
  std::shared_ptr<Connection> connection;
  int side = 0;
  bool has_ended = false;              // kEnd
  std::atomic<std::uint32_t> lane{0};  // Session::place()
  // Listening: connections that nobody has accepted, and how many have come in all.
  Given bound;  // the TCP socket that has the address
  std::size_t backlog = 0;
  std::deque<std::shared_ptr<Connection>> waiting;
  std::uint64_t come = 0;
};

// A program: its queues and its sockets.
class Session {
 public:
  // `user`: null for root, who has as many as there are containers.
  Session(std::uint64_t number, Peer peer, std::shared_ptr<Owner> container,
          std::shared_ptr<Owner> user);
  ~Session();

  // The queues, when the program has said hello. False: there is no memory.
  bool open_queues(std::uint32_t count, std::uint32_t completion_batch, Pool& pool);
  struct QueueDescriptors {
    int memory, doorbell, notice;
  };
  // Those that the program has of another driver, at most `most` of each kind; copies of the descriptors are kept, if
  // they are what they have to be: to close any other one may take long. `kept`: memory that counts for them already,
  // or null. 0 or errno.
  std::int32_t resume_queues(const QueueDescriptors& given, std::uint32_t most,
                             std::uint32_t completion_batch, Pool& pool,
                             std::optional<Share>* kept);
  bool is_open() const { return memory_ != nullptr; }
  std::uint32_t lanes() const { return count_; }
  int queue_descriptor() const { return queues_.get(); }
  int doorbell() const { return doorbell_.get(); }
  int notice() const { return notice_.get(); }

  const std::uint64_t number;
  std::uint64_t name = 0;  // the same for every driver; of a program that has said hello
  const Peer peer;
  const std::shared_ptr<Owner> container;
  const Owners owners;
  // For what it gets memory of.
  Accounts accounts() const { return accounts_of(owners); }
  // One more connection finds room in the backlogs of its owners.
  bool may_wait() const;

  // Sockets. The thread of the control calls makes, changes and removes them.
  std::shared_ptr<Socket> add_socket();  // null: there are too many
  void remove_socket(const Socket& socket);
  // Of a socket that the program has, and this driver has not: no other one gets its number until release().
  void hold(std::uint32_t number);
  bool release(std::uint32_t number);  // false: it is not held
  // Until release_reserved() numbers below `numbers` are for sockets that the program has of another driver, up to that
  // generation. It has no more of them than it may have.
  void reserve(std::uint32_t numbers, std::uint32_t newest);
  // `has_place`: it counts already. Null: it cannot be, or there are too many.
  std::shared_ptr<Socket> restore_socket(SocketId id, bool has_place);
  void release_reserved();
  bool knows(std::uint32_t generation) const { return !is_newer(generation, newest_); }
  std::shared_ptr<Socket> find(SocketId id) const;  // null: it has no such socket
  std::vector<std::shared_ptr<Socket>> sockets() const;
  // For what the threads of the data path read of a socket.
  void connect(Socket& socket, std::shared_ptr<Connection> connection, int side);
  // A connection has come for a listening socket.
  void enqueue(Socket& socket, std::shared_ptr<Connection> connection, bool first = false);
  // The one that has waited longest is accepted.
  void dequeue(Socket& socket);
  struct Place {
    std::shared_ptr<Connection>
        connection;  // null: the program has no such socket, or it is not connected
    int side = 0;    // of the connection: 0, it has connected; 1, it has accepted
  };
  // `lane`: the queue by which the program has asked last, and gets its completions.
  Place place(SocketId id, std::uint32_t lane) const;

  // Calls `call(entry, lane)` for submissions, one of each queue in turn, up to `most` of each queue. False:
  // there was none. One thread at a time: an entry is taken when all before it have been dealt with.
  bool take(std::size_t most, const std::function<void(const Entry&, std::uint32_t lane)>& call);
  bool has_submissions() const;

  // The program is to hear of the socket. True: of the first one since the last announce().
  bool mark(std::uint32_t socket);
  // The program has asked for completions in smaller batches than what has been marked.
  bool is_batch_full() const { return marks_ >= completion_batch_; }
  // Writes completions, as far as there is room; the others stay marked.
  void announce();
  bool has_marked() const { return marks_ != 0; }
  // The program is to write to the doorbell when it submits something, until it has done so once.
  void want_doorbell() { want(memory_->doorbell_wanted); }
  void forget_doorbell() { memory_->doorbell_wanted.store(0, std::memory_order_relaxed); }

 private:
  struct Lane {
    SubmissionReader submissions;
    CompletionWriter completions;
  };

  struct Queues {
    UniqueFd memory, doorbell, notice;
  };
  std::shared_ptr<Socket> socket_at(std::uint32_t number) const;
  bool is_held(std::uint32_t number) const { return number < is_held_.size() && is_held_[number]; }
  bool open(Queues queues, std::uint32_t count, std::uint32_t completion_batch);
  bool report(std::uint32_t number, Entry* entry, std::uint32_t* lane) const;

  std::optional<Share> share_;
  UniqueFd queues_, doorbell_, notice_;
  QueueMemory* memory_ = nullptr;
  std::uint32_t count_ = 0;
  std::uint32_t completion_batch_ = 1;
  std::vector<Lane> lanes_;
  mutable std::mutex submissions_;
  std::mutex completions_;

  std::mutex marked_mutex_;
  std::deque<std::uint32_t> marked_;  // numbers of sockets
  std::vector<bool> is_marked_;
  std::atomic<std::size_t> marks_{0};

  mutable std::mutex sockets_mutex_;
  std::vector<std::shared_ptr<Socket>> sockets_;  // by number
  std::vector<std::uint32_t> unused_;
  std::vector<bool> is_held_;   // by number
  std::uint32_t reserved_ = 0;  // reserve(): no new socket gets a number below this
  std::uint32_t next_generation_ = 1, newest_ = 0;
};

}  // namespace ferry::pipe
