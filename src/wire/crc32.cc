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
constexpr long long kLowBy2048 = fold_constant(2048 + 32);
constexpr long long kHighBy2048 = fold_constant(2048 - 32);
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

// The state after what `a` stands for (16 bytes with the remainder of all before them) and `bytes`.
__attribute__((target("pclmul,sse4.1"))) inline std::uint32_t finish_folding(__m128i a,
                                                                             const std::byte* bytes,
                                                                             std::size_t size) {
  const __m128i by128 = _mm_set_epi64x(kHighBy128, kLowBy128);
  for (; size >= 16; bytes += 16, size -= 16) {
    a = fold(a, by128, _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  }
  std::byte rest[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest), a);
  return crc32_update_by_table(crc32_update_by_table(0, rest, sizeof rest), bytes, size);
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
  return finish_folding(a, bytes, size);
}

// The same, 256 bytes at a time in four registers of 512 bits. At least 256 bytes.
#define FERRY_WIDE __attribute__((target("avx512f,avx512dq,vpclmulqdq,pclmul,sse4.1")))
FERRY_WIDE inline __m512i fold_wide(__m512i value, __m512i constants, __m512i next) {
  const __m512i low = _mm512_clmulepi64_epi128(value, constants, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(value, constants, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // low ^ high ^ next
}
FERRY_WIDE inline __m512i in_each_lane(long long high, long long low) {
  return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}
FERRY_WIDE std::uint32_t update_by_wide_folding(std::uint32_t state, const std::byte* bytes,
                                                std::size_t size) {
  const __m512i by2048 = in_each_lane(kHighBy2048, kLowBy2048);
  const __m512i by512 = in_each_lane(kHighBy512, kLowBy512);
  const __m128i by128 = _mm_set_epi64x(kHighBy128, kLowBy128);
  __m512i a = _mm512_xor_si512(_mm512_loadu_si512(bytes),
                               _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  __m512i b = _mm512_loadu_si512(bytes + 64);
  __m512i c = _mm512_loadu_si512(bytes + 128);
  __m512i d = _mm512_loadu_si512(bytes + 192);
  bytes += 256;
  size -= 256;
  for (; size >= 256; bytes += 256, size -= 256) {
    a = fold_wide(a, by2048, _mm512_loadu_si512(bytes));
    b = fold_wide(b, by2048, _mm512_loadu_si512(bytes + 64));
    c = fold_wide(c, by2048, _mm512_loadu_si512(bytes + 128));
    d = fold_wide(d, by2048, _mm512_loadu_si512(bytes + 192));
  }
  a = fold_wide(fold_wide(fold_wide(a, by512, b), by512, c), by512, d);
  for (; size >= 64; bytes += 64, size -= 64) {
    a = fold_wide(a, by512, _mm512_loadu_si512(bytes));
  }
  alignas(64) __m128i lanes[4];
  _mm512_store_si512(lanes, a);
  const __m128i last =
      fold(fold(fold(lanes[0], by128, lanes[1]), by128, lanes[2]), by128, lanes[3]);
  // What is left in the upper halves would slow down the SSE instructions of everybody after us.
  // The compiler adds this by itself to whole files of AVX, not here.
  _mm256_zeroupper();
  return finish_folding(last, bytes, size);
}
#undef FERRY_WIDE

bool has_wide_folding() {
  return __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512dq");
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

// What the processor has was asked once, when the program was loaded, as by libc for its own
// memcpy: a program that was moved to a processor that lacks it would end there before it ends
// here.
std::uint32_t crc32_update(std::uint32_t state, std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  if (bytes.size() >= 256 && has_wide_folding()) {
    return update_by_wide_folding(state, bytes.data(), bytes.size());
  }
  if (bytes.size() >= 64 && __builtin_cpu_supports("pclmul")) {
    return update_by_folding(state, bytes.data(), bytes.size());
  }
#endif
  return crc32_update_by_table(state, bytes.data(), bytes.size());
}

}  // namespace ferry::wire
