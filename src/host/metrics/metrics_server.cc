#include "host/metrics/metrics_server.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <vector>

#include "base/alarm.h"
#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "host/metrics/http.h"
#include "host/peers/stream.h"

namespace ferry::host {
namespace {

constexpr int kBacklog = 16;

// Reads what the client still sends, until it closes: a server that closes its socket before takes the answer away
// from a client that has not read it.
void drain(int socket) {
  std::array<char, 4096> rest{};
  ::shutdown(socket, SHUT_WR);
  for (std::size_t read = 0; read < 16 * kMostRequest;) {
    const ssize_t more = ::recv(socket, rest.data(), rest.size(), 0);
    if (more <= 0) return;
    read += static_cast<std::size_t>(more);
  }
}

}  // namespace

MetricsServer::MetricsServer(UniqueFd listener, const Credentials* credentials, Page page,
                             std::chrono::milliseconds limit)
    : listener_(std::move(listener)),
      credentials_(credentials),
      page_(std::move(page)),
      limit_(limit),
      acceptor_([this] { accept_loop(); }) {}

MetricsServer::~MetricsServer() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  lock.unlock();
  ::shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  lock.lock();
  changed_.wait(lock, [this] { return serving_ == 0; });
}

void MetricsServer::accept_loop() {
  for (;;) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const int error = errno;
    std::unique_lock lock(mutex_);
    if (stopping_) return;
    if (!socket) {
      lock.unlock();
      if (!pause_after_accept(error)) return;
      continue;
    }
    if (serving_ == kMostClients) continue;  // `socket` is closed
    ++serving_;
    lock.unlock();
    std::thread([this, client = std::move(socket)]() mutable {
      serve(std::move(client));
      std::lock_guard done(mutex_);
      --serving_;
      changed_.notify_all();
    }).detach();
  }
}

void MetricsServer::serve(UniqueFd socket) const {
  // A second descriptor of the socket: the stream may close the first one before the alarm is off.
  const UniqueFd same(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!same) return;
  const Alarm over(limit_, [&same] { ::shutdown(same.get(), SHUT_RDWR); });
  try {
    Stream stream =
        Stream::to_client(std::move(socket), credentials_, Stream::Clients::kHostsAndScrapers);
    std::string request;
    std::array<char, 1024> piece{};
    while (request.size() < kMostRequest && request.find(kRequestEnd) == std::string::npos) {
      std::size_t size = 0;
      if (stream.receive_some(piece.data(), piece.size(), &size) != 0) return;
      request.append(piece.data(), size);
    }
    const std::size_t end = request.find(kRequestEnd);
    if (end != std::string::npos) request.resize(end + kRequestEnd.size());
    const std::string answer = http_answer(request, page_);
    if (stream.send(answer.data(), answer.size()) == 0) drain(same.get());
  } catch (const Failure& failure) {
    log::debug("refused a client of the metrics: {}", failure.what());
  }
}

UniqueFd listen_unix(const std::string& path, std::optional<gid_t> group) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    throw Failure(fmt::format("'{}' cannot be the name of a socket; give a shorter one", path));
  }
  path.copy(address.sun_path, path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ::unlink(path.c_str());
  // Nobody connects before listen(), and by then the mode is right.
  const mode_t mode = group ? 0660 : 0600;
  const bool listens =
      socket &&
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      (!group || ::chown(path.c_str(), 0, *group) == 0) && ::chmod(path.c_str(), mode) == 0 &&
      ::listen(socket.get(), kBacklog) == 0;
  if (!listens) throw Failure(fmt::format("cannot listen on {}: {}", path, error_text(errno)));
  return socket;
}

gid_t group_of(const std::string& name) {
  gid_t number = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, number);
  if (error == std::errc() && stop == end) return number;
  std::vector<char> room(64 << 10);
  group found{};
  group* result = nullptr;
  if (::getgrnam_r(name.c_str(), &found, room.data(), room.size(), &result) != 0 ||
      result == nullptr) {
    throw Failure(fmt::format("there is no group '{}'; make it: groupadd --system {}", name, name));
  }
  return found.gr_gid;
}

}  // namespace ferry::host
