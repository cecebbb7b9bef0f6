#include "host/proc/service_manager.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <string>

#include "base/unique_fd.h"

namespace ferry::host {
namespace {

// What the manager that listens at this name of a socket hears. '@': an abstract name.
std::string heard_at(const std::string& name) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, sizeof address.sun_path);
  if (name[0] == '@') address.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
  tell_manager_ready();
  ::unlink(name.c_str());
  char text[64];
  const auto got = ::recv(socket.get(), text, sizeof text, MSG_DONTWAIT);
  return got < 0 ? "" : std::string(text, static_cast<std::size_t>(got));
}

TEST(ServiceManager, HearsOnceThatTheProgramServes) {
  const std::string name = "/tmp/ferry-manager-test." + std::to_string(::getpid());
  EXPECT_EQ(heard_at(name), "READY=1");
  EXPECT_EQ(std::getenv("NOTIFY_SOCKET"), nullptr);
  EXPECT_EQ(heard_at("@" + name), "READY=1");
}

TEST(ServiceManager, MayBeMissing) {
  ::unsetenv("NOTIFY_SOCKET");
  tell_manager_ready();
  ::setenv("NOTIFY_SOCKET", "/nonexistent/socket", 1);
  tell_manager_ready();
  ::setenv("NOTIFY_SOCKET", "", 1);
  tell_manager_ready();
}

}  // namespace
}  // namespace ferry::host
