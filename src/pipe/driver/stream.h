#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "pipe/driver/receive_table.h"
#include "pipe/driver/records.h"
#include "pipe/driver/send_table.h"
#include "pipe/memory/pool.h"
#include "pipe/protocol/control.h"
#include "pipe/protocol/entry.h"

namespace ferry::pipe {

class Session;

// A socket of a program, from elsewhere: the program may have ended.
struct SocketName {
  std::weak_ptr<Session> session;
  SocketId id;
};

// One direction of a connection: the sender's ring and SBT, the receiver's ring and RBT, and the sends
// between. A socket has its own direction before it is connected, since it may have buffers already.
// Any thread may call.
class Stream {
 public:
  // More than a program of ours has under way; one that is not breaks its own connection.
  static constexpr std::size_t kMostSends = 1024;

  // What the two ends may know.
  struct State {
    std::uint64_t done = 0;      // sends
    std::uint64_t received = 0;  // bytes
    bool ended = false;          // all that will come has been received
    bool reset = false, read_closed = false;
  };
  State state() const;

  // The sender's side. Its ring, and its blocks.
  void set_sender(SocketName name, std::uint16_t container);
  void set_send_ring(std::shared_ptr<Ring> ring);
  int allocate(std::size_t size, std::uint64_t* offset);
  bool free(std::uint32_t block);
  bool restore_block(std::uint32_t block, std::uint64_t offset, std::uint64_t size);
  // False: this is no send of this program's own memory. Then the stream is reset. One that is not the next is
  // none: the program has said it before.
  bool send(const Entry& entry);
  // Nothing is sent after what has been. `at_once`: not even that, and if some is missing the receiver
  // is told that it is.
  void end(bool at_once);

  // The receiver's side.
  void set_receiver(SocketName name);
  // `read`: by the program, of what has been received by the same ring. False: that cannot be.
  bool set_receive_ring(std::shared_ptr<Ring> ring, std::uint64_t read = 0);
  // False: the program has not read what it says. Then the stream is reset.
  bool set_read(std::uint64_t read);
  // Nobody reads any more.
  void close_reading();

  void reset();

  // Where it is written down how far it is; null: nowhere any more.
  void set_record(StreamRecord* record);
  // The stream of a record that another driver has written. Its sender is not there yet.
  void restore();
  // Its sender is: `other` has the sender's name, ring and blocks, of a socket that was not connected. `done` sends
  // of `bytes` bytes are known to be done, and `following` are to be said again. False: that cannot be.
  bool take_sender(Stream& other, std::uint64_t done, std::uint64_t bytes, std::uint32_t following);

  // The next piece to copy, in addresses of the driver's, at most `longest` bytes; the caller says
  // which connection this is. Nothing: there is no more to send, or no room.
  std::optional<Entry> next(std::uint32_t longest);
  // A piece is written, or failed: then the stream is reset.
  void complete(const Entry& entry);
  bool has_more() const;
  // Nobody reads, and no engine has a piece: nothing of it will move any more.
  bool is_finished() const;

  SocketName sender() const;
  SocketName receiver() const;

 private:
  struct Send {
    std::uint64_t offset;
    std::uint32_t left;
    std::uint16_t block;
  };
  struct Sent {
    std::uint64_t end;  // of the stream, when all of it is received
    std::uint16_t block;
  };

  std::uint64_t said() const { return done_ + sends_.size() + sent_.size(); }
  bool can_move() const;
  void break_off();
  void drop_sends();
  void let_go();

  mutable std::mutex mutex_;
  SocketName sender_, receiver_;
  std::uint16_t container_ = 0;
  std::shared_ptr<Ring> from_, to_;
  SendTable blocks_;
  ReceiveTable table_;
  std::deque<Send> sends_;  // of which not all is reserved
  std::deque<Sent> sent_;   // all is reserved, and not all received
  std::uint64_t done_ = 0;
  std::uint64_t to_be_said_ = 0;  // sends that the program has made, at least
  std::uint64_t skipped_ = 0;     // bytes of the next sends that have been received already
  StreamRecord* record_ = nullptr;
  bool ended_ = false, reset_ = false, read_closed_ = false;
  std::optional<std::uint64_t> failed_at_;  // a copy failed: what is there from here on is no data
};

}  // namespace ferry::pipe
