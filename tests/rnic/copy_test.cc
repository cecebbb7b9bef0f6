#include "rnic/memory/copy.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "rig.h"

namespace ferry::rnic::testing {
namespace {

struct Copy : ::testing::TestWithParam<bool> {
  // With and without a handler: the routine itself, and the kernel's copy.
  std::unique_ptr<FaultHandler> handler = GetParam() ? std::make_unique<FaultHandler>() : nullptr;
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
};

TEST_P(Copy, EveryLengthAndAlignment) {
  for (std::size_t length :
       {0u,  1u,  2u,  3u,  4u,   7u,   8u,   9u,   15u,  16u,   17u,   31u,  32u,
        33u, 63u, 64u, 65u, 127u, 255u, 383u, 384u, 385u, 1000u, 4096u, 4097u}) {
    for (std::size_t offset : {0u, 1u, 3u, 4u, 7u, 8u, 60u, 61u}) {
      const auto source = pattern(length + 128, static_cast<unsigned>(length));
      for (bool from : {true, false}) {
        std::vector<std::byte> target(length + 256, std::byte{0xAA});
        std::byte* out = target.data() + 64 + offset;
        ASSERT_TRUE(from ? copy_from_application(out, source.data() + offset, length)
                         : copy_to_application(out, source.data() + offset, length));
        EXPECT_EQ(std::memcmp(out, source.data() + offset, length), 0) << length << " " << offset;
        EXPECT_EQ(out[-1], std::byte{0xAA});
        EXPECT_EQ(out[length], std::byte{0xAA}) << length << " " << offset;
      }
    }
  }
}

TEST_P(Copy, Atomics) {
  alignas(8) std::uint64_t value = 5;
  std::uint64_t original = 0;
  EXPECT_TRUE(compare_swap_application(&value, 4, 9, &original));
  EXPECT_EQ(original, 5u);
  EXPECT_EQ(value, 5u);
  EXPECT_TRUE(compare_swap_application(&value, 5, 9, &original));
  EXPECT_EQ(original, 5u);
  EXPECT_EQ(value, 9u);
  EXPECT_TRUE(fetch_add_application(&value, ~std::uint64_t{0}, &original));  // wraps
  EXPECT_EQ(original, 9u);
  EXPECT_EQ(value, 8u);
  EXPECT_TRUE(store_application(&value, 77));
  EXPECT_EQ(value, 77u);
}

TEST_P(Copy, AtomicsThatFault) {
  auto* memory = static_cast<std::uint64_t*>(
      mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::uint64_t original = 3;
  for (std::uint64_t* at : {memory, memory + 7, static_cast<std::uint64_t*>(nullptr)}) {
    EXPECT_FALSE(compare_swap_application(at, 0, 1, &original));
    EXPECT_FALSE(fetch_add_application(at, 1, &original));
    EXPECT_FALSE(store_application(at, 1));
  }
  EXPECT_EQ(*memory, 0u);
  munmap(memory, page);
  EXPECT_FALSE(fetch_add_application(memory, 1, &original));
}

// Towards the program's own atomics, which is what IBV_ATOMIC_GLOB says.
TEST_P(Copy, AtomicsOfSeveralThreads) {
  constexpr unsigned kRounds = 20'000;
  alignas(8) std::uint64_t value = 0;
  std::thread program([&] {
    for (unsigned i = 0; i < kRounds; ++i) std::atomic_ref(value).fetch_add(1);
  });
  std::uint64_t original = 0;
  for (unsigned i = 0; i < kRounds; ++i) ASSERT_TRUE(fetch_add_application(&value, 1, &original));
  program.join();
  EXPECT_EQ(value, 2 * kRounds);
}

TEST_P(Copy, FaultsEndInFalse) {
  auto* memory = static_cast<std::byte*>(
      mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::vector<std::byte> buffer(3 * page);
  std::memset(memory, 1, 3 * page);
  ASSERT_EQ(munmap(memory + page, page), 0);
  for (std::size_t length : {1ul, 5ul, 8ul, 40ul, 500ul, page}) {
    EXPECT_FALSE(copy_from_application(buffer.data(), memory + 2 * page - length, length))
        << length;
    EXPECT_FALSE(copy_to_application(memory + 2 * page - length, buffer.data(), length)) << length;
    // Begins well and ends badly.
    EXPECT_FALSE(copy_from_application(buffer.data(), memory + page - length, 2 * length))
        << length;
    EXPECT_FALSE(copy_to_application(memory + page - length, buffer.data(), 2 * length)) << length;
  }
  EXPECT_FALSE(copy_from_application(buffer.data(), nullptr, 8));
  ASSERT_EQ(mprotect(memory, page, PROT_READ), 0);
  EXPECT_TRUE(copy_from_application(buffer.data(), memory, page));
  EXPECT_FALSE(copy_to_application(memory, buffer.data(), page));
  munmap(memory, page);
  munmap(memory + 2 * page, page);
}

TEST_P(Copy, TruncatedFileMapping) {
  FILE* file = std::tmpfile();
  ASSERT_EQ(ftruncate(fileno(file), static_cast<off_t>(2 * page)), 0);
  auto* memory = static_cast<std::byte*>(
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0));
  std::vector<std::byte> buffer(2 * page);
  EXPECT_TRUE(copy_to_application(memory, buffer.data(), 2 * page));
  ASSERT_EQ(ftruncate(fileno(file), static_cast<off_t>(page)), 0);
  EXPECT_FALSE(copy_to_application(memory, buffer.data(), 2 * page));  // SIGBUS
  EXPECT_FALSE(copy_from_application(buffer.data(), memory, 2 * page));
  EXPECT_TRUE(copy_to_application(memory, buffer.data(), page));
  munmap(memory, 2 * page);
  std::fclose(file);
}

#if defined(__x86_64__)
// A program changes whole words while they are copied to or from its memory. The other side of the
// copy is aligned as payloads in packets are.
TEST(CopyWords, AreNeverTorn) {
  const FaultHandler handler;
  constexpr std::size_t kMost = 512;  // words
  alignas(64) static std::uint64_t words[kMost];
  alignas(64) static std::byte ones[2 * sizeof words], target[2 * sizeof words];
  static const std::byte zeros[2 * sizeof words] = {};
  std::memset(ones, 0xFF, sizeof ones);
  const auto torn = [](std::uint64_t word) { return word != 0 && word != ~std::uint64_t{0}; };
  for (const bool from : {true, false}) {
    std::atomic<bool> over{false};
    std::atomic<std::uint64_t> torn_there{0};
    std::thread program([&] {
      for (std::uint64_t value = 0; !over; value = ~value) {
        for (std::size_t i = 0; i < 8; ++i) {
          std::atomic_ref word(words[i]);
          if (from) {
            word.store(value, std::memory_order_relaxed);
          } else if (i == 0 || i == 7) {  // of these no copy below writes a part
            torn_there += torn(word.load(std::memory_order_relaxed));
          }
        }
      }
    });
    std::uint64_t torn_here = 0;
    for (const std::size_t length : {8u, 12u, 16u, 20u, 24u, 64u, 400u, 4096u}) {
      for (const std::size_t offset : {0u, 1u, 4u, 12u, 28u}) {
        for (int round = 0; round < 40'000; ++round) {
          if (!from) {
            ASSERT_TRUE(copy_to_application(words, (round % 2 ? ones : zeros) + offset, length));
            continue;
          }
          ASSERT_TRUE(copy_from_application(target + offset, words, length));
          for (std::size_t i = 0; i < length / 8; ++i) {
            std::uint64_t word = 0;
            std::memcpy(&word, target + offset + 8 * i, 8);
            torn_here += torn(word);
          }
        }
      }
    }
    over = true;
    program.join();
    EXPECT_EQ(torn_here, 0u);
    EXPECT_EQ(torn_there, 0u);
    std::memset(words, 0, sizeof words);
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(WithAndWithoutHandler, Copy, ::testing::Bool());

TEST(CopyFault, ElsewhereIsNotOurs) {
  ucontext_t context{};
  EXPECT_FALSE(recover_from_fault(&context, nullptr));
  context.uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(&std::fclose);
  EXPECT_FALSE(recover_from_fault(&context, nullptr));
}

}  // namespace
}  // namespace ferry::rnic::testing
