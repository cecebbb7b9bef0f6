#include "network_namespace.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace ferry::port {
namespace {

bool own_namespace = false;

bool configure(const char* interface, unsigned long request, ifreq* what) {
  std::strncpy(what->ifr_name, interface, IFNAMSIZ - 1);
  const int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool good = descriptor >= 0 && ioctl(descriptor, request, what) == 0;
  close(descriptor);
  return good;
}

// Tests in plain loopback work as well, on whatever slots are free.
class Namespace : public testing::Environment {
 public:
  void SetUp() override {
    if (unshare(CLONE_NEWNET) != 0) return;
    ifreq request{};
    request.ifr_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK;
    ASSERT_TRUE(configure("lo", SIOCSIFFLAGS, &request));
    own_namespace = true;
  }
};
[[maybe_unused]] const auto* const kNamespace = testing::AddGlobalTestEnvironment(new Namespace);

}  // namespace

bool in_own_network_namespace() {
  return own_namespace;
}

bool set_mtu(const char* interface, int mtu) {
  ifreq request{};
  request.ifr_mtu = mtu;
  return configure(interface, SIOCSIFMTU, &request);
}

bool run_ip(const char* arguments) {
  return std::system(("ip " + std::string(arguments) + " 2>/dev/null").c_str()) == 0;
}

}  // namespace ferry::port
