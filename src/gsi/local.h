#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cm/manager.h"
#include "port/endpoint.h"

// An address has one QP 1, but any number of processes with connections. Whoever holds UDP port
// 4791 of an address (an RNIC of slot 0, a Holder, a stand-in) passes each message for QP 1 on to
// the process that it is for, through a UNIX datagram socket whose abstract name follows from the
// message:
//
//   ferry-cm/t/TAG            a process that has connections (cm::tag_of their communication IDs)
//   ferry-cm/l/ADDRESS/ID     a process that listens on a service ID at an address
//   ferry-cm/l/any/ID         … at every address
//   ferry-cm/away/ADDRESS     ferryd, for processes that have left the address
//
// Such names belong to the network namespace and vanish with their socket: there is no table that
// could be wrong, and two listeners cannot have one name.
namespace ferry::gsi {

std::string process_name(std::uint16_t tag);
std::string listener_name(const port::Address& address, cm::ServiceId service);
std::string listener_name_any(cm::ServiceId service);

std::string away_name(const port::Address& address);

// A non-blocking socket bound to `name`; -1 and *error (EADDRINUSE: somebody has the name).
int open_receiver(const std::string& name, int* error);
bool exists(const std::string& name);

// The next datagram of a receiver; nothing when none waits, or the one that came is malformed.
std::optional<cm::Datagram> receive(int receiver);

// Passes a message on to the process that it is for. False: there is none. True does not mean that
// the message arrived: it may be lost like any datagram, or be none of the CM.
bool pass_on(const cm::Mad& mad, const port::Address& from, const port::Address& to);

// Passes a request for which this host has no listener on to ferryd, which knows the processes that
// have left the address `to`. False: ferryd knows of none there, or the message is no request.
bool pass_on_to_away(const cm::Mad& mad, const port::Address& from, const port::Address& to);

// For holders of UDP port 4791: calls pass_on(), then pass_on_to_away(). If both find nobody, the
// answer of cm::answer_for_nobody goes back, from `to` to `from`.
void take(const cm::Mad& mad, const port::Address& from, const port::Address& to);

// As take(), for an address of which a process is on a move or has moved away. A message for a
// connection that no process has here may be for a connection of the one that moved. It stays
// unanswered, so that its sender repeats it to where that process is then.
void take_for_moved(const cm::Mad& mad, const port::Address& from, const port::Address& to);

}  // namespace ferry::gsi
