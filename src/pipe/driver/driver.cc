#include "pipe/driver/driver.h"

#include <array>
#include <utility>

namespace ferry::pipe {
namespace {

constexpr std::size_t kBatch = 32;

}  // namespace

Driver::Driver(Settings settings, Pool& pool, Engine& engine)
    : settings_(std::move(settings)),
      pool_(pool),
      engine_(engine),
      connections_(settings_.records) {
  restore();
}

Driver::~Driver() = default;

bool Driver::work(const std::shared_ptr<Session>& session, std::size_t most) {
  if (!session->is_open()) return false;
  Moves moves;
  const bool any = session->take(most, [&](const Entry& entry, std::uint32_t lane) {
    process(*session, entry, lane, &moves);
    if (moves.size() >= kBatch) move(std::exchange(moves, {}));
  });
  move(std::move(moves));
  if (session->has_marked()) session->announce();
  return any;
}

void Driver::process(Session& session, const Entry& entry, std::uint32_t lane, Moves* moves) {
  const auto [connection, side] = session.place({entry.connection, entry.generation}, lane);
  if (!connection) return;  // closed already, or made up
  const bool is_send = entry.type == EntryType::kSend;
  const int moved = is_send ? side : 1 - side;
  Stream& stream = *connection->streams[moved];
  const bool legal = is_send
                         ? stream.send(entry)
                         : entry.type == EntryType::kReceiveDone && stream.set_read(entry.source);
  if (!legal) {
    for (const auto& each : connection->streams) each->reset();
    tell_both(stream);
  } else if (stream.has_more()) {
    if (moves->empty() || moves->back() != std::pair(connection, moved)) {
      moves->emplace_back(connection, moved);
    }
  } else {
    if (stream.state().read_closed || stream.state().reset) mark(stream.sender());
  }
}

// Engines that copy in submit() have completed a piece when offer() returns, so that the next has room.
void Driver::move(Moves moves) {
  while (!moves.empty()) {
    const auto [connection, side] = std::move(moves.back());
    moves.pop_back();
    Stream& stream = *connection->streams[side];
    std::array<Entry, kBatch> batch;
    std::size_t count = 0;
    std::uint64_t held_until = 0;
    while (count < batch.size()) {
      const std::uint32_t most = allowance(*connection, side, &held_until);
      if (most == 0) break;
      auto entry = stream.next(most);
      if (!entry) break;
      spend(*connection, side, length_of(*entry));
      entry->connection = connection->id;
      entry->generation = connection->generation;
      entry->table = side == 0 ? Table::kSend : Table::kReceive;
      batch[count++] = *entry;
    }
    if (held_until != 0 && stream.has_more()) held_.add(connection, side, held_until);
    if (count == 0) continue;
    offer({batch.data(), count});
    take_completed(&moves);
    if (batch_full_.exchange(false)) announce();
  }
}

void Driver::offer(std::span<const Entry> entries) {
  {
    // Engines complete in any order, so those that wait need not go first; but they have waited.
    const std::lock_guard lock(waiting_mutex_);
    if (!waiting_.empty()) {
      waiting_.insert(waiting_.end(), entries.begin(), entries.end());
      return;
    }
  }
  const std::size_t taken = engine_.submit(entries);
  if (taken == entries.size()) return;
  const std::lock_guard lock(waiting_mutex_);
  waiting_.insert(waiting_.end(), entries.begin() + static_cast<std::ptrdiff_t>(taken),
                  entries.end());
}

bool Driver::pump() {
  Moves moves;
  bool any = take_completed(&moves);
  {
    const std::lock_guard lock(waiting_mutex_);
    while (!waiting_.empty() && engine_.submit({&waiting_.front(), 1}) == 1) {
      waiting_.pop_front();
      any = true;
    }
  }
  if (held_.any()) {
    for (auto& each : held_.take(settings_.clock())) moves.push_back(std::move(each));
  }
  move(std::move(moves));
  return any;
}

bool Driver::take_completed(Moves* moves) {
  std::array<Entry, kBatch> done;
  bool any = false;
  while (const std::size_t count = engine_.reap(done)) {
    any = true;
    for (const Entry& entry : std::span(done.data(), count)) {
      const auto connection = connections_.find(entry.connection, entry.generation);
      if (!connection) continue;
      const int side = entry.table == Table::kSend ? 0 : 1;
      Stream& stream = *connection->streams[side];
      stream.complete(entry);
      tell_both(stream);
      if (!stream.has_more()) {
        forget_if_finished(*connection);
      } else if (moves->empty() || moves->back() != std::pair(connection, side)) {
        moves->emplace_back(connection, side);
      }
    }
    if (count < done.size()) break;
  }
  return any;
}

void Driver::tell_both(const Stream& stream) {
  mark(stream.sender());
  mark(stream.receiver());
}

void Driver::mark(const SocketName& name) {
  const auto session = name.session.lock();
  if (!session) return;
  if (session->mark(name.id.number)) {
    const std::lock_guard lock(marked_mutex_);
    marked_.push_back(session);
  }
  if (session->is_batch_full()) batch_full_ = true;
}

void Driver::announce() {
  std::vector<std::shared_ptr<Session>> marked;
  {
    const std::lock_guard lock(marked_mutex_);
    marked.swap(marked_);
  }
  for (const auto& session : marked) session->announce();
}

void Driver::forget_if_finished(const Connection& connection) {
  if (connection.is_left[0] && connection.is_left[1] && connection.streams[0]->is_finished() &&
      connection.streams[1]->is_finished()) {
    connections_.remove(connection);
  }
}

}  // namespace ferry::pipe
