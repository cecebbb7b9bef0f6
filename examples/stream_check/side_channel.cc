#include "side_channel.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "clock.h"

namespace stream_check {
namespace {

constexpr uint32_t kMaxBody = 1 << 20;

std::string error_text() {
  return std::strerror(errno);
}

// Every wait of the set-up ends in poll, so a stop and a restore in it only cost a round.
bool wait_for(int fd, short events, int milliseconds) {
  pollfd p{fd, events, 0};
  return poll(&p, 1, milliseconds) > 0;
}

}  // namespace

SideChannel::SideChannel(int fd) : fd_(fd) {
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

SideChannel::SideChannel(SideChannel&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), closed_(other.closed_), inbox_(std::move(other.inbox_)) {}

SideChannel::~SideChannel() {
  if (fd_ >= 0) close(fd_);
}

void SideChannel::part() {
  close(std::exchange(fd_, -1));
  closed_ = true;
}

SideChannel SideChannel::listen(uint16_t port) {
  // Dual stack where the host has IPv6, IPv4 only elsewhere.
  int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool v6 = fd >= 0;
  if (!v6) fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw Failure("cannot create a TCP socket: " + error_text());
  const int on = 1;
  const int off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  int result = 0;
  if (v6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(port);
    result = bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any);
  } else {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(port);
    result = bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any);
  }
  if (result != 0 || ::listen(fd, 1) != 0) {
    const std::string reason = error_text();
    close(fd);
    throw Failure("cannot listen on TCP port " + std::to_string(port) + ": " + reason +
                  "; choose another with --listen");
  }
  int client = -1;
  do {
    client = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
  } while (client < 0 && (errno == EINTR || errno == ECONNABORTED));
  const std::string reason = error_text();
  close(fd);
  if (client < 0) throw Failure("cannot accept a client: " + reason);
  return SideChannel(client);
}

SideChannel SideChannel::connect(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    throw Failure("cannot find host " + host + ": " + gai_strerror(error) +
                  "; give an address or a name that resolves");
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  std::string reason;
  RunningTime waited;
  for (; waited.seconds() < 10; poll(nullptr, 0, 100)) {
    waited.tick(monotonic_ns());
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
      const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd < 0) continue;
      if (::connect(fd, a->ai_addr, a->ai_addrlen) == 0) return SideChannel(fd);
      reason = error_text();
      close(fd);
    }
  }
  throw Failure("cannot connect to " + host + " port " + std::to_string(port) + ": " + reason +
                "; start the server there first");
}

bool SideChannel::send(RecordType type, const void* body, size_t bytes) {
  std::vector<uint8_t> out;
  const auto append = [&out](const void* from, size_t count) {
    const auto* first = static_cast<const uint8_t*>(from);
    out.insert(out.end(), first, first + count);
  };
  const auto raw_type = static_cast<uint32_t>(type);
  const auto raw_bytes = static_cast<uint32_t>(bytes);
  append(&raw_type, sizeof raw_type);
  append(&raw_bytes, sizeof raw_bytes);
  append(body, bytes);
  size_t done = 0;
  while (done < out.size() && !closed_) {
    const ssize_t n =
        ::send(fd_, out.data() + done, out.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      done += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      wait_for(fd_, POLLOUT, 100);
    } else if (errno != EINTR) {
      closed_ = true;
    }
  }
  return !closed_;
}

void SideChannel::read_available() {
  uint8_t chunk[16384];
  while (!closed_) {
    const ssize_t n = recv(fd_, chunk, sizeof chunk, MSG_DONTWAIT);
    if (n > 0) {
      inbox_.insert(inbox_.end(), chunk, chunk + n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && errno == EAGAIN) {
      return;
    } else {
      closed_ = true;
    }
  }
}

std::optional<Record> SideChannel::receive() {
  read_available();
  if (inbox_.size() < 8) return std::nullopt;
  uint32_t type = 0;
  uint32_t bytes = 0;
  std::memcpy(&type, inbox_.data(), 4);
  std::memcpy(&bytes, inbox_.data() + 4, 4);
  if (bytes > kMaxBody) throw Failure("the peer is not a stream_check; check host and port");
  if (inbox_.size() < 8 + bytes) return std::nullopt;
  Record record{static_cast<RecordType>(type), {inbox_.begin() + 8, inbox_.begin() + 8 + bytes}};
  inbox_.erase(inbox_.begin(), inbox_.begin() + 8 + bytes);
  return record;
}

Record SideChannel::wait(RecordType type) {
  RunningTime waited;
  for (; waited.seconds() < 30; waited.tick(monotonic_ns())) {
    if (auto record = receive()) {
      if (record->type == type) return *std::move(record);
      if (record->type == RecordType::kRefused) {
        throw Failure("the peer refuses: " + std::string(record->body.begin(), record->body.end()));
      }
      throw Failure("the peer sent an unexpected record; use the same version on both sides");
    }
    if (closed_) throw Failure("the peer closed the connection; see its own message");
    wait_for(fd_, POLLIN, 100);
  }
  throw Failure("the peer does not answer; check that it is a stream_check and still runs");
}

}  // namespace stream_check
