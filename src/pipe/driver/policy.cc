// The access list and the limits of containers: what root asks by `ferry pipe`.

#include <algorithm>
#include <utility>

#include "base/failure.h"
#include "pipe/driver/driver.h"

namespace ferry::pipe {
namespace {

constexpr std::size_t kMostLimits = 256;  // each is a question to the kernel when a program comes
// A stream is held for so much longer than it has to be: else it would come again for each piece.
constexpr std::uint64_t kHeldLonger = 1'000'000;

// The lower of two limits of which 0 is none.
std::uint64_t lower(std::uint64_t one, std::uint64_t other) {
  return one == 0 || (other != 0 && other < one) ? other : one;
}

// Whether a network has an address of a prefix. It is asked for a list of its addresses once, and only if there is a
// prefix. One that has too many for a list is said to have one of each prefix, so that nobody escapes a limit by them.
class AddressesOf {
 public:
  explicit AddressesOf(NetworkNamespace& network) : network_(network) {}

  bool meet(const Prefix& prefix) {
    if (prefix.is_any()) return true;
    if (prefix.is_one_address()) return network_.has(prefix.address);
    if (!std::exchange(is_asked_, true)) {
      auto list = network_.addresses();
      has_too_many_ = !list;
      if (list) list_ = std::move(*list);
    }
    return has_too_many_ || std::any_of(list_.begin(), list_.end(), [&](const SocketAddress& each) {
             return prefix.has(each);
           });
  }

 private:
  NetworkNamespace& network_;
  bool is_asked_ = false, has_too_many_ = false;
  std::vector<SocketAddress> list_;
};

}  // namespace

std::uint64_t Driver::now() {
  const auto since_boot = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(since_boot).count());
}

void Driver::change(const Command& command) {
  switch (command.kind) {
    case Command::Kind::kPs: break;
    case Command::Kind::kRule:
      if (access_.add(command.rule, command.number) == 0) {
        throw Failure(access_.rules().size() >= AccessList::kMost
                          ? "the access list is full; delete a rule: ferry pipe forget NUMBER"
                          : "there is no rule " + std::to_string(command.number) +
                                " to be before; see: ferry pipe ps");
      }
      reset_denied();
      break;
    case Command::Kind::kForget:
      if (!access_.remove(command.number)) {
        throw Failure("there is no rule " + std::to_string(command.number) +
                      "; see: ferry pipe ps");
      }
      reset_denied();
      break;
    case Command::Kind::kLimit: change_limit(command); break;
  }
}

std::vector<std::shared_ptr<Session>> Driver::sessions() const {
  std::vector<std::shared_ptr<Session>> all;
  for (const auto& each : sessions_) {
    if (auto session = each.lock()) all.push_back(std::move(session));
  }
  return all;
}

void Driver::reset_denied() {
  for (const auto& session : sessions()) {
    for (const auto& socket : session->sockets()) {
      const auto& connection = socket->connection;
      if (!connection || access_.allows(connection->addresses[0], connection->addresses[1])) {
        continue;
      }
      for (const auto& stream : connection->streams) stream->reset();
      tell_both(*connection->streams[0]);
    }
  }
}

void Driver::change_limit(const Command& command) {
  auto limit = std::find_if(limits_.begin(), limits_.end(),
                            [&](const Limit& each) { return each.of == command.limited; });
  if (limit == limits_.end()) {
    if (limits_.size() >= kMostLimits) {
      throw Failure("there are limits of " + std::to_string(kMostLimits) +
                    " addresses; delete one: ferry pipe limit ADDRESS --rate none "
                    "--connection-rate none --memory none");
    }
    limit = limits_.insert(limits_.end(), Limit{command.limited});
  }
  limit->rate = command.rate.value_or(limit->rate);
  limit->connection_rate = command.connection_rate.value_or(limit->connection_rate);
  limit->memory = command.memory.value_or(limit->memory);
  if (limit->rate == 0 && limit->connection_rate == 0 && limit->memory == 0) limits_.erase(limit);
  for (const auto& session : sessions()) {
    apply_limits(*session);
    session->container->sending.reset();
    for (const auto& socket : session->sockets()) {
      if (socket->connection) socket->connection->rates[socket->side].reset();
    }
  }
  held_.release();
}

void Driver::apply_limits(const Session& session) {
  Limit lowest;
  AddressesOf addresses(*session.peer.network);
  for (const Limit& limit : limits_) {
    if (!addresses.meet(limit.of)) continue;
    lowest.rate = lower(lowest.rate, limit.rate);
    lowest.connection_rate = lower(lowest.connection_rate, limit.connection_rate);
    lowest.memory = lower(lowest.memory, limit.memory);
  }
  Owner& container = *session.container;
  container.rate = lowest.rate;
  container.connection_rate = lowest.connection_rate;
  container.memory->set_limit(lower(container.limits.memory, lowest.memory));
}

std::uint32_t Driver::allowance(const Connection& connection, int side,
                                std::uint64_t* until) const {
  const Owner& container = *connection.containers[side];
  const std::uint64_t all = container.rate.load(std::memory_order_relaxed),
                      each = container.connection_rate.load(std::memory_order_relaxed);
  if (all == 0 && each == 0) return engine_.longest();
  const std::uint64_t time = settings_.clock();
  const std::uint64_t wait = std::max(all != 0 ? container.sending.wait(time) : 0,
                                      each != 0 ? connection.rates[side].wait(time) : 0);
  if (wait == 0) return RateLimit::piece(lower(all, each), engine_.longest());
  *until = time + wait + kHeldLonger;
  return 0;
}

void Driver::spend(Connection& connection, int side, std::uint32_t bytes) {
  Owner& container = *connection.containers[side];
  const std::uint64_t all = container.rate, each = container.connection_rate;
  if (all == 0 && each == 0) return;
  const std::uint64_t time = settings_.clock();
  if (all != 0) container.sending.spend(bytes, all, time);
  if (each != 0) connection.rates[side].spend(bytes, each, time);
}

std::optional<std::chrono::nanoseconds> Driver::holds_for() const {
  if (!held_.any()) return std::nullopt;
  const auto until = held_.next();
  if (!until) return std::nullopt;
  const std::uint64_t time = settings_.clock();
  return std::chrono::nanoseconds(*until > time ? *until - time : 0);
}

}  // namespace ferry::pipe
