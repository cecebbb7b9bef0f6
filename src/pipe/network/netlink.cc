#include "pipe/network/netlink.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace ferry::pipe {
namespace {

constexpr std::size_t aligned(std::size_t size) {
  return (size + 3) & ~std::size_t{3};
}

}  // namespace

void Attributes::each(const std::function<void(unsigned, std::span<const std::byte>)>& call) const {
  std::span<const std::byte> rest = bytes_;
  while (rest.size() >= sizeof(rtattr)) {
    rtattr head{};
    std::memcpy(&head, rest.data(), sizeof head);
    if (head.rta_len < sizeof head || head.rta_len > rest.size()) return;
    call(head.rta_type & NLA_TYPE_MASK, rest.subspan(sizeof head, head.rta_len - sizeof head));
    rest = rest.subspan(std::min(aligned(head.rta_len), rest.size()));
  }
}

std::span<const std::byte> Attributes::find(unsigned type) const {
  std::span<const std::byte> found;
  each([&](unsigned candidate, std::span<const std::byte> value) {
    if (candidate == type && found.data() == nullptr) found = value;
  });
  return found;
}

std::optional<std::uint32_t> Attributes::number(unsigned type) const {
  const auto value = find(type);
  std::uint32_t number = 0;
  if (value.size() != sizeof number) return std::nullopt;
  std::memcpy(&number, value.data(), sizeof number);
  return number;
}

std::optional<std::uint8_t> Attributes::byte(unsigned type) const {
  const auto value = find(type);
  if (value.size() != 1) return std::nullopt;
  return static_cast<std::uint8_t>(value[0]);
}

Netlink::Netlink() : socket_(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)) {
  // The kernel answers while it is asked; a message that was lost shall hold nobody up.
  const timeval patience{1, 0};
  if (socket_) ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

bool Netlink::ask(std::uint16_t type, std::uint16_t flags, std::span<const std::byte> request,
                  const Message& message, std::size_t most) {
  nlmsghdr head{};
  head.nlmsg_len = static_cast<std::uint32_t>(NLMSG_HDRLEN + request.size());
  head.nlmsg_type = type;
  head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
  head.nlmsg_seq = ++sequence_;
  std::vector<std::byte> packet(head.nlmsg_len);
  std::memcpy(packet.data(), &head, sizeof head);
  std::memcpy(packet.data() + NLMSG_HDRLEN, request.data(), request.size());
  if (::send(socket_.get(), packet.data(), packet.size(), 0) < 0) return false;
  alignas(nlmsghdr) std::array<std::byte, 32768> answer{};
  for (;;) {
    const ssize_t got = ::recv(socket_.get(), answer.data(), answer.size(), 0);
    if (got <= 0) return false;
    std::span<const std::byte> rest(answer.data(), static_cast<std::size_t>(got));
    while (rest.size() >= sizeof head) {
      std::memcpy(&head, rest.data(), sizeof head);
      if (head.nlmsg_len < sizeof head || head.nlmsg_len > rest.size()) return false;
      const auto body = rest.subspan(NLMSG_HDRLEN, head.nlmsg_len - NLMSG_HDRLEN);
      rest = rest.subspan(std::min(aligned(head.nlmsg_len), rest.size()));
      if (head.nlmsg_seq != sequence_) continue;  // of a request that was given up
      if (head.nlmsg_type == NLMSG_DONE) return true;
      if (head.nlmsg_type == NLMSG_ERROR) {
        nlmsgerr error{};
        if (body.size() < sizeof error) return false;
        std::memcpy(&error, body.data(), sizeof error);
        return error.error == 0;
      }
      if (most-- == 0) return false;
      message(body);
    }
  }
}

Request& Request::add(unsigned short type, const void* value, std::size_t size) {
  const rtattr head{static_cast<unsigned short>(sizeof(rtattr) + size), type};
  append(&head, sizeof head);
  append(value, size);
  return *this;
}

void Request::append(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  bytes_.insert(bytes_.end(), bytes, bytes + size);
  bytes_.resize(aligned(bytes_.size()));
}

}  // namespace ferry::pipe
