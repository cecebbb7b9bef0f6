#include "cli/pipe/local_piped.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/failure.h"
#include "base/unique_fd.h"
#include "pipe/protocol/control.h"

namespace ferry::cli {
namespace {

constexpr timeval kPatience{20, 0};

std::string socket_path() {
  const char* socket = std::getenv("FERRY_PIPE_SOCKET");
  return (socket != nullptr ? socket : pipe::kDefaultSocket) + std::string(pipe::kAdminSuffix);
}

UniqueFd connect_to_piped(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) throw Failure(path + ": the path is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(socket.get(), name, sizeof address) == 0) return socket;
  if (errno == EACCES)
    throw Failure("cannot ask ferry-piped at " + path + ": needs root; use sudo");
  if (errno == ENOENT || errno == ECONNREFUSED) {
    throw Failure("no ferry-piped runs on this host (" + path +
                  "); start it: systemctl start ferry-piped");
  }
  throw Failure("cannot ask ferry-piped at " + path + ": " + error_text(errno));
}

}  // namespace

std::string ask_piped(const std::string& line) {
  const std::string path = socket_path();
  const UniqueFd socket = connect_to_piped(path);
  if (::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL) < 0) {
    throw Failure("cannot ask ferry-piped at " + path + ": " + error_text(errno));
  }
  std::string answer;
  std::array<char, 65536> part;
  ssize_t size = 0;
  while ((size = ::recv(socket.get(), part.data(), part.size(), 0)) > 0) {
    answer.append(part.data(), static_cast<std::size_t>(size));
  }
  if (size < 0 || answer.empty()) {
    throw Failure("ferry-piped at " + path + " gives no answer; see: journalctl -u ferry-piped");
  }
  const std::string text = answer.substr(1);
  if (answer[0] != pipe::kDone) throw Failure(one_line(text));
  return text;
}

}  // namespace ferry::cli
