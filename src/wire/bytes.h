#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "port/endpoint.h"

// Cursors over little-endian byte strings: the records of images (docs/image.md) and of the
// stand-in.
namespace ferry::wire {

static_assert(std::endian::native == std::endian::little, "byte swaps are needed here");

class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::byte>* out) : out_(out) {}
  template <typename T>
  requires std::is_integral_v<T> || std::is_enum_v<T>
  void put(T value) { append(&value, sizeof value); }
  void put(const port::Endpoint& endpoint) {
    append(endpoint.address.bytes.data(), endpoint.address.bytes.size());
    put(endpoint.udp_port);
  }
  void append(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    out_->insert(out_->end(), bytes, bytes + size);
  }
  std::size_t size() const { return out_->size(); }

 private:
  std::vector<std::byte>* out_;
};

// Reads past the end give zeroes and make ok() false for good: callers check once, at the end.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> in) : in_(in) {}
  template <typename T>
  requires std::is_integral_v<T> T get() {
    T value{};
    read(&value, sizeof value);
    return value;
  }
  port::Endpoint get_endpoint() {
    port::Endpoint endpoint;
    read(endpoint.address.bytes.data(), endpoint.address.bytes.size());
    endpoint.udp_port = get<std::uint16_t>();
    return endpoint;
  }
  bool read(void* data, std::size_t size) {
    if (!ok_ || size > in_.size()) {
      ok_ = false;
      std::memset(data, 0, size);
      return false;
    }
    std::memcpy(data, in_.data(), size);
    in_ = in_.subspan(size);
    return true;
  }
  // A view of the next `size` bytes; empty and not ok() when there are fewer.
  std::span<const std::byte> take(std::size_t size) {
    if (!ok_ || size > in_.size()) {
      ok_ = false;
      return {};
    }
    auto result = in_.first(size);
    in_ = in_.subspan(size);
    return result;
  }
  bool ok() const { return ok_; }
  void fail() { ok_ = false; }
  std::size_t remaining() const { return in_.size(); }

 private:
  std::span<const std::byte> in_;
  bool ok_ = true;
};

}  // namespace ferry::wire
