#include "pipe/driver/connections.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace ferry::pipe {

std::shared_ptr<Connection> Connections::add(std::shared_ptr<Stream> from_client,
                                             std::shared_ptr<Stream> from_server) {
  const std::unique_lock lock(mutex_);
  if (unused_.empty()) {
    if (table_.size() == kMost || !records_->make_room(table_.size())) return nullptr;
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

std::vector<std::shared_ptr<Connection>> Connections::restore() {
  const std::unique_lock lock(mutex_);
  table_.resize(records_->places());
  std::vector<std::shared_ptr<Connection>> all;
  for (std::size_t place = table_.size(); place-- > 0;) {
    const auto id = static_cast<std::uint16_t>(place);
    ConnectionRecord& record = records_->at(id);
    if (record.used == 0) {
      unused_.push_back(id);
      continue;
    }
    auto connection = std::make_shared<Connection>();
    connection->id = id;
    connection->generation = next_generation_++;
    for (int side = 0; side < 2; ++side) {
      connection->addresses[side] = record.addresses[side];
      connection->streams[side] = std::make_shared<Stream>();
      connection->streams[side]->set_record(&record.streams[side]);
      connection->streams[side]->restore();
    }
    all.push_back(table_[id] = connection);
  }
  std::sort(all.begin(), all.end(), [&](const auto& one, const auto& other) {
    return records_->at(one->id).order < records_->at(other->id).order;
  });
  return all;
}

void Connections::write(const Connection& connection,
                        const std::function<void(ConnectionRecord&)>& change) {
  const std::unique_lock lock(mutex_);
  if (table_[connection.id].get() == &connection) change(records_->at(connection.id));
}

void Connections::remove(const Connection& connection) {
  const std::unique_lock lock(mutex_);
  if (table_[connection.id].get() != &connection) return;
  for (const auto& stream : connection.streams) stream->set_record(nullptr);
  records_->at(connection.id).used = 0;
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
