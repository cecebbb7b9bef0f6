#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/unique_fd.h"
#include "pipe/library/mapping.h"
#include "pipe/protocol/control.h"
#include "pipe/protocol/entry.h"

namespace ferry::pd {

// Who wants to know when something of a socket has changed.
class Watch {
 public:
  virtual ~Watch() = default;
  // From any thread; quickly.
  virtual void wake() = 0;
  // The socket has a descriptor of the kernel's now, which tells by itself; -1: it is about to close that.
  virtual void has_descriptor(int descriptor) = 0;
};

// A socket as the program sees it. Its number is a place in the program's table, which is used again.
struct Socket {
  enum class Kind { kClosed, kFresh, kListening, kPipe, kConnecting, kTcp, kEnding };
  static constexpr int kPatience = 20;              // microseconds
  static constexpr std::uint64_t kMostSends = 512;  // under way; the driver allows more

  struct Block {
    std::uint64_t size = 0;
    std::uint32_t index = 0;      // in the driver's SBT
    std::uint64_t last_send = 0;  // the number of the last send from it
  };

  // One that is not done: the next driver hears of it again.
  struct Sent {
    std::uint64_t offset = 0, end = 0;  // of the send ring; of all that was sent, in bytes
    std::uint32_t length = 0, block = 0;
  };

  // Calls hold this; what is atomic is changed and read without it as well.
  std::mutex mutex;
  std::atomic<Kind> kind{Kind::kClosed};
  pipe::SocketId id;
  std::uint16_t family = 0;
  pipe::SocketAddress local, peer;
  Mapping send_ring, receive_ring;
  UniqueFd ring_memory[2];                 // of both
  std::uint64_t wanted_sizes[2] = {0, 0};  // SO_SNDBUF, SO_RCVBUF; 0: as the driver likes
  int backlog = 0;
  bool joined = false;                    // connected by the pipe
  std::atomic<std::uint64_t> epoch{0};    // of the driver that knows the socket (Program)
  std::uint64_t begun = 0;                // likewise, and nothing of what it has
  std::map<std::uint64_t, Block> blocks;  // by offset in send_ring
  std::map<std::uint64_t, Block> freed;   // likewise, and sends use them still
  std::vector<Sent> log;                  // a ring, by the number of the send
  std::uint64_t sent_bytes = 0;
  std::uint32_t lane = 0;           // which queue its requests go to
  std::uint64_t last_position = 0;  // in that queue, of the last one
  int patience = kPatience;         // SO_BUSY_POLL
  int error = 0;                    // SO_ERROR
  UniqueFd tcp;                     // bound, listening, or what carries the bytes
  Socket* accepted = nullptr;       // listening: it has no rings yet, and is nobody's
  bool read_shut = false;
  std::atomic<bool> write_shut{false};

  // Counts of the whole connection.
  std::atomic<std::uint64_t> sent{0};    // sends
  std::atomic<std::uint64_t> handed{0};  // bytes that pd_recv() has pointed to; listening: accepted
  std::uint64_t given_back = 0, told = 0;  // bytes: by pd_recv_done(), and as the driver knows it

  // By the driver's completions (Program::reap); of TCP by the library itself.
  std::atomic<std::uint32_t> generation{0};  // 0: there is no socket
  std::uint32_t last_generation = 0;         // that was here; the driver counts up
  std::atomic<std::uint64_t> done{0};        // sends
  std::atomic<std::uint64_t> received{0};    // bytes; listening: connections
  std::atomic<std::uint16_t> flags{0};       // pipe::EntryFlags

  std::mutex watch_mutex;
  std::vector<std::shared_ptr<Watch>> watches;

  std::uint64_t under_way() const { return sent - done; }
  // A block of the driver's, in the place of what was there. The caller has the mutex of what is reaped (Program).
  void add_block(std::uint64_t offset, const Block& block);
  // pd_free() of a block: sends may use it still.
  void free_block(std::uint64_t offset);
  void forget_freed();  // those that no send uses
  Sent& logged(std::uint64_t send) { return log[send % kMostSends]; }
  // For the driver: send `number` of this socket.
  pipe::Entry entry_of(const Sent& send, std::uint64_t number) const;
  // pd_close() was not called.
  bool is_open() const { return kind != Kind::kClosed && kind != Kind::kEnding; }
  // PD_EPOLLIN and the others, of a socket on the pipe.
  std::uint32_t ready() const;
  // The kernel's descriptor that tells of the socket. -1: it has none, or one that only keeps its port.
  int descriptor() const;
  // Its port is free for others from now on. The driver has the descriptor as well, and closes it when it can.
  void stop_listening() const;
  // As it was before it was made. The caller has both mutexes that guard it (Program).
  void clear();
  void wake_watches();
};

}  // namespace ferry::pd
