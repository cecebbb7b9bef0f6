#pragma once

#include <infiniband/verbs.h>

#include <string>
#include <utility>

namespace ferry::rnic {

// Fills the attributes that a port takes from its network interface: state, phys_state,
// active_speed and active_width. What an interface does not tell, or if there is none, is as of a
// link that is up and has 100 Gbit/s.
void describe_link(const std::string& netdev, ibv_port_attr* out);

// Tells when the link goes down or comes up. One thread at a time.
class LinkWatch {
 public:
  explicit LinkWatch(std::string netdev) : netdev_(std::move(netdev)) {}
  ~LinkWatch() { close(); }
  LinkWatch(const LinkWatch&) = delete;
  LinkWatch& operator=(const LinkWatch&) = delete;

  // If no descriptor is left, changes go unnoticed, and nothing else suffers.
  void open();
  void close();
  // Readable when there may be a change; -1: not open.
  int descriptor() const { return socket_; }
  // Whether the link's state differs from that at the last call, or at the first open(). *up gets
  // the state if the link was looked at.
  bool changed(bool* up);

 private:
  bool link_is_up() const;

  const std::string netdev_;
  int socket_ = -1;
  bool known_ = false, up_ = false;
  bool look_ = false;  // changed() must look: changes may have gone unnoticed
};

}  // namespace ferry::rnic
