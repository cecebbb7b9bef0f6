#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "pipe/driver/records.h"
#include "pipe/driver/stream.h"
#include "pipe/policy/rate_limit.h"

namespace ferry::pipe {

struct Owner;

// Two sockets and the streams between them.
struct Connection {
  std::uint16_t id = 0;
  std::uint32_t generation = 0;
  SocketAddress addresses[2];          // who connected, who accepted
  std::shared_ptr<Stream> streams[2];  // from who connected, from who accepted
  std::shared_ptr<Owner> containers[2];
  RateLimit rates[2];                             // of the streams
  std::atomic<bool> is_held[2] = {false, false};  // a stream is in Held
  std::atomic<bool> is_left[2] = {false, false};  // an end is nobody's any more
};

// The connection table: what an entry of an engine belongs to. Any thread may call.
class Connections {
 public:
  static constexpr std::size_t kMost = Records::kMost;  // what an entry can name

  explicit Connections(std::shared_ptr<Records> records) : records_(std::move(records)) {}

  // Those that another driver has written down, the oldest first; their streams are as restore() makes them.
  std::vector<std::shared_ptr<Connection>> restore();
  // Null: the table is full, or the file system of the records.
  std::shared_ptr<Connection> add(std::shared_ptr<Stream> from_client,
                                  std::shared_ptr<Stream> from_server);
  // Nothing of it is moved any more, and no engine has a piece of it.
  void remove(const Connection& connection);
  // Changes its record, if it is in the table still.
  void write(const Connection& connection, const std::function<void(ConnectionRecord&)>& change);
  std::shared_ptr<Connection> find(std::uint16_t id, std::uint32_t generation) const;
  std::size_t size() const;

 private:
  const std::shared_ptr<Records> records_;
  mutable std::shared_mutex mutex_;
  std::vector<std::shared_ptr<Connection>> table_;
  std::vector<std::uint16_t> unused_;
  std::uint32_t next_generation_ = 1;
};

}  // namespace ferry::pipe
