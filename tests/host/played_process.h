#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "agent/protocol.h"
#include "port/endpoint.h"

namespace ferry::test {

// A process that talks to ferryd as the library does: it registers, gives its one UDP socket away
// at STOP, waits for a command in its control block, asks and takes the socket back. What it saw is
// in shared memory.
//
// It is a program of its own (played_process_main.cc), for it allocates memory: a fork of a test
// whose ferryd has threads would wait for ever for a lock of the sanitizer's allocator that one of
// these held.
class PlayedProcess {
 public:
  struct Seen {
    agent::ControlBlock control;
    std::atomic<int> stopped{0}, command{0}, stays{0}, resumed{0};
    std::atomic<bool> rollback{false}, same_socket{false};
    std::atomic<int> letters{0}, returned_letters{0}, suspensions{0}, releases{0};
    std::atomic<int> moved_names{0}, datagram_qpns{0};  // GIDs and UD QPs of the latest MOVED_NAMES
  };
  struct Behaviour {
    int stop_error = 0;      // answered to STOP
    bool mute = false;       // does not answer STOP
    bool clings = false;     // does not let go after STOP_TAKEN
    std::uint32_t slot = 0;  // of 127.78.0.1
    unsigned stop_ms = 0;    // that it takes to stop
    bool has_standard_peer = false;
    std::uint32_t says_slot = 0;        // gives its socket away as one of this slot
    port::Endpoint origin = {};         // says so of its RNIC, to whoever asks
    std::uint32_t epoch = 0;            // this as well
    std::uint64_t comes_back_from = 0;  // this move: it has just been restored
    // It has a QP of this name over rxe0, with that peer; QPN 0: it has none.
    device::Letter::End own = {}, peer = {};
    int suspended_after = 0;  // questions; then its peers are
    bool has_rxe1 = false;    // it has a context over rxe1, without QPs
    bool leaves_none0 =
        false;  // gives a context away, too, over a device of this name, which no kernel has
  };
  // What the test and the process share: the process finds it at descriptor kPartFd.
  struct Part {
    Behaviour behaviour;
    char socket[108] = {};  // ferryd's, as in sockaddr_un
    Seen seen;
  };
  static constexpr int kPartFd = 3;

  PlayedProcess(const std::string& socket, Behaviour behaviour);
  ~PlayedProcess();
  PlayedProcess(const PlayedProcess&) = delete;
  PlayedProcess& operator=(const PlayedProcess&) = delete;

  pid_t pid() const { return pid_; }
  Seen& seen() { return part_->seen; }

  static port::Address address() { return port::Address::from_ipv4(0x7F4E0001); }

 private:
  Part* part_ = nullptr;
  pid_t pid_ = 0;
};

// Waits for it, a minute at most: only what never comes true takes so long.
bool eventually(const std::function<bool()>& condition);

// A process whose QP `own` is connected with `peer`.
inline PlayedProcess::Behaviour has(const device::Letter::End& own, const device::Letter::End& peer,
                                    std::uint32_t slot) {
  PlayedProcess::Behaviour behaviour;
  behaviour.own = own;
  behaviour.peer = peer;
  behaviour.slot = slot;
  return behaviour;
}

}  // namespace ferry::test
