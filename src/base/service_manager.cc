#include "base/service_manager.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/failure.h"
#include "base/log.h"
#include "base/unique_fd.h"

namespace ferry {

void tell_manager_ready() {
  const char* variable = std::getenv("NOTIFY_SOCKET");
  if (variable == nullptr) return;
  const std::string name = variable;
  ::unsetenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.sun_path) {
    log::warn("cannot tell the service manager that ferryd serves: NOTIFY_SOCKET is '{}'", name);
    return;
  }
  name.copy(address.sun_path, name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';  // an abstract name
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  static constexpr std::string_view kReady = "READY=1";
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (::sendto(socket.get(), kReady.data(), kReady.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), size) < 0) {
    log::warn("cannot tell the service manager that ferryd serves ({}): {}", name,
              error_text(errno));
  }
}

}  // namespace ferry
