#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "port/endpoint.h"
#include "port/port.h"

namespace ferry::rnic {

class QueuePair;

// The multicast groups of one RNIC. Each has a socket of this process (other processes of the host
// that are in the group have theirs), and the QPs that get its packets (clause 10.5.2). Used under
// the engine's lock.
class MulticastGroups {
 public:
  static constexpr std::size_t kMaxGroups = 64;   // of a device
  static constexpr std::size_t kMaxMembers = 64;  // of a group
  // Joins `group` on the interface that has `local`. Null and *error (errno): it cannot.
  using Join = std::function<std::unique_ptr<port::Port>(const port::Address& group,
                                                         const port::Address& local, int* error)>;

  void set_join(Join join) { join_ = std::move(join); }

  // 0 or errno; ENOMEM: beyond a limit. A second attachment changes nothing. `local` is the address
  // that packets to the group leave from; null: the socket is not made yet, but by open().
  int attach(QueuePair* qp, const port::Address& group, const port::Address* local);
  // 0, or EINVAL: the QP is not attached. The last member closes the socket.
  int detach(QueuePair* qp, const port::Address& group);
  void forget(QueuePair* qp);  // detaches it from all groups
  std::vector<port::Address> groups_of(const QueuePair* qp) const;

  // A process that is moved leaves its groups by close(), and joins them by open() where it
  // arrives. A group that cannot be joined there is silent.
  void close();
  void open(const port::Address& local);  // joins the groups of the family of `local`

  // In a forked child: closes the descriptors, and leaves all else alone, which is the parent's.
  void abandon();

  struct Group {
    port::Address address;
    std::unique_ptr<port::Port> port;
    std::vector<QueuePair*> members;
  };
  const std::vector<std::unique_ptr<Group>>& groups() const { return groups_; }

 private:
  std::vector<std::unique_ptr<Group>>::iterator find(const port::Address& group);

  Join join_;
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace ferry::rnic
