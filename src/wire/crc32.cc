#include "wire/crc32.h"

#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ferry::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "the tables take little-endian words");

// kTables[k][b]: the state that byte b leaves behind when k zero bytes follow it.
constexpr auto make_tables() {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t state = b;
    for (int i = 0; i < 8; ++i) state = (state >> 1) ^ (kCrc32Poly & (0u - (state & 1)));
    tables[0][b] = state;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      std::uint32_t before = tables[k - 1][b];
      tables[k][b] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}
constexpr auto kTables = make_tables();

#if defined(__x86_64__)

// Folding (Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ", Intel
// 2009): 128 bits with n bits behind them are replaced by an equivalent in the last 128 of those n
// bits. The low half stands 64 bits further ahead. The products of reflected operands come out one
// bit short, so the constants are shifted by one.
constexpr long long fold_constant(std::uint32_t n) {
  return static_cast<long long>(static_cast<std::uint64_t>(crc32_x_to(n)) << 1);
}
constexpr long long kLowBy512 = fold_constant(512 + 32);
constexpr long long kHighBy512 = fold_constant(512 - 32);
constexpr long long kLowBy128 = fold_constant(128 + 32);
constexpr long long kHighBy128 = fold_constant(128 - 32);
static_assert(kLowBy512 == 0x154442bd4 && kHighBy512 == 0x1c6e41596);
static_assert(kLowBy128 == 0x1751997d0 && kHighBy128 == 0x0ccaa009e);

__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(__m128i value, __m128i constants,
                                                             __m128i next) {
  __m128i low = _mm_clmulepi64_si128(value, constants, 0x00);
  __m128i high = _mm_clmulepi64_si128(value, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// At least 64 bytes.
__attribute__((target("pclmul,sse4.1"))) std::uint32_t update_by_folding(std::uint32_t state,
                                                                         const std::byte* bytes,
                                                                         std::size_t size) {
  auto load = [](const std::byte* at) __attribute__((target("pclmul,sse4.1"))) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  };
  __m128i a = _mm_xor_si128(load(bytes), _mm_cvtsi32_si128(static_cast<int>(state)));
  __m128i b = load(bytes + 16);
  __m128i c = load(bytes + 32);
  __m128i d = load(bytes + 48);
  bytes += 64;
  size -= 64;
  const __m128i by512 = _mm_set_epi64x(kHighBy512, kLowBy512);
  for (; size >= 64; bytes += 64, size -= 64) {
    a = fold(a, by512, load(bytes));
    b = fold(b, by512, load(bytes + 16));
    c = fold(c, by512, load(bytes + 32));
    d = fold(d, by512, load(bytes + 48));
  }
  const __m128i by128 = _mm_set_epi64x(kHighBy128, kLowBy128);
  a = fold(fold(fold(a, by128, b), by128, c), by128, d);
  for (; size >= 16; bytes += 16, size -= 16) a = fold(a, by128, load(bytes));

  // What is left is 16 bytes with the same remainder as all before them.
  std::byte rest[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest), a);
  return crc32_update_by_table(crc32_update_by_table(0, rest, sizeof rest), bytes, size);
}

#endif

}  // namespace

std::uint32_t crc32_update_by_table(std::uint32_t state, const std::byte* bytes, std::size_t size) {
  for (; size >= 8; bytes += 8, size -= 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    word ^= state;
    state = kTables[7][word & 0xFF] ^ kTables[6][word >> 8 & 0xFF] ^ kTables[5][word >> 16 & 0xFF] ^
            kTables[4][word >> 24 & 0xFF] ^ kTables[3][word >> 32 & 0xFF] ^
            kTables[2][word >> 40 & 0xFF] ^ kTables[1][word >> 48 & 0xFF] ^ kTables[0][word >> 56];
  }
  for (; size > 0; ++bytes, --size) {
    state = (state >> 8) ^ kTables[0][(state ^ static_cast<std::uint32_t>(*bytes)) & 0xFF];
  }
  return state;
}

// The decision is taken anew in every call, not kept: a program may be moved to another processor.
// Wider folding (AVX-512) is left out for the same reason.
std::uint32_t crc32_update(std::uint32_t state, std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  if (bytes.size() >= 64 && __builtin_cpu_supports("pclmul")) {
    return update_by_folding(state, bytes.data(), bytes.size());
  }
#endif
  return crc32_update_by_table(state, bytes.data(), bytes.size());
}

}  // namespace ferry::wire
