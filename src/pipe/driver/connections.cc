#include "pipe/driver/connections.h"

#include <mutex>
#include <utility>

namespace ferry::pipe {

std::shared_ptr<Connection> Connections::add(std::shared_ptr<Stream> from_client,
                                             std::shared_ptr<Stream> from_server) {
  const std::unique_lock lock(mutex_);
  if (unused_.empty()) {
    if (table_.size() == kMost) return nullptr;
    unused_.push_back(static_cast<std::uint16_t>(table_.size()));
    table_.emplace_back();
  }
  auto connection = std::make_shared<Connection>();
  connection->id = unused_.back();
  unused_.pop_back();
  connection->generation = next_generation_++;
  connection->streams[0] = std::move(from_client);
  connection->streams[1] = std::move(from_server);
  table_[connection->id] = connection;
  return connection;
}

void Connections::remove(const Connection& connection) {
  const std::unique_lock lock(mutex_);
  if (table_[connection.id].get() != &connection) return;
  table_[connection.id].reset();
  unused_.push_back(connection.id);
}

std::shared_ptr<Connection> Connections::find(std::uint16_t id, std::uint32_t generation) const {
  const std::shared_lock lock(mutex_);
  if (id >= table_.size() || !table_[id] || table_[id]->generation != generation) return nullptr;
  return table_[id];
}

std::size_t Connections::size() const {
  const std::shared_lock lock(mutex_);
  return table_.size() - unused_.size();
}

}  // namespace ferry::pipe
