#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/movable.h"
#include "wire/bytes.h"

// The frame of every record of an image (docs/image.md), whatever device wrote it:
//
//   record = type:16 version:16 handle:32 length:32 body[length]      little-endian
//
// `type` is an ObjectType. `handle` numbers the objects of one context, and other records name an
// object by it; 0 is the context itself.
namespace ferry::device {

// A record has version 2 when it says something that version 1 cannot say, so that a reader of
// version 1 refuses it.
inline constexpr std::uint16_t kImageVersion = 2;
inline constexpr std::size_t kRecordHeaderSize = 12;  // bytes

struct Record {
  ObjectType type = ObjectType::kContext;
  std::uint16_t version = 1;
  std::uint32_t handle = 0;
  std::span<const std::byte> body;
};

inline void put_record(std::vector<std::byte>* out, ObjectType type, std::uint32_t handle,
                       std::span<const std::byte> body, std::uint16_t version = 1) {
  wire::ByteWriter writer(out);
  writer.put(type);
  writer.put(version);
  writer.put(handle);
  writer.put(static_cast<std::uint32_t>(body.size()));
  writer.append(body.data(), body.size());
}

// Takes the first record off *in. False: it is malformed, or of a version that is not known.
inline bool next_record(std::span<const std::byte>* in, Record* out) {
  wire::ByteReader reader(*in);
  out->type = static_cast<ObjectType>(reader.get<std::uint16_t>());
  out->version = reader.get<std::uint16_t>();
  out->handle = reader.get<std::uint32_t>();
  const auto length = reader.get<std::uint32_t>();
  out->body = reader.take(length);
  if (!reader.ok() || out->version == 0 || out->version > kImageVersion) return false;
  *in = in->subspan(kRecordHeaderSize + length);
  return true;
}

}  // namespace ferry::device
