#include "message.h"

#include <algorithm>
#include <cstring>

namespace stream_check {
namespace {

constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;

uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27;
  x *= 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t seed_of(const StreamId& id, Op op, uint64_t sequence) {
  const uint64_t stream = uint64_t{id.session} << 32 | uint64_t{id.qp} << 16 |
                          uint64_t{id.direction} << 8 | static_cast<uint64_t>(op);
  return mix(mix(stream + kOdd) + sequence * kOdd);
}

uint64_t pattern_word(uint64_t seed, size_t index) {
  const uint64_t x = seed + index * kOdd;
  return x ^ (x >> 29);
}

uint64_t load_word(const uint8_t* from, size_t bytes = 8) {
  uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  return word;
}

// FNV-1a over 64-bit words in four lanes: one lane would wait for its multiplication each time.
uint32_t checksum(const Header& header, const uint8_t* pattern, size_t bytes, uint64_t seed) {
  constexpr uint64_t kPrime = 0x100000001b3;
  uint64_t lane[4] = {0xcbf29ce484222325, seed, ~seed, bytes};
  uint8_t head[sizeof(Header)];
  std::memcpy(head, &header, sizeof head);
  std::memset(head + offsetof(Header, checksum), 0, sizeof header.checksum);
  for (size_t i = 0; i < sizeof head; i += 8) {
    lane[i / 8 % 4] = (lane[i / 8 % 4] ^ load_word(head + i)) * kPrime;
  }
  size_t at = 0;
  for (; at + 32 <= bytes; at += 32) {
    for (size_t l = 0; l < 4; ++l) lane[l] = (lane[l] ^ load_word(pattern + at + 8 * l)) * kPrime;
  }
  for (size_t l = 0; at < bytes; at += 8, ++l) {
    lane[l] = (lane[l] ^ load_word(pattern + at, std::min<size_t>(8, bytes - at))) * kPrime;
  }
  const uint64_t all = mix(lane[0] + mix(lane[1] + mix(lane[2] + mix(lane[3]))));
  return static_cast<uint32_t>(all ^ (all >> 32));
}

void fill_pattern(uint8_t* to, size_t bytes, uint64_t seed) {
  size_t index = 0;
  for (; (index + 1) * 8 <= bytes; ++index) {
    const uint64_t word = pattern_word(seed, index);
    std::memcpy(to + index * 8, &word, 8);
  }
  const uint64_t word = pattern_word(seed, index);
  std::memcpy(to + index * 8, &word, bytes - index * 8);
}

// The offset of the first byte that differs from the pattern, or `bytes`.
size_t first_difference(const uint8_t* from, size_t bytes, uint64_t seed) {
  for (size_t at = 0; at < bytes; at += 8) {
    const size_t here = std::min<size_t>(8, bytes - at);
    uint64_t want = pattern_word(seed, at / 8);
    if (here < 8) want &= (uint64_t{1} << (8 * here)) - 1;
    const uint64_t difference = load_word(from + at, here) ^ want;
    if (difference != 0) return at + static_cast<size_t>(__builtin_ctzll(difference)) / 8;
  }
  return bytes;
}

Inspection corrupt(std::string detail) {
  return {Inspection::State::kCorrupt, {}, std::move(detail)};
}

}  // namespace

const char* op_name(Op op) {
  switch (op) {
    case Op::kSend: return "send";
    case Op::kWrite: return "write";
    case Op::kRead: return "read";
    case Op::kControl: return "control";
  }
  return "unknown";
}

uint32_t message_length(const StreamId& id, Op op, uint64_t sequence, uint32_t max_length) {
  if (op == Op::kControl) return kMinLength;
  if (sequence % 16 == 15) return max_length;
  const uint64_t choices = max_length - kMinLength + 1;
  return kMinLength + static_cast<uint32_t>(mix(seed_of(id, op, sequence)) % choices);
}

bool carries_immediate(Op op, uint64_t sequence) {
  if (op == Op::kSend) return sequence % 2 == 1;
  return op == Op::kWrite && sequence % 4 == 3;
}

uint32_t build_message(uint8_t* to, const StreamId& id, Op op, uint64_t sequence, uint8_t flags,
                       const Credits& credits, uint32_t max_length) {
  const uint64_t seed = seed_of(id, op, sequence);
  Header header;
  header.qp = id.qp;
  header.direction_and_flags = static_cast<uint8_t>(id.direction << 7 | flags);
  header.op = op;
  header.sequence = sequence;
  header.length = message_length(id, op, sequence, max_length);
  header.credits = credits;
  const size_t pattern_bytes = header.length - sizeof header;
  fill_pattern(to + sizeof header, pattern_bytes, seed);
  header.checksum = checksum(header, to + sizeof header, pattern_bytes, seed);
  std::memcpy(to, &header, sizeof header);
  return header.length;
}

Inspection inspect_message(const uint8_t* from, const StreamId& id, uint32_t max_length) {
  Inspection found;
  Header& header = found.header;
  std::memcpy(&header, from, sizeof header);
  if (header.magic == kPoison) return found;
  if (header.magic != kMagic) return corrupt("magic number wrong");
  if (static_cast<size_t>(header.op) >= kOps) return corrupt("unknown op in the header");
  if (header.length < kMinLength || header.length > max_length) {
    return corrupt("length " + std::to_string(header.length) + " out of range");
  }
  const uint64_t seed = seed_of(id, header.op, header.sequence);
  const size_t pattern_bytes = header.length - sizeof header;
  const uint8_t* pattern = from + sizeof header;
  if (header.qp != id.qp || header.direction() != id.direction) {
    return corrupt("belongs to qp " + std::to_string(header.qp) + " direction " +
                   std::to_string(header.direction()));
  }
  const size_t difference = first_difference(pattern, pattern_bytes, seed);
  if (difference != pattern_bytes) {
    return corrupt("header says sequence " + std::to_string(header.sequence) + " length " +
                   std::to_string(header.length) + ", byte " +
                   std::to_string(difference + sizeof header) + " differs");
  }
  if (header.checksum != checksum(header, pattern, pattern_bytes, seed)) {
    return corrupt("checksum wrong");
  }
  if (header.length != message_length(id, header.op, header.sequence, max_length)) {
    return corrupt("length is not the one of its sequence");
  }
  found.state = Inspection::State::kGood;
  return found;
}

void poison(uint8_t* buffer) {
  std::memcpy(buffer, &kPoison, sizeof kPoison);
}

bool is_poisoned(const uint8_t* buffer) {
  return std::memcmp(buffer, &kPoison, sizeof kPoison) == 0;
}

}  // namespace stream_check
