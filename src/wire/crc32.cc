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
// bits. The low half of a register comes first in the message, so it moves by 64 bits more than the
// high half. The products of reflected operands come out one bit short, so the constants are
// shifted by one.
constexpr long long fold_constant(std::uint32_t n) {
  return static_cast<long long>(static_cast<std::uint64_t>(crc32_x_to(n)) << 1);
}
constexpr long long kLowBy2048 = fold_constant(2048 + 32);
constexpr long long kHighBy2048 = fold_constant(2048 - 32);
constexpr long long kLowBy1024 = fold_constant(1024 + 32);
constexpr long long kHighBy1024 = fold_constant(1024 - 32);
constexpr long long kLowBy512 = fold_constant(512 + 32);
constexpr long long kHighBy512 = fold_constant(512 - 32);
constexpr long long kLowBy256 = fold_constant(256 + 32);
constexpr long long kHighBy256 = fold_constant(256 - 32);
constexpr long long kLowBy128 = fold_constant(128 + 32);
constexpr long long kHighBy128 = fold_constant(128 - 32);
constexpr long long kLowBy32 = fold_constant(32 + 32);
static_assert(kLowBy512 == 0x154442bd4 && kHighBy512 == 0x1c6e41596);
static_assert(kLowBy128 == 0x1751997d0 && kHighBy128 == 0x0ccaa009e && kLowBy32 == 0x163cd6124);

// Barrett's reduction (same paper): P and floor(x^64 / P), both of 33 bits, reflected.
constexpr long long kReflectedPoly = static_cast<long long>(kCrc32Poly) << 1 | 1;
constexpr long long reflected_quotient() {
  constexpr std::uint64_t kPoly = 0x104C11DB7;
  std::uint64_t rest = 0;
  long long quotient = 0;
  for (int power = 64; power >= 0; --power) {
    rest = rest << 1 | (power == 64);
    if (rest >> 32 == 0) continue;
    rest ^= kPoly;
    quotient |= 1LL << (32 - power);
  }
  return quotient;
}
constexpr long long kQuotient = reflected_quotient();
static_assert(kQuotient == 0x1f7011641);

#define FERRY_FOLDING __attribute__((target("pclmul,sse4.1")))

FERRY_FOLDING inline __m128i load(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

FERRY_FOLDING inline __m128i fold(__m128i value, __m128i constants, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(value, constants, 0x00);
  const __m128i high = _mm_clmulepi64_si128(value, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// Reduces 16 folded bytes, which stand for everything before them as well, to the CRC state.
FERRY_FOLDING inline std::uint32_t reduce(__m128i a, __m128i by128) {
  const __m128i words = _mm_setr_epi32(-1, 0, -1, 0);
  a = _mm_xor_si128(_mm_clmulepi64_si128(a, by128, 0x10), _mm_srli_si128(a, 8));
  const __m128i by32 = _mm_set_epi64x(0, kLowBy32);
  a = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(a, words), by32, 0x00),
                    _mm_srli_si128(a, 4));
  const __m128i barrett = _mm_set_epi64x(kQuotient, kReflectedPoly);
  __m128i multiple = _mm_clmulepi64_si128(_mm_and_si128(a, words), barrett, 0x10);
  multiple = _mm_clmulepi64_si128(_mm_and_si128(multiple, words), barrett, 0x00);
  return static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(a, multiple), 1));
}

// The CRC state after the 16 folded bytes `a` and then `bytes`.
FERRY_FOLDING inline std::uint32_t finish_folding(__m128i a, const std::byte* bytes,
                                                  std::size_t size) {
  const __m128i by128 = _mm_set_epi64x(kHighBy128, kLowBy128);
  for (; size >= 16; bytes += 16, size -= 16) a = fold(a, by128, load(bytes));
  const std::uint32_t state = reduce(a, by128);
  return size == 0 ? state : crc32_update_by_table(state, bytes, size);
}

// `size` is at least 16.
FERRY_FOLDING std::uint32_t update_by_folding(std::uint32_t state, const std::byte* bytes,
                                              std::size_t size) {
  __m128i a = _mm_xor_si128(load(bytes), _mm_cvtsi32_si128(static_cast<int>(state)));
  if (size < 128) return finish_folding(a, bytes + 16, size - 16);
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

// Does the same with 128 bytes at a time in four registers of 256 bits. `size` is at least 128.
#define FERRY_WIDE_FOLDING __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.1")))

FERRY_WIDE_FOLDING inline __m256i load_wide(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

FERRY_WIDE_FOLDING inline __m256i fold_wide(__m256i value, __m256i constants, __m256i next) {
  const __m256i low = _mm256_clmulepi64_epi128(value, constants, 0x00);
  const __m256i high = _mm256_clmulepi64_epi128(value, constants, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
}

FERRY_WIDE_FOLDING std::uint32_t update_by_wide_folding(std::uint32_t state, const std::byte* bytes,
                                                        std::size_t size) {
  const __m256i by1024 = _mm256_set_epi64x(kHighBy1024, kLowBy1024, kHighBy1024, kLowBy1024);
  const __m256i by256 = _mm256_set_epi64x(kHighBy256, kLowBy256, kHighBy256, kLowBy256);
  const __m128i by128 = _mm_set_epi64x(kHighBy128, kLowBy128);
  __m256i a = _mm256_xor_si256(load_wide(bytes),
                               _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(state))));
  __m256i b = load_wide(bytes + 32);
  __m256i c = load_wide(bytes + 64);
  __m256i d = load_wide(bytes + 96);
  bytes += 128;
  size -= 128;
  for (; size >= 128; bytes += 128, size -= 128) {
    a = fold_wide(a, by1024, load_wide(bytes));
    b = fold_wide(b, by1024, load_wide(bytes + 32));
    c = fold_wide(c, by1024, load_wide(bytes + 64));
    d = fold_wide(d, by1024, load_wide(bytes + 96));
  }
  a = fold_wide(fold_wide(fold_wide(a, by256, b), by256, c), by256, d);
  for (; size >= 32; bytes += 32, size -= 32) a = fold_wide(a, by256, load_wide(bytes));
  const __m128i last = fold(_mm256_castsi256_si128(a), by128, _mm256_extracti128_si256(a, 1));
  // Values left in the upper halves would slow down all later SSE instructions. In files compiled
  // for AVX the compiler clears them by itself, but not here.
  _mm256_zeroupper();
  return finish_folding(last, bytes, size);
}

// Does the same with 256 bytes at a time in four registers of 512 bits: twice as fast on processors
// whose 512-bit instructions are as fast as their 256-bit ones. `size` is at least 256.
#define FERRY_WIDEST_FOLDING \
  __attribute__((target("avx512f,avx512vl,avx2,vpclmulqdq,pclmul,sse4.1")))

FERRY_WIDEST_FOLDING inline __m512i load_widest(const std::byte* at) {
  return _mm512_loadu_si512(at);
}

FERRY_WIDEST_FOLDING inline __m512i fold_widest(__m512i value, __m512i constants, __m512i next) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(value, constants, 0x00),
                                   _mm512_clmulepi64_epi128(value, constants, 0x11), next,
                                   kXorOfThree);
}

FERRY_WIDEST_FOLDING std::uint32_t update_by_widest_folding(std::uint32_t state,
                                                            const std::byte* bytes,
                                                            std::size_t size) {
  const __m512i by2048 = _mm512_set4_epi64(kHighBy2048, kLowBy2048, kHighBy2048, kLowBy2048);
  const __m512i by512 = _mm512_set4_epi64(kHighBy512, kLowBy512, kHighBy512, kLowBy512);
  const __m256i by256 = _mm256_set_epi64x(kHighBy256, kLowBy256, kHighBy256, kLowBy256);
  const __m128i by128 = _mm_set_epi64x(kHighBy128, kLowBy128);
  __m512i a = _mm512_xor_si512(load_widest(bytes),
                               _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  __m512i b = load_widest(bytes + 64);
  __m512i c = load_widest(bytes + 128);
  __m512i d = load_widest(bytes + 192);
  bytes += 256;
  size -= 256;
  for (; size >= 256; bytes += 256, size -= 256) {
    a = fold_widest(a, by2048, load_widest(bytes));
    b = fold_widest(b, by2048, load_widest(bytes + 64));
    c = fold_widest(c, by2048, load_widest(bytes + 128));
    d = fold_widest(d, by2048, load_widest(bytes + 192));
  }
  a = fold_widest(fold_widest(fold_widest(a, by512, b), by512, c), by512, d);
  for (; size >= 64; bytes += 64, size -= 64) a = fold_widest(a, by512, load_widest(bytes));
  const __m256i half = fold_wide(_mm512_maskz_extracti64x4_epi64(0xF, a, 0), by256,
                                 _mm512_maskz_extracti64x4_epi64(0xF, a, 1));
  const __m128i last = fold(_mm256_castsi256_si128(half), by128, _mm256_extracti128_si256(half, 1));
  _mm256_zeroupper();  // as above
  return finish_folding(last, bytes, size);
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

// __builtin_cpu_supports() tells what the processor had when the program was loaded, as libc's
// choice of its memcpy does: a program that moves to a processor without it ends in libc before it
// ends here.
std::uint32_t crc32_update(std::uint32_t state, std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  if (bytes.size() >= 512 && __builtin_cpu_supports("vpclmulqdq") &&
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
    return update_by_widest_folding(state, bytes.data(), bytes.size());
  }
  if (bytes.size() >= 256 && __builtin_cpu_supports("vpclmulqdq") &&
      __builtin_cpu_supports("avx2")) {
    return update_by_wide_folding(state, bytes.data(), bytes.size());
  }
  if (bytes.size() >= 16 && __builtin_cpu_supports("pclmul")) {
    return update_by_folding(state, bytes.data(), bytes.size());
  }
#endif
  return crc32_update_by_table(state, bytes.data(), bytes.size());
}

}  // namespace ferry::wire
