#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cm/manager.h"
#include "port/endpoint.h"

// QP 1 is one per address, and any number of processes have connections. Whoever holds UDP port
// 4791 of an address (an RNIC of slot 0, a process that holds it for this alone, a stand-in) passes
// what comes for QP 1 on to the process that it is for, by a UNIX datagram socket whose abstract
// name follows from the message:
//
//   ferry-cm/t/TAG            a process that has connections (cm::tag_of their communication IDs)
//   ferry-cm/l/ADDRESS/ID     a process that listens on a service ID at an address
//   ferry-cm/l/any/ID         … at every address
//   ferry-cm/away/ADDRESS     ferryd, for processes that have left the address
//
// Such names belong to the network namespace and vanish with their socket: there is no table that
// could be wrong, and two listeners on one service ID cannot be.
namespace ferry::gsi {

std::string process_name(std::uint16_t tag);
std::string listener_name(const port::Address& address, cm::ServiceId service);
std::string listener_name_any(cm::ServiceId service);

std::string away_name(const port::Address& address);

// A bound non-blocking socket, or -1 and *error: EADDRINUSE.
int open_receiver(const std::string& name, int* error);
bool exists(const std::string& name);

// The next datagram of a receiver; nothing when none waits or what came is not one.
std::optional<cm::Datagram> receive(int receiver);

// Passes a message on to whom it is for. False: nobody has its name.
bool pass_on(const cm::Mad& mad, const port::Address& from, const port::Address& to);

// A request that nobody of the host is for goes to whoever knows of processes that have left the
// address. False: nobody does, or it is no request.
bool pass_on_to_away(const cm::Mad& mad, const port::Address& from, const port::Address& to);

// pass_on(), pass_on_to_away(), and if there is nobody, what an RNIC answers for it
// (cm::answer_for_nobody) goes back, from `to`. For holders of UDP port 4791.
void take(const cm::Mad& mad, const port::Address& from, const port::Address& to);

// The same where a process is on a move, or has moved from: what is for a connection that nobody
// has here may be for one of its, and stays unanswered, so that it comes again to where that
// process is.
void take_for_moved(const cm::Mad& mad, const port::Address& from, const port::Address& to);

}  // namespace ferry::gsi
