#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/registry.h"
#include "relay/abi.h"
#include "relay/devices.h"
#include "relay/id.h"
#include "relay/kernel.h"

// Stands between a program and rdma_cm of the kernel, so that the program can move (docs/any_rnic.md). Commands go to
// the kernel, and events come from it, with other numbers of IDs. In a stop all of the kernel's files are closed. After
// it, IDs that listen or are bound are made again; connected ones the kernel does not know any more: the relay answers
// for them, and tells the peer by a letter when the program disconnects.
namespace ferry::relay {

class Relay {
 public:
  // All outlive the relay.
  Relay(Kernel& kernel, Devices& devices) : kernel_(kernel), devices_(devices) {}

  // A descriptor for the program, or -1 and errno.
  int open(int flags);
  // Whether the descriptor is a channel of the relay's.
  bool has(int descriptor);
  // Destroys the channel and closes its descriptor. False: it is no channel.
  bool close(int descriptor);
  // The number of the kernel's character device.
  dev_t number_of(int descriptor);
  // Executes a command; GET_EVENT does not block. 0 or an errno value; EBADF: the descriptor is no channel, EAGAIN: no
  // event waits.
  int command(int descriptor, std::span<const std::byte> bytes);

  // News of the peer of a QP (device::MoveSink) of the device with this GUID, as the program knows it. Any thread may
  // call, whatever locks it holds; then tend() or a command of the program does what there is to do.
  void take_news(device::CmNews news, __be64 guid, std::uint32_t qpn);

  // The program ends: tells peers by letters what the kernels do not tell. True: there is, or was, something to tell.
  bool leave();

  // --- For a move (agent::Companion)

  // Waits until no ID is half made, and then holds the program's commands. If not, the program goes on. ETIMEDOUT: an
  // ID still is half made, or a command is under way; EOPNOTSUPP: the program has something that cannot move, which
  // status() names; or the errno value of a query that the kernel has refused.
  int stop(std::chrono::steady_clock::time_point deadline);
  // All contexts have left their devices: closes all files of the kernel.
  void park();
  // Opens the files, if they were closed, and lets the program go on. 0, or the errno value of the first ID that
  // cannot be made again.
  int resume();
  void tend();
  // The kernel's descriptors that wait for tend().
  std::vector<int> awaited();
  agent::RdmaCmStatus status();

  // --- For fork()

  void before_fork() {
    mutex_.lock();
    news_mutex_.lock();
  }
  void after_fork_in_parent() {
    news_mutex_.unlock();
    mutex_.unlock();
  }
  // The child shares the kernel's files with its parent, so it cannot move. A stop is one of the parent, and so is what
  // its other threads are at.
  void after_fork_in_child() {
    news_.clear();
    destroying_ = 0;
    is_stopped_ = is_parked_ = false;
    is_inherited_ = !channels_.empty();
    after_fork_in_parent();
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  using ChannelRef = std::shared_ptr<Channel>;

  // Takes the lock, once no stop is on.
  Lock lock_running();
  ChannelRef channel_of(int descriptor);
  // Ends the IDs of a channel that the program has closed.
  void end_ids_of(const ChannelRef& channel);
  // Ends the channels whose descriptors the program has closed without close(), or replaced by other files.
  void reap();
  Id* find(const Channel& channel, std::uint32_t handle);
  Id& add_id();
  void bind_to_kernel(Id& id, std::uint32_t kernels);
  void forget(Id& id);
  // The kernel does not know the ID any more.
  void leave_kernel(Id& id);

  // --- Commands (relay.cc). 0 or an errno value.

  int run(Lock& lock, const ChannelRef& channel, Command command);
  int create_id(const ChannelRef& channel, Command command);
  int destroy_id(Lock& lock, Channel& channel, Command command);
  int migrate_id(const ChannelRef& channel, const Command& command);
  // Moves the ID to another channel, which has a file of the kernel. 0 or an errno value.
  static int put_into(const ChannelRef& channel, Id& id);
  int join(Channel& channel, Id& id, Command command);
  int leave_group(Channel& channel, Command command);
  int query(Id& id, const Command& command);
  // Any other command, for an ID that the kernel knows, or does not know any more.
  int pass_on(Channel& channel, Id& id, Command command);
  int run_detached(Id& id, const Command& command);
  void note_done(Id& id, const Command& command);
  // Of a connected ID. std::nullopt: its QP is gone, or is that of another connection by now.
  static std::optional<Ends> ends_of(const Id& id, const Connections& connections);
  // The program ends a connection: tells the peer by a letter, if the kernel of either end may not do it.
  void take_leave(const Id& id);

  // --- Events (events.cc)

  int get_event(Channel& channel, const Command& command);
  // Takes the next event of the kernel that the program is to see. 0 or an errno value; EAGAIN: there is none.
  int take_from_kernel(Channel& channel, Event* out);
  // False: the program does not see the event, now or ever.
  bool note_event(Channel& channel, Event* event);
  bool note_request(Channel& channel, Event* event);
  void note_state(Id& id, const Event& event);
  void keep(Channel& channel, const Event& event);
  // Keeps an event that the relay itself makes.
  void raise(Id& id, std::uint32_t number);
  void show_withheld(Id& id);
  // Whether what the kernel says of the connection may be due to a move of the peer.
  bool peer_moves(const Id& id);
  void mute_channels();
  // Does what take_news() has noted.
  void heed_news();
  void heed(device::CmNews news, Id& id, const Connections& connections);

  // --- The stop (move.cc)

  void collect_events();
  // What cannot move yet, or at all; null: nothing.
  const char* half_made() const;
  const char* obstacle(const Connections& connections) const;
  // Notes what a stop needs of the IDs. 0 or an errno value.
  int keep_all();
  // 0 or an errno value.
  int keep_port(Id& id);
  // Notes what is needed of the ID when the kernel does not know it any more.
  void keep_answers(Id& id, const Connections& connections);
  // Has the kernel forget the ID, or one that the relay has not noted.
  void detach(Id& id);
  static void destroy_in(KernelFile& file, std::uint32_t kernels);
  int make_anew(Id& id);

  Kernel& kernel_;
  Devices& devices_;

  struct News {
    device::CmNews what{};
    __be64 guid = 0;
    std::uint32_t qpn = 0;
  };
  std::mutex news_mutex_;  // guards news_; no other lock is taken with it
  std::vector<News> news_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<int, ChannelRef> channels_;  // by descriptor
  std::map<std::uint32_t, Id> ids_;     // by the program's number
  std::map<std::uint32_t, Group> groups_;
  std::uint32_t last_handle_ = 0;
  int destroying_ = 0;     // DESTROY_ID that the kernel is at
  bool has_told_ = false;  // a letter was written
  bool is_stopped_ = false, is_parked_ = false, is_inherited_ = false;
};

}  // namespace ferry::relay
