// A stranger on a host, who speaks the control protocol (agent/protocol.h) as nobody should: every message, whole,
// repeated, out of turn, cut off, damaged and with descriptors that nobody wants; and as a program that lies when it is
// asked. All that it says is of somebody else: the RNIC at ORIGIN, the processes that it sees, the moves in their
// command lines.
//
//   attack ORIGIN HERE SEED    says "seed SEED"; at SIGTERM it prints {"messages":N,"connections":N,"answers":N}
//   attack --ask ORIGIN        asks as an honest program where that RNIC is: prints ADDRESS/SLOT, or "nowhere"
//
// ORIGIN, HERE: an IPv4 address and a slot, "10.78.1.1/0". The socket is $FERRYD_SOCKET.

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>
#include <random>
#include <string>
#include <vector>

#include "agent/protocol.h"
#include "port/slot.h"
#include "rnic/slot.h"

namespace {

namespace agent = ferry::agent;
namespace port = ferry::port;
using agent::MessageType;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kMostConnections = 40;
constexpr unsigned kPauseUs = 300;  // between messages: others want a processor, too

std::atomic<bool> ended{false};

port::Endpoint parse_place(const std::string& text) {
  const std::size_t slash = text.find('/');
  in_addr address{};
  if (slash == std::string::npos ||
      ::inet_pton(AF_INET, text.substr(0, slash).c_str(), &address) != 1) {
    std::fprintf(stderr, "attack: '%s' is not ADDRESS/SLOT\n", text.c_str());
    std::exit(2);
  }
  const auto slot = static_cast<std::uint32_t>(std::atoi(text.c_str() + slash + 1));
  return {port::Address::from_ipv4(ntohl(address.s_addr)), port::udp_port_of_slot(slot)};
}

std::string text_of(const port::Endpoint& place) {
  char address[INET_ADDRSTRLEN];
  ::inet_ntop(AF_INET, place.address.bytes.data() + 12, address, sizeof address);
  return std::string(address) + "/" + std::to_string(port::slot_of_udp_port(place.udp_port));
}

class Stranger {
 public:
  Stranger(const port::Endpoint& origin, const port::Endpoint& here, unsigned seed)
      : origin_(origin), here_(here), random_(seed) {
    if (::pipe2(pipe_, O_CLOEXEC) != 0) std::exit(3);
  }

  void run() {
    while (!ended) {
      if (random_() % 64 == 0) look_around();
      answer();
      if (connections_.empty() || (connections_.size() < kMostConnections && chance(8))) connect();
      if (connections_.empty()) continue;
      const auto connection = std::next(connections_.begin(), pick(connections_.size()));
      if (!attack(*connection) || chance(16)) {
        ::close(*connection);
        connections_.erase(connection);
      }
      ::usleep(kPauseUs);
    }
    std::printf("{\"messages\":%llu,\"connections\":%llu,\"answers\":%llu}\n", messages_, made_,
                answers_);
  }

 private:
  using Count = unsigned long long;

  std::size_t pick(std::size_t count) { return random_() % count; }
  bool chance(unsigned of) { return random_() % of == 0; }

  // Who and what is there: processes, and the numbers of moves, which are in the command lines of CRIU and podman.
  void look_around() {
    pids_.clear();
    moves_.clear();
    std::error_code error;
    for (auto entry = std::filesystem::directory_iterator("/proc", error);
         !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      const int pid = std::atoi(entry->path().filename().c_str());
      if (pid <= 0) continue;
      pids_.push_back(pid);
      std::ifstream file(entry->path() / "cmdline");
      std::string line;
      std::getline(file, line, '\n');  // it may have ended meanwhile
      for (std::size_t i = 0; i + 16 <= line.size(); ++i) {
        const std::string word = line.substr(i, 16);
        if (word.find_first_not_of("0123456789abcdef") == std::string::npos) {
          moves_.push_back(std::strtoull(word.c_str(), nullptr, 16));
          i += 15;
        }
      }
    }
  }

  pid_t a_pid() { return pids_.empty() ? 1 : pids_[pick(pids_.size())]; }
  std::uint64_t a_move() {
    return moves_.empty() || chance(4) ? random_() : moves_[pick(moves_.size())];
  }
  std::string a_note() {
    char text[160];
    std::snprintf(text, sizeof text, "%016llx sv h1 10.77.0.1:4780",
                  static_cast<unsigned long long>(a_move()));
    return text;
  }

  // The victim's RNIC is mine, it says.
  agent::ParkedContext a_context(std::size_t count) {
    const bool has_descriptors = chance(2);
    std::vector<ferry::rnic::Slot> slots;
    for (std::size_t i = 0; i < count; ++i) {
      ferry::rnic::Slot& slot = slots.emplace_back();
      if (has_descriptors) slot.descriptor = 0;  // its number does not travel
      slot.local = chance(2) ? here_ : origin_;
      slot.slot = port::slot_of_udp_port(slot.local.udp_port);
      slot.origin = origin_;
      if (count > 1)
        slot.origin.udp_port = port::udp_port_of_slot(static_cast<std::uint32_t>(pick(1000)));
      slot.epoch = chance(2) ? ~0u : static_cast<std::uint32_t>(pick(100));
    }
    return {"rdma0", ferry::rnic::to_parcel(slots)};
  }

  Bytes a_status() {
    agent::StatusReply reply;
    for (std::size_t i = pick(3); i < 4; ++i) {
      agent::ContextStatus& context = reply.contexts.emplace_back();
      context.device = "ferry_rdma0";
      context.netdev = "rdma0";
      context.place = a_context(1 + pick(500)).parcel;
    }
    return agent::encode(reply);
  }

  Bytes a_body(MessageType type) {
    const agent::Register registration{agent::kVersion, "stranger", random_()};
    switch (type) {
      case MessageType::kRegister: return agent::encode(registration);
      case MessageType::kStatusReply: return a_status();
      case MessageType::kStopped:
        return agent::encode(agent::Stopped{a_move(), 0, 1, 2, 3, 4, 5, {a_context(1)}});
      case MessageType::kAwake: return agent::encode(agent::Awake{a_move(), registration});
      case MessageType::kResumed:
        return agent::encode(agent::Resumed{a_move(), chance(2) ? EBADF : 0, 1, 2});
      case MessageType::kPeersKnow:
        return agent::encode(agent::PeersKnow{a_move(), 0, {16, 17, 18}, 7});
      case MessageType::kLocate: {
        agent::Locate question;
        for (std::size_t i = pick(4096); i > 0; --i) {
          question.names.push_back(
              {origin_.address, port::udp_port_of_slot(static_cast<std::uint32_t>(pick(1000)))});
        }
        return agent::encode(question);
      }
      case MessageType::kTracked: return agent::encode(agent::Tracked{});
      case MessageType::kStop: return agent::encode(agent::Stop{a_move(), 1});
      case MessageType::kResume: return agent::encode(agent::Resume{true, {a_context(1)}});
      case MessageType::kStay: return agent::encode(agent::Stay{0});
      case MessageType::kLocated: return agent::encode(agent::Located{{{origin_, here_, ~0u}}});
      case MessageType::kPauseTree: return agent::encode(agent::PauseTree{a_pid()});
      case MessageType::kFrozen: return agent::encode(agent::Frozen{a_pid()});
      case MessageType::kDumpFailed: return agent::encode(agent::DumpFailed{a_pid()});
      case MessageType::kAction: {
        const char* const names[] = {"post-dump", "post-restore", "network-lock", "network-unlock"};
        return agent::encode(agent::Action{names[pick(4)], a_pid(), a_move()});
      }
      case MessageType::kDone: return agent::encode(agent::Done{});
      case MessageType::kClaim: return agent::encode(agent::Claim{a_note()});
      case MessageType::kRestoreFailed: return agent::encode(agent::RestoreFailed{a_note()});
      case MessageType::kRestored: return agent::encode(agent::Restored{a_note(), a_pid(), true});
      case MessageType::kTicket:
        return agent::encode(agent::Ticket{"0123456789abcdef0123456789abcdef"});
      default: return {};
    }
  }

  MessageType a_type() {
    static constexpr MessageType kAll[] = {
        MessageType::kRegister,      MessageType::kStatusReply, MessageType::kStopped,
        MessageType::kAwake,         MessageType::kResumed,     MessageType::kPeersKnow,
        MessageType::kLocate,        MessageType::kTracked,     MessageType::kStatus,
        MessageType::kStop,          MessageType::kStopTaken,   MessageType::kResume,
        MessageType::kStay,          MessageType::kLocated,     MessageType::kTrack,
        MessageType::kPauseTree,     MessageType::kFrozen,      MessageType::kDumpFailed,
        MessageType::kAction,        MessageType::kDone,        MessageType::kClaim,
        MessageType::kRestoreFailed, MessageType::kRestored,    MessageType::kWhoAmI,
        MessageType::kTicket};
    return kAll[pick(std::size(kAll))];
  }

  void connect() {
    const int socket = agent::connect_to_ferryd();
    if (socket < 0) {
      ::usleep(10000);
      return;
    }
    ++made_;
    ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
    connections_.push_back(socket);
  }

  std::vector<int> some_descriptors() {
    return std::vector<int>(chance(4) ? 1 + pick(agent::kMaxDescriptors) : 0, pipe_[0]);
  }

  bool say(int socket, MessageType type) {
    ++messages_;
    return agent::send_message(socket, type, a_body(type), some_descriptors()) == 0;
  }

  // A message as it should be, of which a part is sent, or which is damaged.
  bool say_badly(int socket, MessageType type) {
    ++messages_;
    Bytes bytes(12);
    const Bytes body = a_body(type);
    const std::uint32_t length =
        chance(8) ? ~0u : static_cast<std::uint32_t>(body.size() + pick(64));
    const auto number = static_cast<std::uint16_t>(type);
    std::memcpy(bytes.data(), &agent::kMagic, 4);
    std::memcpy(bytes.data() + 4, &agent::kVersion, 2);
    std::memcpy(bytes.data() + 6, &number, 2);
    std::memcpy(bytes.data() + 8, &length, 4);
    bytes.insert(bytes.end(), body.begin(), body.end());
    if (chance(2)) bytes[pick(bytes.size())] ^= static_cast<std::byte>(1 + pick(255));
    if (chance(2)) bytes.resize(1 + pick(bytes.size()));
    return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0;
  }

  // False: the connection is of no more use.
  bool attack(int socket) {
    const MessageType type = a_type();
    if (chance(3)) return say_badly(socket, type);
    if (chance(2)) return say(socket, MessageType::kRegister) && say(socket, type);
    for (std::size_t i = pick(chance(8) ? 50 : 3); i > 0; --i) {
      if (!say(socket, type)) return false;
    }
    return true;
  }

  // As a program that ferryd believes to be one of its own.
  void answer() {
    for (auto socket = connections_.begin(); socket != connections_.end();) {
      pollfd waits{*socket, POLLIN, 0};
      agent::Message message;
      if (::poll(&waits, 1, 0) <= 0) {
        ++socket;
        continue;
      }
      if (agent::receive_message(*socket, &message, 0) != 0) {
        ::close(*socket);
        socket = connections_.erase(socket);
        continue;
      }
      agent::close_descriptors(&message.descriptors);
      ++answers_;
      if (message.type == MessageType::kStatus && !chance(4))
        say(*socket, MessageType::kStatusReply);
      if (message.type == MessageType::kTrack) say(*socket, MessageType::kTracked);
      agent::Stop stop;
      if (message.type == MessageType::kStop && agent::parse(message.body, &stop))
        lie(*socket, stop);
      ++socket;
    }
  }

  // It is to be moved, and has another's sockets to give away.
  void lie(int socket, const agent::Stop& stop) {
    const agent::Stopped stopped{stop.move_id, 0, 1, 2, 3, 4, 5, {a_context(1)}};
    const int udp = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    agent::send_message(socket, MessageType::kStopped, agent::encode(stopped), {&udp, 1});
    ::close(udp);
  }

  const port::Endpoint origin_, here_;
  std::mt19937_64 random_;
  int pipe_[2]{};
  std::list<int> connections_;
  std::vector<pid_t> pids_;
  std::vector<std::uint64_t> moves_;
  Count messages_ = 0, made_ = 0, answers_ = 0;
};

int ask(const port::Endpoint& origin) {
  const int socket = agent::connect_to_ferryd();
  if (socket < 0) {
    std::fprintf(stderr, "attack: cannot reach ferryd: %s\n", std::strerror(-socket));
    return 1;
  }
  agent::send_message(socket, MessageType::kRegister,
                      agent::encode(agent::Register{agent::kVersion, "asker", 0}));
  agent::send_message(socket, MessageType::kLocate, agent::encode(agent::Locate{{origin}}));
  agent::Message message;
  agent::Located located;
  while (agent::receive_message(socket, &message, 5000) == 0) {
    agent::close_descriptors(&message.descriptors);
    if (message.type != MessageType::kLocated || !agent::parse(message.body, &located)) continue;
    for (const auto& place : located.places) std::printf("%s\n", text_of(place.location).c_str());
    return 0;
  }
  std::printf("nowhere\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--ask") return ask(parse_place(argv[2]));
  if (argc != 4) {
    std::fprintf(stderr, "usage: attack ORIGIN HERE SEED | attack --ask ORIGIN\n");
    return 2;
  }
  struct sigaction action {};
  action.sa_handler = [](int) { ended = true; };
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  std::printf("seed %s\n", argv[3]);
  std::fflush(stdout);
  Stranger(parse_place(argv[1]), parse_place(argv[2]), static_cast<unsigned>(std::atoi(argv[3])))
      .run();
  return 0;
}
