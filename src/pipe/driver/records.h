#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "pipe/protocol/control.h"

namespace ferry::pipe {

// A process: no other one has both numbers, then or later.
struct Process {
  std::int32_t pid = 0;
  std::uint64_t started = 0;  // in clock ticks since the boot

  auto operator<=>(const Process&) const = default;
};

// Whose a program is: of which container, which is a pair of a network and a PID namespace, and of which user.
struct OwnerName {
  std::uint64_t network = 0, pid_namespace = 0;
  std::uint32_t user = 0;
};

// What the driver knows of connections, in a file that outlives it: who has the ends, and how much has arrived. A
// driver that was killed has written each number either wholly or not at all, and one after the other. Zeroes are a
// record that is not used.

struct EndRecord {
  enum State : std::uint32_t { kNobody, kWaits, kOpen, kClosed };

  std::atomic<std::uint32_t> state;  // written last
  Process process;
  std::uint64_t session;  // Session::name
  SocketId socket;        // kOpen
  SocketId listener;      // of who accepts
  // Whose memory that of the program is, and how many bytes its queues have, and kOpen: its send and its receive ring.
  OwnerName owner;
  std::uint64_t queues, rings[2];
};

struct StreamRecord {
  std::atomic<std::uint64_t> received;  // bytes that are in the receiver's ring, or were read there
  std::atomic<std::uint32_t> ended;     // and no more will come
  // Nobody reads; the connection is gone. What was sent then is done without having been received.
  std::atomic<std::uint32_t> read_closed, reset;
};

struct ConnectionRecord {
  std::atomic<std::uint32_t> used;  // written last
  std::uint64_t order;              // counts up
  SocketAddress addresses[2];
  EndRecord ends[2];
  StreamRecord streams[2];
};

class Records {
 public:
  static constexpr std::size_t kMost = 65536;

  // They end with this object.
  Records();
  // In a file. What cannot be of a ferry-piped before this one, the log tells of, and there are no connections then.
  // Throws Failure: another ferry-piped has the file, or it cannot be written.
  explicit Records(const std::string& file);
  Records(const Records&) = delete;
  // A file without connections is deleted.
  ~Records();

  // False: the file system has no room for a record there. Else at() may be called.
  bool make_room(std::size_t place);
  ConnectionRecord& at(std::uint16_t place);
  // Above them no place has ever been used.
  std::size_t places() const;
  std::uint64_t next_session();
  std::uint64_t next_order();

 private:
  struct Memory;

  void map(int descriptor);
  std::string what_is_wrong();

  const std::string file_;
  UniqueFd descriptor_;
  Memory* memory_ = nullptr;
  std::size_t allocated_ = 0;  // places, of the file
};

}  // namespace ferry::pipe
