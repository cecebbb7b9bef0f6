#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "port/endpoint.h"
#include "transport/types.h"
#include "wire/bytes.h"

// Saves and loads the object record of a QP, as Connection::save() writes it (docs/image.md "QP"):
// little-endian, part by part. A part has the order of its function visit_...(), which serves both
// directions.
namespace ferry::transport {

class Saver {
 public:
  explicit Saver(wire::ByteWriter& out) : out_(out) {}
  template <typename T>
  void value(const T& value, T = {}) {
    if constexpr (std::is_same_v<T, bool>) {
      out_.put(static_cast<std::uint8_t>(value));
    } else {
      out_.put(value);
    }
  }
  void bytes(const std::byte* data, std::size_t size) { out_.append(data, size); }

 private:
  wire::ByteWriter& out_;
};

class Loader {
 public:
  explicit Loader(wire::ByteReader& in) : in_(in) {}
  // Refuses values above `most`. For integers 0 allows any value; an enum needs its last value.
  template <typename T>
  void value(T& value, T most = {}) {
    if constexpr (std::is_same_v<T, bool>) {
      const auto byte = in_.get<std::uint8_t>();
      require(byte <= 1);
      value = byte == 1;
    } else if constexpr (std::is_same_v<T, port::Endpoint>) {
      value = in_.get_endpoint();
    } else if constexpr (std::is_enum_v<T>) {
      const auto code = in_.get<std::underlying_type_t<T>>();
      const bool known = code <= static_cast<std::underlying_type_t<T>>(most);
      require(known);
      value = known ? static_cast<T>(code) : T{};  // never an impossible value
    } else {
      value = in_.get<T>();
      require(most == T{} || value <= most);
    }
  }
  std::span<const std::byte> bytes(std::size_t size) { return in_.take(size); }
  void require(bool holds) {
    if (!holds) in_.fail();
  }
  bool ok() const { return in_.ok(); }

 private:
  wire::ByteReader& in_;
};

template <typename Archive, typename T>
void visit_sge(Archive& a, T& sge) {
  a.value(sge.address);
  a.value(sge.length);
  a.value(sge.lkey);
}

}  // namespace ferry::transport
