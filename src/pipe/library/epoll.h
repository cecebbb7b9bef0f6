#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "base/unique_fd.h"
#include "ferry/pd.h"
#include "pipe/library/program.h"
#include "pipe/library/socket.h"

namespace ferry::pd {

// pd_epoll: sockets, and which of them may be ready. Its descriptor is an epoll of the kernel's, of the
// notices of the driver, of an eventfd that says that a socket may be ready, and of the descriptors of
// sockets that have some.
class Epoll : public std::enable_shared_from_this<Epoll> {
 public:
  // Null: errno says why.
  static std::shared_ptr<Epoll> create(Program& program);
  static std::shared_ptr<Epoll> find(int descriptor);  // null: there is none
  static bool close(int descriptor);                   // false: there is none
  // After fork(), or pd_release(): all are of a program that is no more.
  static void forget_all();

  explicit Epoll(Program& program);
  ~Epoll();

  int descriptor() const { return epoll_.get(); }

  // 0 or errno. The caller has the socket's mutex.
  int add(int sid, Socket& socket, const pd_epoll_event& event);
  int change(int sid, Socket& socket, const pd_epoll_event& event);
  int remove(int sid);
  // How many, or -1 and errno.
  int wait(pd_epoll_event* events, int most, int timeout);

 private:
  // A socket that is watched.
  struct Item : Watch, std::enable_shared_from_this<Item> {
    Item(std::weak_ptr<Epoll> its_owner, Socket& its_socket, int its_sid)
        : owner(std::move(its_owner)),
          socket(its_socket),
          sid(its_sid),
          generation(its_socket.generation) {}
    void wake() override;
    void has_descriptor(int descriptor) override;

    const std::weak_ptr<Epoll> owner;
    Socket& socket;
    const int sid;
    const std::uint32_t generation;
    pd_epoll_event event{};  // by the owner's mutex
    bool queued = false;     // likewise
    int descriptor = -1;     // likewise: in the kernel's epoll
  };

  void queue(const std::shared_ptr<Item>& item);
  void watch_descriptor(Item& item, int operation);
  int collect(pd_epoll_event* events, int most);
  int look_at_kernel(pd_epoll_event* events, int most, int timeout);

  Program& program_;
  UniqueFd epoll_, ready_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<Item>> items_;  // by sid
  std::deque<std::shared_ptr<Item>> queue_;     // may be ready
  bool is_rung_ = false;                        // ready_ is readable
  std::atomic<int> descriptors_{0};  // of sockets, in the kernel's epoll; changed by mutex_
};

}  // namespace ferry::pd
