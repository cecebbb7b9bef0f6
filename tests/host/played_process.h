#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "agent/protocol.h"
#include "port/slot.h"
#include "port/udp_port.h"
#include "transport/stopped.h"

namespace ferry::test {

using namespace host;

// A process that talks to ferryd as the library does: it registers, gives its one UDP socket away
// at STOP, waits for a command in its control block, asks and takes the socket back. What it saw is
// in shared memory.
class PlayedProcess {
 public:
  struct Seen {
    agent::ControlBlock control;
    std::atomic<int> stopped{0}, command{0}, stays{0}, resumed{0};
    std::atomic<bool> rollback{false}, same_socket{false};
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
  };

  PlayedProcess(const std::string& socket, Behaviour behaviour) {
    void* memory =
        ::mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    seen_ = new (memory) Seen;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close_range(3, ~0u, 0);  // what is of the ferryd in this process
      // Its output may be a pipe to whoever runs the test: a program with such a pipe is not moved.
      const int null = ::open("/dev/null", O_RDWR);
      for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
      ::close(null);
      play(socket, behaviour);
      ::_exit(0);
    }
  }
  ~PlayedProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::munmap(seen_, sizeof(Seen));
  }

  pid_t pid() const { return pid_; }
  Seen& seen() { return *seen_; }

  static port::Address address() { return port::Address::from_ipv4(0x7F4E0001); }

 private:
  static int connect(const std::string& path) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strcpy(name.sun_path, path.c_str());
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    for (int i = 0; i < 500; ++i) {
      if (::connect(socket, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0) return socket;
      ::usleep(2000);
    }
    ::_exit(9);
  }

  void play(const std::string& path, const Behaviour& behaviour) {
    int error = 0;
    std::unique_ptr<port::UdpPort> udp;
    if (behaviour.comes_back_from == 0) {
      udp = port::UdpPort::bind(address(), behaviour.slot, &error);
      if (!udp) ::_exit(8);
    }
    device::Slot place;  // as it says
    place.slot = behaviour.says_slot != 0 ? behaviour.says_slot : behaviour.slot;
    place.local = {address(), port::udp_port_of_slot(place.slot)};
    place.origin = behaviour.origin;
    place.epoch = behaviour.epoch;
    const agent::Register registration{agent::kVersion, "played",
                                       reinterpret_cast<std::uint64_t>(&seen_->control)};
    int socket = -1;
    if (behaviour.comes_back_from == 0) {
      socket = connect(path);
      agent::send_message(socket, agent::MessageType::kRegister, agent::encode(registration));
    } else {
      socket = come_back(path, behaviour.comes_back_from, registration, place.local);
    }
    for (;;) {
      agent::Message message;
      if (agent::receive_message(socket, &message) != 0) ::_exit(7);
      if (message.type == agent::MessageType::kStatus) {
        answer_status(socket, place);
      } else if (message.type == agent::MessageType::kStop && !behaviour.mute) {
        agent::Stop stop;
        agent::parse(message.body, &stop);
        agent::Stopped stopped;
        stopped.move_id = stop.move_id;
        stopped.error = behaviour.stop_error;
        stopped.prepare_ns = 5;
        stopped.suspend_ns = 10;
        stopped.detach_ns = 20;
        stopped.qps = 2;
        stopped.unacked_psns = 3;
        ::usleep(behaviour.stop_ms * 1000);
        if (behaviour.stop_error != 0) {
          agent::send_message(socket, agent::MessageType::kStopped, agent::encode(stopped));
          continue;
        }
        device::Slot slot = place;
        if (behaviour.has_standard_peer) {
          transport::StoppedPeer entry;
          entry.peer = {port::Address::from_ipv4(0x7F4E0002), port::kRoceUdpPort};
          entry.peer_class = transport::PeerClass::kUnmodified;
          wire::ByteWriter out(&slot.entries.emplace_back());
          entry.save(out);
        }
        slot.descriptor = udp->release();
        stopped.contexts.push_back({"lo", {slot}});
        agent::send_message(socket, agent::MessageType::kStopped, agent::encode(stopped),
                            {&slot.descriptor, 1});
        int broken = agent::receive_message(socket, &message);
        while (broken == 0 && message.type == agent::MessageType::kStatus) {
          answer_status(socket, place);
          broken = agent::receive_message(socket, &message);
        }
        if (broken != 0 || (behaviour.clings && agent::receive_message(socket, &message) != 0)) {
          // The connection broke: the stop did not happen.
          udp = port::UdpPort::adopt(slot.descriptor, &error);
          ++seen_->resumed;
          socket = connect(path);
          agent::send_message(socket, agent::MessageType::kRegister, agent::encode(registration));
          continue;
        }
        ::close(slot.descriptor);
        ++seen_->stopped;
        ::close(socket);  // ferryd waits for this
        ++place.epoch;
        socket = come_back(path, stop.move_id, registration, slot.local);
      }
    }
  }

  static void answer_status(int socket, const device::Slot& place) {
    agent::StatusReply reply;
    reply.contexts.push_back({"played0", "lo", {}, {place}, {}});
    agent::send_message(socket, agent::MessageType::kStatusReply, agent::encode(reply));
  }

  int come_back(const std::string& path, std::uint64_t move_id, const agent::Register& registration,
                const port::Endpoint& local) {
    std::atomic_ref<std::uint32_t> command(seen_->control.command);
    while (command == agent::ControlBlock::kNone) ::usleep(500);
    seen_->command = static_cast<int>(command.exchange(agent::ControlBlock::kNone));
    for (;;) {
      const int socket = connect(path);
      agent::Message message;
      agent::send_message(socket, agent::MessageType::kAwake,
                          agent::encode(agent::Awake{move_id, registration}));
      if (agent::receive_message(socket, &message) != 0) ::_exit(6);
      if (message.type == agent::MessageType::kResume) {
        agent::Resume resume;
        agent::parse(message.body, &resume);
        agent::give_descriptors(&message.descriptors, &resume.contexts);
        int error = 0;
        const auto udp = port::UdpPort::adopt(resume.contexts[0].slots[0].descriptor, &error);
        seen_->rollback = resume.rollback;
        seen_->same_socket = udp && udp->local() == local;
        agent::send_message(socket, agent::MessageType::kResumed,
                            agent::encode(agent::Resumed{move_id, 0, 30, 40}));
        ++seen_->resumed;
        return socket;
      }
      ++seen_->stays;
      ::close(socket);
      ::usleep(2000);
    }
  }

  Seen* seen_ = nullptr;
  pid_t pid_ = 0;
};

// Waits for it, a minute at most: only what never comes true takes so long.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 60000; ++i) {
    if (condition()) return true;
    ::usleep(1000);
  }
  return condition();
}

}  // namespace ferry::test
