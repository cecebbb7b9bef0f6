#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "pipe/driver/connections.h"
#include "pipe/driver/held.h"
#include "pipe/driver/session.h"
#include "pipe/engine/engine.h"
#include "pipe/memory/pool.h"
#include "pipe/policy/command.h"

namespace ferry::pipe {

// PD Driver: whose sockets are connected with whose, and what is copied where. It has no thread of its
// own. Control calls come from one thread at a time; work() and pump() from any.
class Driver {
 public:
  struct Settings {
    std::uint32_t queues = 1;  // for each program: one for each processor
    Limits container{std::size_t{1} << 30, 1024, 16384, 4096};
    // Who may make namespaces has as many containers as he likes. Together less than the connection table holds.
    Limits user{std::size_t{2} << 30, 4096, 32768, 16384};
    std::function<std::uint64_t()> clock = now;  // in nanoseconds, for the limits of rates
    // Of connections: those that are in it already go on when their programs come again.
    std::shared_ptr<Records> records = std::make_shared<Records>();
    // So long programs wait for another driver when this one has ended.
    std::chrono::milliseconds away{60'000};
  };

  Driver(Settings settings, Pool& pool, Engine& engine);
  ~Driver();

  // A program has come. Null: its container or user has too many.
  std::shared_ptr<Session> open(Peer peer);
  // It has ended. What it has sent is delivered as far as its peers have room.
  void close(const std::shared_ptr<Session>& session);

  // A request of a program: its answer, and descriptors to go with it, which stay the driver's.
  struct Answer {
    ControlReply reply;
    std::vector<int> descriptors;
    std::vector<std::shared_ptr<Ring>> keep;  // until the descriptors are sent
    std::shared_ptr<Connection>
        accepted;  // nothing is moved to a ring that the program does not have
  };
  // `given`: what came with it. Of kBind a socket that is bound to its address (NetworkNamespace::has_bound).
  Answer handle(const std::shared_ptr<Session>& session, const ControlRequest& request,
                const std::vector<Given>& given);
  // The program has the answer.
  void sent(const Answer& answer);

  // Processes that have an end of a connection and have not come since this driver began.
  std::vector<Process> absent() const;
  // One of them never will.
  void has_ended(const Process& process);
  // Nor will the others: programs have waited for as long as they do.
  void give_up_absent();
  std::chrono::milliseconds away() const { return settings_.away; }

  // Deals with what the program has submitted, up to `most` entries of each queue. False: nothing.
  bool work(const std::shared_ptr<Session>& session, std::size_t most);
  // Takes what the engine has done, and gives it what waits, and what a limit has held. False: nothing.
  bool pump();
  // After which time pump() is to be called although nobody asks: a limit holds something. Nothing: none does.
  std::optional<std::chrono::nanoseconds> holds_for() const;
  // Tells programs what they do not know yet.
  void announce();

  std::size_t connections() const { return connections_.size(); }

  // The access list and the limits of containers. Control calls, too.
  //
  // Who is not allowed to connect any more is reset. Throws Failure: nothing has changed.
  void change(const Command& command);
  // The most that a container with an address of the prefix may have; 0: no limit.
  struct Limit {
    Prefix of;
    std::uint64_t rate = 0, connection_rate = 0, memory = 0;
  };
  const AccessList& access() const { return access_; }
  const std::vector<Limit>& limits() const { return limits_; }
  std::vector<std::shared_ptr<Session>> sessions() const;
  const Pool& pool() const { return pool_; }

 private:
  static std::uint64_t now();

  Answer hello(Session& session, const ControlRequest& request);
  std::int32_t bind(Session& session, Socket& socket, const ControlRequest& request, Given bound);
  std::int32_t listen(const std::shared_ptr<Session>& session,
                      const std::shared_ptr<Socket>& socket, const ControlRequest& request);
  Answer accept(const std::shared_ptr<Session>& session, Socket& listener);
  Answer connect(const std::shared_ptr<Session>& session, Socket& socket, SocketAddress to);
  std::int32_t make_rings(Session& session, Socket& socket);
  std::int32_t buffer_sizes(Socket& socket, const ControlRequest& request);
  Answer allocate(Session& session, Socket& socket, std::size_t size);
  std::int32_t shutdown(Socket& socket, std::uint32_t how);
  void close_socket(Session& session, const std::shared_ptr<Socket>& socket, bool at_once);
  static void give_rings(const Socket& socket, Answer* answer);

  // An end of a connection of the records, whose program has not come yet.
  struct AbsentName {
    Process process;
    std::uint64_t session = 0;
    SocketId socket;  // or, if it waits to be accepted, the listener
    bool waits = false;

    auto operator<=>(const AbsentName&) const = default;
  };
  // While it lives, a place of some owners counts as taken.
  using Place = std::shared_ptr<void>;
  static Place keep_place(const Owners& owners, std::size_t Owner::*count);
  // What it has of memory, and the place of its socket, counts until then, so that nobody else gets it.
  struct Absent {
    std::shared_ptr<Connection> connection;
    int side = 0;
    SocketId listener;
    Owners owners;
    std::optional<Share> rings[2];
    Place place;
  };
  struct AbsentSession {
    std::optional<Share> queues;
    Place place;
  };
  bool is_absent(const Process& process) const;
  // A session of this process, of any name if none is given.
  bool has_session(const Process& process, std::optional<std::uint64_t> name = {}) const;
  using AllAbsent = std::multimap<AbsentName, Absent>;
  void restore();
  void write_down(const std::shared_ptr<Connection>& connection, const Session& client,
                  const Socket& socket, const Session& server, SocketId listener);
  void leave(Connection& connection, int side, bool at_once = true);
  Answer resume(const std::shared_ptr<Session>& session, const ControlRequest& request,
                const std::vector<Given>& given);
  std::int32_t restore_socket(const std::shared_ptr<Session>& session,
                              const ControlRequest& request);
  std::int32_t take_rings(Session& session, Socket& socket, const std::vector<Given>& given);
  AllAbsent::iterator find_absent(const Session& session, SocketId socket);
  std::optional<Absent> take_absent(const Session& session, SocketId socket);
  void take_back_unheard(const Session& session);
  std::int32_t rejoin(const std::shared_ptr<Session>& session, Socket& socket,
                      const ControlRequest& request);
  void take_waiting(const std::shared_ptr<Session>& session, Socket& listener);
  void resumed(const std::shared_ptr<Session>& session);

  struct Listener {
    std::weak_ptr<Session> session;
    std::shared_ptr<Socket> socket;
  };
  // Nothing: nobody listens at `to`, or two networks say that they have it, which TCP decides.
  const Listener* find_listener(NetworkNamespace& network, const SocketAddress& to,
                                const Route& route);

  void change_limit(const Command& command);
  void apply_limits(const Session& session);
  void reset_denied();
  // How much of the stream may be copied now. 0: nothing, until the time in `until`.
  std::uint32_t allowance(const Connection& connection, int side, std::uint64_t* until) const;
  void spend(Connection& connection, int side, std::uint32_t bytes);

  void process(Session& session, const Entry& entry, std::uint32_t lane, Moves* moves);
  void move(Moves moves);
  bool take_completed(Moves* moves);
  void offer(std::span<const Entry> entries);
  void mark(const SocketName& name);
  void tell_both(const Stream& stream);
  void forget_if_finished(const Connection& connection);
  std::shared_ptr<Owner> container_of(const OwnerName& name);
  std::shared_ptr<Owner> user_of(const OwnerName& name);  // null: root
  Owners owners_of(const OwnerName& name);

  const Settings settings_;
  Pool& pool_;
  Engine& engine_;
  Connections connections_;
  std::uint64_t next_session_ = 1;
  std::uint16_t next_port_ = 0;
  std::uint16_t next_container_ = 1;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::weak_ptr<Owner>> containers_;
  std::map<std::uint32_t, std::weak_ptr<Owner>> users_;
  std::multimap<std::uint16_t, Listener> listeners_;  // by port
  std::vector<std::weak_ptr<Session>> sessions_;
  AccessList access_;
  std::vector<Limit> limits_;
  AllAbsent absent_;
  std::map<std::pair<Process, std::uint64_t>, AbsentSession> absent_queues_;  // by session
  Held held_;

  std::mutex waiting_mutex_;
  std::deque<Entry> waiting_;  // for room in the engine

  std::mutex marked_mutex_;
  std::vector<std::shared_ptr<Session>> marked_;
  std::atomic<bool> batch_full_{false};
};

}  // namespace ferry::pipe
