// How fast one processor copies 64 KiB from and to memory that is not in its caches: what a copy on
// the way of a message costs at least.
//
//   memory_copy [--seconds S]     prints {"gbit_per_s":81.2,"block":65536,"seconds":3.0}
#include <cstdio>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "udp_socket.h"

namespace {

using namespace ferry::bench;

constexpr std::size_t kBlock = 64 << 10;
constexpr std::size_t kRegion = 256 << 20;  // of source and target each: more than any cache

void measure(std::uint64_t seconds) {
  std::vector<char> source(kRegion, 'x'), target(kRegion, 'y');
  std::uint64_t bytes = 0;
  const std::int64_t begin = now_ns();
  const std::int64_t end = begin + static_cast<std::int64_t>(seconds) * 1'000'000'000;
  std::int64_t now = begin;
  for (std::size_t at = 0; now < end; at = (at + kBlock) % kRegion) {
    std::memcpy(target.data() + at, source.data() + at, kBlock);
    asm volatile("" : : "r"(target.data()) : "memory");  // the copy is made, though nobody reads it
    bytes += kBlock;
    now = now_ns();
  }
  const double elapsed = static_cast<double>(now - begin) / 1e9;
  std::printf("{\"gbit_per_s\":%.3f,\"block\":%zu,\"seconds\":%.3f}\n",
              static_cast<double>(bytes) * 8 / elapsed / 1e9, kBlock, elapsed);
}

}  // namespace

int main(int argc, char** argv) try {
  std::uint64_t seconds = 3;
  if (argc == 3 && std::string_view(argv[1]) == "--seconds") {
    seconds = number("--seconds", argv[2], 1, 3600);
  } else if (argc != 1) {
    throw std::runtime_error("usage: memory_copy [--seconds S]");
  }
  measure(seconds);
} catch (const std::exception& error) {
  std::fprintf(stderr, "memory_copy: %s\n", error.what());
  return 1;
}
