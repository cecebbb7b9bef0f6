#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "cm/manager.h"
#include "cm/service.h"
#include "rdmacm/address.h"
#include "rdmacm/channel.h"
#include "rdmacm/devices.h"
#include "rdmacm/sockets.h"

// rdma_cm of this process: what the kernel's rdma_ucm, rdma_cm and ib_cm are behind
// /dev/infiniband/rdma_cm, for the stock librdmacm. Programs write commands (rdma_user_cm.h) to a
// descriptor that polls readable when an event waits. One thread, `ferry-cm`, sleeps on the sockets
// and timers.
namespace ferry::rdmacm {

inline constexpr std::uint8_t kHopLimit = 64;  // of the packets of a route

// An rdma_cm_id.
struct Id {
  enum class State : std::uint8_t {
    kIdle,
    kBound,
    kResolving,
    kAddressResolved,
    kRouteResolved,
    kConnecting,
    kDisconnected,
    kListening,
  };
  struct Group {
    std::uint64_t uid = 0;
    Address address;
    std::uint32_t events_reported = 0;
  };

  std::uint32_t handle = 0;
  std::uint64_t uid = 0;
  std::shared_ptr<Channel> channel;
  std::uint16_t port_space = 0;
  std::uint8_t qp_type = 0;
  State state = State::kIdle;
  Address source, destination;
  Device device;          // guid 0: none yet
  cm::CommId comm = 0;    // 0: none yet
  std::uint32_t qpn = 0;  // virtual, of this side
  std::uint32_t psn = 0;  // what this side's receive queue starts with
  std::uint8_t traffic_class = 0;
  std::uint8_t ack_timeout = 0;  // 0: the route's
  bool reuse_address = false;
  bool ipv6_only = false;
  int backlog = 0;
  cm::Time resolve_until{}, ask_at{};  // kResolving: when that fails, when the network is asked
  std::uint32_t events_reported = 0;
  std::map<std::uint32_t, Group> groups;
};

class Service {
 public:
  explicit Service(Devices& devices);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  // Ends the thread. The library's own service is never destroyed.
  ~Service();

  // A descriptor for the program, or -1 and errno.
  int open(int flags);
  // Destroys the IDs of the channel. The caller closes the descriptor itself. False: the descriptor
  // is another file's now, and the channel lives on under another number.
  bool close(int descriptor);
  // Called before and after a blocking read of the descriptor. 0, or EBADF: it is no channel.
  int enter_wait(int descriptor);
  void leave_wait(int descriptor);
  // Executes a command, any but GET_EVENT. 0 or an errno value.
  int command(int descriptor, std::span<const std::byte> command);
  // Executes GET_EVENT, after a byte was read from the descriptor. 0 or an errno value; EAGAIN: the
  // event of the byte was withdrawn.
  int take_event(int descriptor, std::span<const std::byte> command);

  // A QP is about to go away: its ID notes the place of its peer for the last time.
  void qp_destroyed(const std::string& device, std::uint32_t qpn);
  // While an RNIC of this process opens, UDP port 4791 is left to it.
  class Yield {
   public:
    explicit Yield(Service* service);
    ~Yield();
    Yield(const Yield&) = delete;
    Yield& operator=(const Yield&) = delete;

   private:
    Service* service_;
  };

  // For a move: stop() returns when every descriptor but the program's channels is closed and
  // nothing is sent any more; resume() goes on where the process is now.
  void stop();
  void resume();
  // For fork(): the lock is held across it, so that the child can close the names and ports that it
  // inherited and that nobody serves there. The child's object is of no more use.
  void before_fork() { mutex_.lock(); }
  void after_fork_in_parent() { mutex_.unlock(); }
  void abandon_in_child();
  // The process ends: tells the peers, and waits until those that were connected have answered, for
  // up to 2 s.
  void leave();

 private:
  template <typename T>
  static T read(std::span<const std::byte> body);

  // Commands (commands.cc, resolve.cc, connect.cc, query.cc): 0 or an errno value.
  int dispatch(std::uint32_t number, const std::shared_ptr<Channel>& channel,
               std::span<const std::byte> body, std::size_t out_size);
  int create_id(const rdma_ucm_create_id& c, const std::shared_ptr<Channel>& channel);
  int destroy_id(const rdma_ucm_destroy_id& c, const Channel& channel);
  Address with_wildcard(const Address& given);
  int bind(Id& id, const Address& address);
  int resolve_address(Id& id, const std::optional<Address>& from, const Address& to,
                      std::uint32_t timeout_ms);
  int resolve_route(Id& id);
  int connect(Id& id, const rdma_ucm_conn_param& parameters);
  int listen(Id& id, std::uint32_t backlog);
  int accept(Id& id, const rdma_ucm_accept& c);
  int reject(Id& id, const rdma_ucm_reject& c);
  int disconnect(Id& id);
  int init_qp_attributes(Id& id, const rdma_ucm_init_qp_attr& c);
  int set_option(Id& id, const rdma_ucm_set_option& c);
  int join(Id& id, std::uint64_t response, std::uint64_t uid, const Address& group);
  int leave_group(const rdma_ucm_destroy_id& c, const Channel& channel);
  int migrate(const rdma_ucm_migrate_id& c, const std::shared_ptr<Channel>& channel);
  int query_route(const Id& id, std::uint64_t response, std::size_t size);
  int query(const Id& id, const rdma_ucm_query& c, std::size_t size);

  Id* find(std::uint32_t handle, const Channel& channel);
  Id* find_by_comm(cm::CommId comm);
  Id* listener_for(cm::ServiceId service, const port::Address& to);
  Id& make_id();
  void destroy(Id& id);
  std::shared_ptr<Channel> channel_of(int descriptor);
  std::optional<Device> device_of(const port::Address& address);
  cm::ServiceId service_of(const Id& id) const;
  bool is_datagram(const Id& id) const;
  int reserve_port(Id& id);
  int start_manager();
  port::Address gid(const Id& id);  // of this side, now
  std::uint8_t route_ack_timeout(const Id& id) const;
  ib_uverbs_ah_attr address_handle(const Id& id, const port::Address& remote);

  // For IDs that wait for a next hop (resolve.cc).
  void look_for_next_hop(Id& id);
  void look_for_next_hops();

  // Events (events.cc).
  void post(Id& id, std::uint32_t event, int status,
            const rdma_ucm_conn_param* connection = nullptr,
            const rdma_ucm_ud_param* datagram = nullptr);
  void deliver(const cm::Event& event);
  void deliver_request(const cm::Event& event);
  void deliver_reply(Id& id, const cm::Event& event);

  // Takes the lock, once the process is not stopped.
  std::unique_lock<std::mutex> lock_running();
  // With mutex_: sends and delivers what the manager has.
  void flush();
  void refresh(Id& id);  // tells the manager where both ends are now
  bool has_interest() const;
  void refresh_sockets();
  void leave_sleep(std::unique_lock<std::mutex>& lock);
  void end_command(std::unique_lock<std::mutex>& lock);
  void kick();
  int start_thread();
  static void* thread_main(void* self);
  void run();
  void work(std::unique_lock<std::mutex>& lock);
  void take_messages();
  static cm::Time now();

  Devices& devices_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::shared_ptr<Channel>> channels_;
  std::map<std::uint32_t, Id> ids_;
  std::map<std::uint32_t, std::uint32_t> groups_;  // handle → ID
  Sockets sockets_;
  std::unique_ptr<cm::Manager> manager_;  // from the first use of a port on
  cm::Time retry_at_ = cm::kNever;        // when missing sockets are tried again
  std::set<std::uint32_t> resolving_;     // IDs in this state
  cm::Time look_at_ = cm::kNever;         // when these are looked at
  bool holding_ = false;                  // what the sockets were last told
  bool polling_ = false;                  // the thread sleeps on the sockets
  bool name_was_closed_ = false;          // since a command began
  std::uint64_t sleeps_ = 0;
  unsigned yields_ = 0;

  pthread_t thread_{};
  bool started_ = false;
  std::atomic<int> event_{-1};
  bool ending_ = false, stopped_ = false, parked_ = false;
  cm::Time stopped_at_{};
};

// Numbers of enum rdma_cm_event_type (rdma_cma.h).
namespace event {
inline constexpr std::uint32_t kAddressResolved = 0, kAddressError = 1, kRouteResolved = 2,
                               kConnectRequest = 4, kConnectResponse = 5, kUnreachable = 7,
                               kRejected = 8, kEstablished = 9, kDisconnected = 10,
                               kMulticastJoin = 12, kTimewaitExit = 15;
}  // namespace event

inline constexpr std::uint32_t kUdpQkey = 0x01234567;                            // RDMA_UDP_QKEY
inline constexpr std::uint16_t kFirstEphemeral = 32768, kLastEphemeral = 60999;  // ports

template <typename T>
T Service::read(std::span<const std::byte> body) {
  T value{};
  __builtin_memcpy(&value, body.data(), body.size() < sizeof value ? body.size() : sizeof value);
  return value;
}

// Writes an answer where the command says, as much as the program has room for.
template <typename T>
void respond(std::uint64_t where, const T& value, std::size_t size = sizeof(T)) {
  __builtin_memcpy(reinterpret_cast<void*>(where), &value,
                   size < sizeof value ? size : sizeof value);
}

}  // namespace ferry::rdmacm
