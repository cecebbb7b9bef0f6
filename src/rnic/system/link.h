#pragma once

#include <infiniband/verbs.h>

#include <string>
#include <utility>

namespace ferry::rnic {

// Fills what a port takes from its network interface: state, phys_state, active_speed and
// active_width. Of an interface that tells nothing (or is none), those of a link that is up and as
// fast as this RNIC can make use of.
void describe_link(const std::string& netdev, ibv_port_attr* out);

// Tells when the link goes down or comes up. One thread at a time.
class LinkWatch {
 public:
  explicit LinkWatch(std::string netdev) : netdev_(std::move(netdev)) {}
  ~LinkWatch() { close(); }
  LinkWatch(const LinkWatch&) = delete;
  LinkWatch& operator=(const LinkWatch&) = delete;

  // Without a descriptor (none was left) changes go unnoticed, and nothing else suffers.
  void open();
  void close();
  // Readable when there may be a change; -1: not open.
  int descriptor() const { return socket_; }
  // Whether the link's state is another than at the last call, or at the first open().
  bool changed(bool* up);

 private:
  bool link_is_up() const;

  const std::string netdev_;
  int socket_ = -1;
  bool known_ = false, up_ = false;
  bool look_ = false;  // after a second open()
};

}  // namespace ferry::rnic
