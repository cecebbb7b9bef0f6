#include "cli/doctor/path.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/unique_fd.h"
#include "ferry.pb.h"
#include "port/address_text.h"
#include "port/slot.h"
#include "port/udp_socket.h"
#include "rnic/system/netdev.h"

namespace ferry::cli::doctor {
namespace {

constexpr std::size_t kSmall = 100;  // bytes of a packet that gets everywhere
constexpr int kMostAddresses = 4;    // of one host
constexpr int kAnswerMs = 250;       // for the other kernel's answer
// When a kernel has said a few times that nobody has a port, it says so only once a second.
constexpr std::chrono::milliseconds kUntilNext{1100};
// The port before those of slots, which no program of Ferry's has: the kernel answers for it.
constexpr std::uint16_t kNobodysPort = port::kSlotUdpPortBase;

// Sends datagrams to a port that nobody has. The other kernel answers each that arrives with an
// error, which this socket is told.
class Asker {
 public:
  explicit Asker(const port::Address& to)
      : is_ipv4_(to.is_ipv4()),
        socket_(::socket(is_ipv4_ ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    port::SocketAddress address;
    const socklen_t size = port::to_socket_address({to, kNobodysPort}, 0, &address);
    // Packets are never fragmented, and go out whatever the kernel takes for the path's MTU.
    const int probe = is_ipv4_ ? IP_PMTUDISC_PROBE : IPV6_PMTUDISC_PROBE;
    is_good_ =
        socket_ &&
        ::setsockopt(socket_.get(), is_ipv4_ ? IPPROTO_IP : IPPROTO_IPV6,
                     is_ipv4_ ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER, &probe, sizeof probe) == 0 &&
        ::connect(socket_.get(), &address.any, size) == 0;
  }

  // The address of this host from which packets leave.
  std::optional<port::Address> from() const {
    port::SocketAddress address{};
    socklen_t size = sizeof address;
    if (!is_good_ || ::getsockname(socket_.get(), &address.any, &size) != 0) return std::nullopt;
    return port::from_socket_address(address).address;
  }

  // Whether a packet of `bytes`, counted from the IP header on, is seen to arrive.
  bool arrives(std::size_t bytes) const {
    if (is_answered(bytes)) return true;
    std::this_thread::sleep_for(kUntilNext);
    return is_answered(bytes);
  }

 private:
  bool is_answered(std::size_t bytes) const {
    const std::vector<std::byte> payload(bytes - (is_ipv4_ ? 28 : 48));  // IP and UDP
    int error = 0;
    socklen_t size = sizeof error;
    // An error that came late, for an earlier packet, says nothing of this one.
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (::send(socket_.get(), payload.data(), payload.size(), 0) < 0) return false;
    pollfd answer{socket_.get(), POLLIN, 0};
    if (::poll(&answer, 1, kAnswerMs) != 1) return false;
    char byte = 0;
    return ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == ECONNREFUSED;
  }

  const bool is_ipv4_;
  const UniqueFd socket_;
  bool is_good_ = false;
};

std::optional<Path> path_to(const v1::RdmaAddress& address,
                            const std::vector<rnic::Netdev>& netdevs) {
  Path path;
  if (address.address().size() != path.to.bytes.size()) return std::nullopt;
  std::memcpy(path.to.bytes.data(), address.address().data(), path.to.bytes.size());
  if (path.to.is_multicast()) return std::nullopt;
  const Asker asker(path.to);
  const auto from = asker.from();
  if (!from) return std::nullopt;
  const auto netdev = std::ranges::find_if(netdevs, [&](const rnic::Netdev& entry) {
    return std::ranges::count(entry.addresses, *from) > 0;
  });
  if (netdev == netdevs.end() || *from == path.to) return std::nullopt;
  path.netdev = netdev->name;
  path.wanted = std::min(rnic::payload_mtu(netdev->mtu),
                         std::clamp(address.mtu(), rnic::kLeastMtu, rnic::kMostMtu));
  const auto passes =
      largest_mtu(path.wanted, [&](std::size_t bytes) { return asker.arrives(bytes); });
  if (!passes) return std::nullopt;
  path.passes = *passes;
  return path;
}

}  // namespace

std::optional<std::uint32_t> largest_mtu(std::uint32_t wanted,
                                         const std::function<bool(std::size_t bytes)>& arrives) {
  if (!arrives(kSmall)) return std::nullopt;
  for (std::uint32_t mtu = wanted; mtu >= rnic::kLeastMtu; mtu /= 2) {
    if (arrives(mtu + rnic::kMostHeaders)) return mtu;
    // The silence is due to the packet's size only if a small packet is still answered.
    if (!arrives(kSmall)) return std::nullopt;
  }
  return 0;
}

std::vector<Path> paths_to(const google::protobuf::RepeatedPtrField<v1::RdmaAddress>& addresses) {
  std::vector<Path> paths;
  if (addresses.empty()) return paths;
  const auto netdevs = rnic::list_netdevs(rnic::settings_from_environment());
  for (int i = 0; i < std::min(addresses.size(), kMostAddresses); ++i) {
    if (auto path = path_to(addresses[i], netdevs)) paths.push_back(std::move(*path));
  }
  return paths;
}

}  // namespace ferry::cli::doctor
