#include "wire/siphash.h"

#include <bit>
#include <cstring>

namespace ferry::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

struct State {
  std::uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  }
  void take(std::uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
};

}  // namespace

std::uint64_t siphash24(std::uint64_t k0, std::uint64_t k1, std::span<const std::byte> data) {
  // "somepseudorandomlygeneratedbytes", the paper's initial state.
  State state{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261,
              k1 ^ 0x7465646279746573};
  std::uint64_t last = static_cast<std::uint64_t>(data.size()) << 56;
  for (; data.size() >= 8; data = data.subspan(8)) {
    std::uint64_t word;
    std::memcpy(&word, data.data(), sizeof word);
    state.take(word);
  }
  std::uint64_t tail = 0;
  if (!data.empty()) std::memcpy(&tail, data.data(), data.size());
  state.take(last | tail);
  state.v2 ^= 0xFF;
  for (int i = 0; i < 4; ++i) state.round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace ferry::wire
