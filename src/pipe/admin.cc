#include "pipe/admin.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/failure.h"
#include "base/json_text.h"

namespace ferry::pipe {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestLine = 1024, kMessage = 32768;
constexpr timeval kPatience{5, 0};

std::string name_of(std::int32_t pid) {
  std::string name;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), name);
  return printable(name);
}

Json programs(const Driver& driver) {
  Json all = Json::array();
  for (const auto& session : driver.sessions()) {
    Json listening = Json::array();
    for (const auto& socket : session->sockets()) {
      if (socket->state == Socket::State::kListening) listening.push_back(text_of(socket->local));
    }
    all.push_back({{"pid", session->peer.pid},
                   {"name", name_of(session->peer.pid)},
                   {"user", session->peer.user},
                   {"container", session->container->id},
                   {"listening", std::move(listening)}});
  }
  return all;
}

Json containers(const Driver& driver) {
  std::map<std::uint16_t, Json> all;
  for (const auto& session : driver.sessions()) {
    const Owner& container = *session->container;
    all[container.id] = {{"container", container.id},
                         {"network", session->peer.network->id()},
                         {"pid_namespace", session->peer.pid_namespace},
                         {"memory", container.memory->used()},
                         {"memory_limit", container.memory->limit()},
                         {"rate_limit", container.rate.load()},
                         {"connection_rate_limit", container.connection_rate.load()}};
  }
  Json values = Json::array();
  for (auto& [id, container] : all) values.push_back(std::move(container));
  return values;
}

// Each once, of those that a program has an end of.
Json connections(const Driver& driver) {
  std::map<std::pair<std::uint16_t, std::uint32_t>, Json> all;
  for (const auto& session : driver.sessions()) {
    for (const auto& socket : session->sockets()) {
      if (!socket->connection) continue;
      const Connection& connection = *socket->connection;
      Json& one = all[{connection.id, connection.generation}];
      if (one.is_null()) {
        one = {{"from", text_of(connection.addresses[0])},
               {"to", text_of(connection.addresses[1])},
               {"from_pid", 0},
               {"to_pid", 0},
               {"sent_bytes", connection.streams[0]->state().received},
               {"received_bytes", connection.streams[1]->state().received}};
      }
      one[socket->side == 0 ? "from_pid" : "to_pid"] = session->peer.pid;
    }
  }
  Json values = Json::array();
  for (auto& [id, connection] : all) values.push_back(std::move(connection));
  return values;
}

Json rules(const AccessList& access) {
  Json all = Json::array();
  for (const Rule& rule : access.rules()) {
    all.push_back({{"number", rule.number},
                   {"action", rule.allows ? "allow" : "deny"},
                   {"from", text_of(rule.from)},
                   {"to", text_of(rule.to)},
                   {"port", rule.port}});
  }
  return all;
}

Json limits(const std::vector<Driver::Limit>& all) {
  Json values = Json::array();
  for (const auto& limit : all) {
    values.push_back({{"address", text_of(limit.of)},
                      {"rate", limit.rate},
                      {"connection_rate", limit.connection_rate},
                      {"memory", limit.memory}});
  }
  return values;
}

std::string report(const Driver& driver) {
  return tolerant_json_text({{"programs", programs(driver)},
                             {"containers", containers(driver)},
                             {"connections", connections(driver)},
                             {"rules", rules(driver.access())},
                             {"limits", limits(driver.limits())},
                             {"memory", driver.pool().used()},
                             {"memory_limit", driver.pool().limit()}});
}

}  // namespace

bool is_admin(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
         credentials.pid > 0 && (credentials.uid == 0 || credentials.uid == ::geteuid());
}

std::optional<std::string> line_of_admin(int socket) {
  std::array<char, kLongestLine> line;
  const ssize_t size = ::recv(socket, line.data(), line.size(), MSG_DONTWAIT | MSG_TRUNC);
  if (size <= 0 || static_cast<std::size_t>(size) > line.size()) return std::nullopt;
  return std::string(line.data(), static_cast<std::size_t>(size));
}

void send_to_admin(int socket, const std::string& text) {
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  for (std::size_t sent = 0; sent < text.size();) {
    const std::size_t size = std::min(text.size() - sent, kMessage);
    if (::send(socket, text.data() + sent, size, MSG_NOSIGNAL) < 0) return;
    sent += size;
  }
}

std::string answer_line(const std::string& line, Driver& driver) {
  try {
    const Command command = command_of(line);
    if (command.kind == Command::Kind::kPs) return kDone + report(driver);
    driver.change(command);
    return std::string(1, kDone);
  } catch (const Failure& failure) {
    return kNotDone + std::string(failure.what());
  }
}

void read_rules(const std::string& file, Driver& driver) {
  std::ifstream stream(file);
  if (!stream) throw Failure("cannot read " + file + ": " + error_text(errno));
  std::size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos || line[first] == '#') continue;
    try {
      driver.change(command_of(line));
    } catch (const Failure& failure) {
      throw Failure(file + ", line " + std::to_string(number) + ": " + failure.what());
    }
  }
}

}  // namespace ferry::pipe
