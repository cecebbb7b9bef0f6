#pragma once

#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/unique_fd.h"

namespace ferry::pipe {

// The attributes of a netlink message.
class Attributes {
 public:
  explicit Attributes(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Empty: there is no such attribute.
  std::span<const std::byte> find(unsigned type) const;
  std::optional<std::uint32_t> number(unsigned type) const;
  std::optional<std::uint8_t> byte(unsigned type) const;
  void each(const std::function<void(unsigned type, std::span<const std::byte>)>& call) const;

 private:
  std::span<const std::byte> bytes_;
};

// A NETLINK_ROUTE socket. It asks the namespace in which it was made, whichever thread asks.
class Netlink {
 public:
  using Message = std::function<void(std::span<const std::byte> body)>;

  // Asks in the caller's namespace.
  Netlink();
  bool is_open() const { return static_cast<bool>(socket_); }

  // Sends a request of `type` with `body` and attributes, and hands on what the kernel answers.
  // False: the kernel has refused it, or there are more than `most` messages: this socket takes no other dump then.
  bool ask(std::uint16_t type, std::uint16_t flags, std::span<const std::byte> request,
           const Message& message, std::size_t most = ~std::size_t{0});

 private:
  UniqueFd socket_;
  std::uint32_t sequence_ = 0;
};

// A request: a head, such as ifinfomsg, and attributes.
class Request {
 public:
  template <typename Head>
  explicit Request(const Head& head) {
    append(&head, sizeof head);
  }
  template <typename Value>
  Request& add(unsigned short type, const Value& value) {
    return add(type, &value, sizeof value);
  }
  Request& add(unsigned short type, const void* value, std::size_t size);
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void append(const void* data, std::size_t size);
  std::vector<std::byte> bytes_;
};

}  // namespace ferry::pipe
