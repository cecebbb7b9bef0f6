#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

// The ABI of rdma/rdma_user_cm.h, as far as the relay has to understand it.
namespace ferry::relay {

// Numbers of enum rdma_cm_event_type (rdma_cma.h).
namespace event {
inline constexpr std::uint32_t kAddressResolved = 0, kAddressError = 1, kRouteResolved = 2,
                               kRouteError = 3, kConnectRequest = 4, kConnectResponse = 5,
                               kConnectError = 6, kUnreachable = 7, kRejected = 8, kEstablished = 9,
                               kDisconnected = 10, kMulticastJoin = 12, kMulticastError = 13,
                               kTimewaitExit = 15;
}  // namespace event

// One command of a program, which can be given other numbers.
class Command {
 public:
  // std::nullopt: the header or the body is too short, or the command is not known.
  static std::optional<Command> read(std::span<const std::byte> bytes);

  std::uint32_t number() const { return header().cmd; }
  std::size_t room() const { return header().out; }  // bytes for the answer
  bool has_id() const { return id_at_ != kNone; }
  std::uint32_t id() const { return get<std::uint32_t>(id_at_); }
  void set_id(std::uint32_t id) { set(id_at_, id); }
  // The address where the program wants the answer.
  std::uint64_t response() const { return get<std::uint64_t>(response_at()); }
  void set_response(const void* where, std::size_t room) {
    set(response_at(), reinterpret_cast<std::uint64_t>(where));
    const auto out = static_cast<std::uint16_t>(room);
    std::memcpy(bytes_.data() + offsetof(rdma_ucm_cmd_hdr, out), &out, sizeof out);
  }
  template <typename T>
  T body() const {
    return get<T>(0);
  }
  template <typename T>
  void set_body(const T& body) {
    set(0, body);
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kNone = SIZE_MAX;

  rdma_ucm_cmd_hdr header() const {
    rdma_ucm_cmd_hdr header;
    std::memcpy(&header, bytes_.data(), sizeof header);
    return header;
  }
  // Of all commands but one, the answer's address is the first field.
  std::size_t response_at() const {
    return number() == RDMA_USER_CM_CMD_CREATE_ID ? offsetof(rdma_ucm_create_id, response) : 0;
  }
  // Bytes that the program did not write are zero.
  template <typename T>
  T get(std::size_t at) const {
    T value{};
    const std::size_t begin = sizeof(rdma_ucm_cmd_hdr) + at;
    if (begin < bytes_.size()) {
      const std::size_t there = bytes_.size() - begin;
      std::memcpy(&value, bytes_.data() + begin, there < sizeof value ? there : sizeof value);
    }
    return value;
  }
  template <typename T>
  void set(std::size_t at, const T& value) {
    const std::size_t begin = sizeof(rdma_ucm_cmd_hdr) + at;
    const std::size_t there = bytes_.size() - begin;
    std::memcpy(bytes_.data() + begin, &value, there < sizeof value ? there : sizeof value);
  }

  std::vector<std::byte> bytes_;
  std::size_t id_at_ = kNone;
};

// Makes a command of Ferry's own.
template <typename Body>
std::vector<std::byte> own_command(std::uint32_t number, const Body& body, std::size_t room) {
  const rdma_ucm_cmd_hdr header{number, sizeof body, static_cast<std::uint16_t>(room)};
  std::vector<std::byte> bytes(sizeof header + sizeof body);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, &body, sizeof body);
  return bytes;
}

// Writes an answer where a command says, as much as the program has room for.
inline void respond(std::uint64_t where, std::span<const std::byte> answer, std::size_t room) {
  std::memcpy(reinterpret_cast<void*>(where), answer.data(),
              room < answer.size() ? room : answer.size());
}
template <typename T>
requires std::is_trivially_copyable_v<T>
void respond(std::uint64_t where, const T& answer, std::size_t room) {
  respond(where, std::as_bytes(std::span(&answer, 1)), room);
}

}  // namespace ferry::relay
