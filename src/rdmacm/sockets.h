#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cm/manager.h"
#include "gsi/holder.h"
#include "gsi/wire_socket.h"
#include "rdmacm/devices.h"

// The sockets of rdma_cm: UNIX ones under whose names this process receives messages (gsi/local.h),
// UDP ones that send, and UDP port 4791 of the addresses where nobody else holds it.
namespace ferry::rdmacm {

class Sockets {
 public:
  explicit Sockets(Devices& devices);
  ~Sockets() { close(); }

  // Takes a tag that no other process of the network namespace has. 0: none could be had.
  std::uint16_t take_tag();

  // What a program bound: an address (or any) and a service ID.
  struct Binding {
    bool any = false;
    port::Address address;
    std::string netdev;  // of the device that has it
    cm::ServiceId service = 0;
  };
  // `owner`: the handle of an ID. 0 or an errno value: EADDRINUSE.
  int bind(std::uint32_t owner, const Binding& binding);
  // False: `owner` had bound nothing. A thread that sleeps on the sockets keeps the name until it
  // wakes.
  bool unbind(std::uint32_t owner);

  // With `wanted`, tries to hold UDP port 4791 of every address; without, gives up what it holds.
  // Opens again what could not be opened. True: something is missing, try again in a while.
  bool refresh(bool wanted);
  void stop_holding() { holder_.let_go(); }
  // True: a process of this host has given up UDP port 4791 of some address, and the caller is to
  // call refresh().
  bool port_was_freed() { return holder_.port_was_freed(); }

  // The present address for one that the process had when it bound: the same while the host has
  // it, else that of its interface (the process was moved).
  port::Address current(const port::Address& address, const std::string& netdev);

  void send(const cm::Datagram& datagram);
  void add_to(std::vector<pollfd>* out) const;
  // Takes what waits, up to 64 datagrams of each socket, and passes on what is for others.
  void receive(std::vector<cm::Datagram>* out, std::vector<gsi::WireSocket::Failure>* failures);

  // Closes everything; refresh() opens it again.
  void close();

 private:
  struct Receiver {
    Binding binding;
    int descriptor = -1;
  };
  int open(Receiver& receiver, bool check_others);
  void find_addresses();
  bool is_for_us(const cm::Mad& mad, const port::Address& to);

  Devices& devices_;
  std::uint16_t tag_ = 0;
  int process_receiver_ = -1;
  std::map<std::uint32_t, Receiver> receivers_;
  std::map<port::Address, gsi::WireSocket> wires_;
  gsi::Holder holder_;
  std::vector<Devices::Listed> devices_here_;  // as of the last refresh()
};

}  // namespace ferry::rdmacm
