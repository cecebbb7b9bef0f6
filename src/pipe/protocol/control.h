#pragma once

#include <array>
#include <compare>
#include <cstdint>

// What PD Lib asks the driver over its socket (SOCK_SEQPACKET): a request and its answer, one at a
// time. The socket is the session: it ends with the program. Both sides are of the same host, so
// numbers are in the order of the host's bytes.
namespace ferry::pipe {

inline constexpr std::uint32_t kControlVersion = 2;
inline constexpr char kDefaultSocket[] = "/run/ferry/pipe.sock";
// Behind that name: the socket (SOCK_SEQPACKET) of root, who asks a line of words (policy/command.h), and gets a text
// in messages, up to the end. It begins with kDone, or with kNotDone and why it is not.
inline constexpr char kAdminSuffix[] = ".admin";
inline constexpr char kDone = '+', kNotDone = '-';

enum class Call : std::uint32_t {
  kHello = 1,   // number: kControlVersion; sizes: sqthresh, cqthresh; name: the engine, "" for any
  kSocket = 2,  // number: the address family
  kBind = 3,  // with a TCP socket that the program has bound to `address`: the kernel's word for it
  kListen = 4,  // number: backlog
  kAccept = 5,
  kConnect = 6,    // to `address`
  kRings = 7,      // the socket's rings
  kAllocate = 8,   // sizes[0] bytes of the send ring
  kFree = 9,       // number: of the block in the SBT
  kShutdown = 10,  // number: SHUT_RD, SHUT_WR, SHUT_RDWR
  kClose = 11,
  kBufferSizes =
      12,  // sizes: of the send and the receive ring that the socket is to get; 0: as it is
  // The program has closed the socket, and keeps its number and ring until all is sent: kClose is to come.
  kEnd = 13,

  // After ferry-piped was started again, a program says what it has:
  //
  // In place of kHello, with the queues' memory, the doorbell and the notices' timer that it has. number:
  // kControlVersion; sizes: the session's name, cqthresh; socket: which numbers of sockets it may have (those below),
  // and the last generation that it knows.
  kResume = 14,
  kRestore = 15,    // the socket. number: the address family; sizes: of its rings, as kBufferSizes
  kGiveRings = 16,  // with the send and the receive ring of the socket
  kRestoreBlock = 17,  // number: of the block in the SBT; sizes: its offset and size
  // The socket is connected. count: sends that are done, sizes: bytes of these, and bytes that were read; number: how
  // many sends follow, in a submission queue, that are not done.
  kRejoin = 18,
  kResumed = 19,  // that is all
  // The program has the socket, and this driver has nothing of it any more. It keeps its number: kClose is to come.
  kGiveUp = 20,
};

struct SocketAddress {
  std::uint16_t family = 0;  // AF_INET, AF_INET6
  std::uint16_t port = 0;
  std::array<std::uint8_t, 16> ip{};  // of IPv4 the first four

  bool operator==(const SocketAddress&) const = default;
};

struct SocketId {
  std::uint32_t number = 0;
  std::uint32_t generation = 0;

  auto operator<=>(const SocketId&) const = default;
};

// Generations count up, and begin anew after 2^32.
inline bool is_newer(std::uint32_t one, std::uint32_t other) {
  return static_cast<std::int32_t>(one - other) > 0;
}

struct ControlRequest {
  Call call{};
  SocketId socket;
  std::uint32_t number = 0;
  std::uint64_t sizes[2]{};
  SocketAddress address;
  char name[16]{};
  std::uint64_t count = 0;  // kListen: connections that it has accepted before; kRejoin
};

// kHello: with the queues' memory, the doorbell and the notices' timer; number: how many queues; sizes: the session's
// name, and for how many milliseconds the program is to wait when ferry-piped has ended.
// kAccept, kRings: with the send and the receive ring.
// kAllocate: number: of the block, sizes[0]: its offset. kSocket, kAccept: socket.
struct ControlReply {
  std::int32_t error = 0;  // errno; kForeign
  SocketId socket;
  std::uint32_t number = 0;
  std::uint64_t sizes[2]{};
  SocketAddress local, peer;
};

// kConnect: nobody listens on the pipe there. TCP may know somebody.
inline constexpr std::int32_t kForeign = -1;

}  // namespace ferry::pipe
