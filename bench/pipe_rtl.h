#pragma once

// What the pipe's rtl engine does in its own time: cycles of 4 ns, whatever the machine is.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "pipe/engine/rtl_engine.h"

namespace ferry::pipe {

inline constexpr double kNanosecondsPerCycle = 4;

// Whole pages, so that alignments are the same in each run.
class Pages {
 public:
  explicit Pages(std::size_t size)
      : memory_(
            static_cast<std::byte*>(std::aligned_alloc(kPage, (size + kPage - 1) / kPage * kPage)),
            std::free) {
    std::memset(memory_.get(), 0, size);
  }
  std::byte* at(std::size_t offset) const { return memory_.get() + offset; }

 private:
  static constexpr std::size_t kPage = 4096;
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
};

inline Entry copy_of(const std::byte* from, std::byte* to, std::size_t length) {
  Entry entry;
  entry.type = EntryType::kSend;
  entry.source = reinterpret_cast<std::uint64_t>(from);
  entry.destination = reinterpret_cast<std::uint64_t>(to);
  entry.length = encoded_length(static_cast<std::uint32_t>(length));
  return entry;
}

// Gbit/s of messages of a size, split as the driver does, with 256 requests under way. `offset`: of the destination's
// alignment from the source's.
inline double throughput_of(std::size_t message, std::size_t offset = 0) {
  constexpr std::size_t kRequests = 3000, kUnderWay = 256, kMemory = std::size_t{4} << 20;
  RtlEngine engine;
  const Pages source(kMemory), destination(kMemory + 64);
  std::vector<Entry> done(8);
  std::size_t position = 0, in_message = 0, submitted = 0, reaped = 0, bytes = 0;
  std::uint64_t start = 0;
  while (reaped < kRequests) {
    while (submitted < reaped + kUnderWay) {
      const std::size_t length = std::min<std::size_t>(message - in_message, engine.longest());
      if (position + length > kMemory) position = 0;
      const Entry entry = copy_of(source.at(position), destination.at(position + offset), length);
      if (engine.submit({&entry, 1}) == 0) break;
      ++submitted;
      position += length;
      in_message = (in_message + length) % message;
    }
    const std::size_t count = engine.reap(done);
    reaped += count;
    if (reaped < kRequests / 4) continue;  // until it flows
    if (start == 0) {
      start = engine.cycles();
    } else {
      for (std::size_t index = 0; index < count; ++index) bytes += length_of(done[index]);
    }
  }
  return static_cast<double>(bytes) * 8 /
         (static_cast<double>(engine.cycles() - start) * kNanosecondsPerCycle);
}

// Microseconds from the write to the doorbell until the interrupt of the last part, sorted; messages come one at a
// time, after pauses and from places that differ.
inline std::vector<double> latencies_of(std::size_t message) {
  constexpr std::size_t kMessages = 500, kMemory = 65536;
  RtlEngine engine;
  std::minstd_rand random(1);
  const Pages source(kMemory), destination(kMemory);
  std::vector<double> latencies;
  for (std::size_t number = 0; number < kMessages; ++number) {
    engine.wait(random() % 1000);
    const std::size_t from = random() % (kMemory - message), to = random() % (kMemory - message);
    std::vector<Entry> entries;
    for (std::size_t at = 0; at < message; at += engine.longest()) {
      entries.push_back(copy_of(source.at(from + at), destination.at(to + at),
                                std::min<std::size_t>(message - at, engine.longest())));
    }
    const std::uint64_t start = engine.cycles();
    engine.submit(entries);
    engine.reap(entries);
    latencies.push_back(static_cast<double>(engine.cycles() - start) * kNanosecondsPerCycle / 1000);
  }
  std::sort(latencies.begin(), latencies.end());
  return latencies;
}

}  // namespace ferry::pipe
