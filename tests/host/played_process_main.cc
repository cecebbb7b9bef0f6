#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <span>
#include <string>

#include "agent/protocol.h"
#include "device/parcel.h"
#include "played_process.h"
#include "port/slot.h"
#include "port/udp_port.h"
#include "rnic/slot.h"
#include "transport/stopped.h"

// The process that a test plays with PlayedProcess.
namespace ferry::test {
namespace {

class Play {
 public:
  explicit Play(PlayedProcess::Part& part)
      : path_(part.socket), behaviour_(part.behaviour), seen_(part.seen) {}

  void play() {
    int error = 0;
    std::unique_ptr<port::UdpPort> udp;
    if (behaviour_.comes_back_from == 0) {
      udp = port::UdpPort::bind(PlayedProcess::address(), behaviour_.slot, &error);
      if (!udp) ::_exit(8);
    }
    rnic::Slot place;  // as it says
    place.slot = behaviour_.says_slot != 0 ? behaviour_.says_slot : behaviour_.slot;
    place.local = {PlayedProcess::address(), port::udp_port_of_slot(place.slot)};
    place.origin = behaviour_.origin;
    place.epoch = behaviour_.epoch;
    const agent::Register registration{agent::kVersion, "played",
                                       reinterpret_cast<std::uint64_t>(&seen_.control)};
    int socket = -1;
    if (behaviour_.comes_back_from == 0) {
      socket = connect();
      agent::send_message(socket, agent::MessageType::kRegister, agent::encode(registration));
    } else {
      socket = come_back(behaviour_.comes_back_from, registration, place.local);
    }
    for (;;) {
      agent::Message message;
      if (agent::receive_message(socket, &message) != 0) ::_exit(7);
      if (message.type == agent::MessageType::kStatus) {
        answer_status(socket, place);
      } else if (message.type == agent::MessageType::kDeliver) {
        take_letters(socket, message);
      } else if (message.type == agent::MessageType::kMovedNames) {
        device::MovedNames moved;
        agent::parse(message.body, &moved);
        std::size_t qpns = 0;
        for (const auto& qps : moved.datagram_qps) qpns += qps.qpns.size();
        seen_.datagram_qpns = static_cast<int>(qpns);
        seen_.moved_names = static_cast<int>(moved.gids.size());
      } else if (message.type == agent::MessageType::kSuspend) {
        suspend(socket, message);
      } else if (message.type == agent::MessageType::kStop && !behaviour_.mute) {
        agent::Stop stop;
        agent::parse(message.body, &stop);
        agent::Stopped stopped;
        stopped.move_id = stop.move_id;
        stopped.error = behaviour_.stop_error;
        stopped.prepare_ns = 5;
        stopped.suspend_ns = 10;
        stopped.detach_ns = 20;
        stopped.qps = 2;
        stopped.unacked_psns = 3;
        ::usleep(behaviour_.stop_ms * 1000);
        if (behaviour_.stop_error != 0) {
          agent::send_message(socket, agent::MessageType::kStopped, agent::encode(stopped));
          continue;
        }
        rnic::Slot slot = place;
        if (behaviour_.has_standard_peer) {
          transport::StoppedEnd entry;
          entry.peer = {port::Address::from_ipv4(0x7F4E0002), port::kRoceUdpPort};
          entry.peer_class = transport::PeerClass::kUnmodified;
          wire::ByteWriter out(&slot.entries.emplace_back());
          entry.save(out);
        }
        slot.descriptor = udp->release();
        stopped.contexts.push_back({"lo", rnic::to_parcel({slot})});
        if (behaviour_.leaves_none0) {
          stopped.contexts.push_back({"lo", device::to_parcel("none0")});
        }
        agent::send_message(socket, agent::MessageType::kStopped, agent::encode(stopped),
                            {&slot.descriptor, 1});
        int broken = agent::receive_message(socket, &message);
        while (broken == 0 && message.type == agent::MessageType::kStatus) {
          answer_status(socket, place);
          broken = agent::receive_message(socket, &message);
        }
        if (broken != 0 || (behaviour_.clings && agent::receive_message(socket, &message) != 0)) {
          // The connection broke: the stop did not happen.
          udp = port::UdpPort::adopt(slot.descriptor, &error);
          ++seen_.resumed;
          socket = connect();
          agent::send_message(socket, agent::MessageType::kRegister, agent::encode(registration));
          continue;
        }
        ::close(slot.descriptor);
        ++seen_.stopped;
        ::close(socket);  // ferryd waits for this
        ++place.epoch;
        socket = come_back(stop.move_id, registration, slot.local);
      }
    }
  }

 private:
  int connect() const {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    path_.copy(name.sun_path, sizeof name.sun_path - 1);
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    for (int i = 0; i < 500; ++i) {
      if (::connect(socket, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0) return socket;
      ::usleep(2000);
    }
    ::_exit(9);
  }

  void take_letters(int socket, const agent::Message& message) {
    agent::Letters letters;
    agent::parse(message.body, &letters);
    agent::Delivered delivered;
    for (const auto& letter : letters.letters) {
      const bool fits = letter.to == behaviour_.own && letter.from == behaviour_.peer;
      if (fits) ++(letter.bytes.empty() ? seen_.returned_letters : seen_.letters);
      delivered.errors.push_back(fits ? 0 : ENOENT);
    }
    agent::send_message(socket, agent::MessageType::kDelivered, agent::encode(delivered));
  }

  void suspend(int socket, const agent::Message& message) {
    agent::Suspend request;
    agent::parse(message.body, &request);
    ++(request.release ? seen_.releases : seen_.suspensions);
    const bool done = seen_.suspensions > behaviour_.suspended_after;
    agent::send_message(socket, agent::MessageType::kSuspending,
                        agent::encode(agent::Suspending{request.move_id, done}));
  }

  void answer_status(int socket, const rnic::Slot& place) const {
    agent::StatusReply reply;
    reply.contexts.push_back({"played0", "lo", {}, rnic::to_parcel({place}), {}});
    if (behaviour_.own.qpn != 0) {
      device::QpStatus qp;
      qp.qpn = behaviour_.own.qpn;
      qp.peer_qpn = behaviour_.peer.qpn;
      qp.local.address = behaviour_.own.gid;
      qp.peer.address = behaviour_.peer.gid;
      qp.state = 3;  // RTS
      reply.contexts.push_back({"rxe0", "lo", {qp}, device::to_parcel("rxe0"), {}});
    }
    if (behaviour_.has_rxe1) {
      reply.contexts.push_back({"rxe1", "lo", {}, device::to_parcel("rxe1"), {}});
    }
    agent::send_message(socket, agent::MessageType::kStatusReply, agent::encode(reply));
  }

  int come_back(std::uint64_t move_id, const agent::Register& registration,
                const port::Endpoint& local) {
    std::atomic_ref<std::uint32_t> command(seen_.control.command);
    while (command == agent::ControlBlock::kNone) ::usleep(500);
    seen_.command = static_cast<int>(command.exchange(agent::ControlBlock::kNone));
    for (;;) {
      const int socket = connect();
      agent::Message message;
      agent::send_message(socket, agent::MessageType::kAwake,
                          agent::encode(agent::Awake{move_id, registration}));
      if (agent::receive_message(socket, &message) != 0) ::_exit(6);
      if (message.type == agent::MessageType::kResume) {
        agent::Resume resume;
        agent::parse(message.body, &resume);
        agent::give_descriptors(&message.descriptors, &resume.contexts);
        int error = 0;
        const int given = resume.contexts.at(0).parcel.descriptors.at(0);
        const auto udp = port::UdpPort::adopt(given, &error);
        seen_.rollback = resume.rollback;
        seen_.same_socket = udp && udp->local() == local;
        agent::send_message(socket, agent::MessageType::kResumed,
                            agent::encode(agent::Resumed{move_id, 0, 30, 40}));
        ++seen_.resumed;
        return socket;
      }
      ++seen_.stays;
      ::close(socket);
      ::usleep(2000);
    }
  }

  const std::string path_;
  const PlayedProcess::Behaviour behaviour_;
  PlayedProcess::Seen& seen_;
};

}  // namespace
}  // namespace ferry::test

int main() {
  using ferry::test::PlayedProcess;
  void* part = ::mmap(nullptr, sizeof(PlayedProcess::Part), PROT_READ | PROT_WRITE, MAP_SHARED,
                      PlayedProcess::kPartFd, 0);
  ::close(PlayedProcess::kPartFd);
  if (part == MAP_FAILED) return 11;
  ferry::test::Play(*static_cast<PlayedProcess::Part*>(part)).play();
}
