#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace carriers {

// A connection, over whatever carries it. Errors end the program.
class Channel {
 public:
  virtual ~Channel() = default;

  // Sends a message of what its buffers hold, and waits for room as long as that takes.
  virtual void send(std::size_t size) = 0;
  // The memory that the next message is sent from, which has room for the longest. Waits until it may be written.
  virtual void* buffer() = 0;
  // Sends some of a message if there is room at once.
  virtual std::size_t try_send(std::size_t size) = 0;
  // Receives something, at most `most` bytes. 0: the peer sends no more.
  virtual std::size_t receive(std::size_t most) = 0;
  // The same without waiting: false where there is nothing.
  virtual bool try_receive(std::size_t most, std::size_t* got) = 0;
  // Receives something into the program's own memory. 0: the peer sends no more.
  virtual std::size_t read_some(void* data, std::size_t most) = 0;
  virtual void write(const void* data, std::size_t size) = 0;
  virtual void read(void* data, std::size_t size) = 0;
  virtual void finish_sending() = 0;
};

// Channels that may have something.
class Poller {
 public:
  virtual ~Poller() = default;
  // `to_send`: when it can send; else when it can receive.
  virtual void add(Channel& channel, std::uint32_t number, bool to_send) = 0;
  virtual void remove(Channel& channel) = 0;
  // Their numbers. Empty: none within `milliseconds`.
  virtual std::vector<std::uint32_t> wait(int milliseconds) = 0;
};

// Makes connections.
class Carrier {
 public:
  virtual ~Carrier() = default;
  // Where a server is: ADDRESS:PORT, or the path of a Unix socket. `message`: how long messages are at most.
  virtual void listen(const std::string& where, int backlog) = 0;
  virtual std::unique_ptr<Channel> accept(std::size_t message) = 0;
  virtual std::unique_ptr<Channel> connect(const std::string& where, std::size_t message) = 0;
  virtual std::unique_ptr<Poller> poller() = 0;
};

// `patience`: for how many milliseconds connect() tries while nobody listens there. Where there is some, accept() lets
// go of connections that have not come by the pipe: connect() tries those again.
std::unique_ptr<Carrier> make_pipe(int ring_size, int patience);
// TCP, and Unix sockets where an address has a '/'. `no_delay`: for who waits for an answer to each message.
std::unique_ptr<Carrier> make_sockets(bool no_delay, int patience);

}  // namespace carriers
