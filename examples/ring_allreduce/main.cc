// ring_allreduce: adds up the numbers of several programs, each of which is a rank in a ring, over TCP, io_uring, Unix
// sockets or the pipe.
//
//   ring_allreduce --over tcp|uring|unix|pipe --ring A,B,C,... --rank I [--size BYTES] [--message BYTES]
//                  [--repeat N] [--json]
//
// A, B, C are where the ranks 0, 1, 2 listen: ADDRESS:PORT, or the path of a Unix socket. Each rank has --size bytes of
// numbers (float), checks each sum, and prints how long it took, and how much processor time it has had.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "../carriers/address.h"
#include "../carriers/failure.h"
#include "../carriers/usage.h"
#include "neighbours.h"
#include "ring.h"

namespace ring_allreduce {
namespace {

constexpr std::size_t kMostRanks = 1024;

struct Options {
  std::string over = "pipe";
  std::vector<std::string> ring;
  std::size_t rank = 0, size = 200'000'000, message = 1 << 20, repeat = 1;
  bool json = false;
};

// Numbers whose sums a float holds exactly. They repeat after kPeriod.
class Numbers {
 public:
  // False: two messages of so many bytes may be equal, and one in the place of the other is not noticed.
  static bool tell_apart(std::size_t message) { return message / sizeof(float) % kPeriod != 0; }
  explicit Numbers(std::size_t ranks) {
    for (std::size_t place = 0; place < kPeriod; ++place) {
      for (std::size_t rank = 0; rank < ranks; ++rank) sums_[place] += number(rank, place);
    }
  }
  void fill(std::vector<float>& numbers, std::size_t rank) const {
    for (std::size_t at = 0; at < numbers.size(); ++at) numbers[at] = number(rank, at % kPeriod);
  }
  void check(const std::vector<float>& numbers) const {
    for (std::size_t at = 0; at < numbers.size(); ++at) {
      if (numbers[at] == sums_[at % kPeriod]) continue;
      char what[100];
      std::snprintf(what, sizeof what, "wrong sum: number %zu is %g, and should be %g", at,
                    static_cast<double>(numbers[at]), static_cast<double>(sums_[at % kPeriod]));
      carriers::give_up_plainly(what);
    }
  }

 private:
  static constexpr std::size_t kPeriod = 8191;
  static float number(std::size_t rank, std::size_t place) {
    return static_cast<float>((place * 37 + rank * rank * 101 + 1) % kPeriod);
  }
  std::array<float, kPeriod> sums_{};
};

// Whether the previous rank was started for the same work.
void compare(Neighbours& neighbours, const Options& options) {
  const std::size_t ranks = options.ring.size();
  const std::array<std::uint64_t, 5> mine{options.rank, ranks, options.size, options.message,
                                          options.repeat};
  std::array<std::uint64_t, 5> previous{};
  neighbours.exchange(reinterpret_cast<const char*>(mine.data()), sizeof mine,
                      {sizeof previous, reinterpret_cast<char*>(previous.data()), {}});
  auto expected = mine;
  expected[0] = (options.rank + ranks - 1) % ranks;
  if (previous != expected) {
    carriers::give_up_plainly(
        "the previous rank was started with another --ring, --rank, --size, --message or --repeat");
  }
}

void run(Neighbours& neighbours, const Options& options) {
  compare(neighbours, options);
  const std::size_t ranks = options.ring.size();
  const Numbers expected(ranks);
  Ring ring(neighbours, options.rank, ranks, options.message);
  std::vector<float> numbers(options.size / sizeof(float));
  double seconds = 0, processor = 0;
  for (std::size_t turn = 0; turn < options.repeat; ++turn) {
    expected.fill(numbers, options.rank);
    ring.meet();
    const auto start = carriers::Clock::now();
    const double processor_before = carriers::processor_seconds();
    ring.add_up(numbers);
    ring.meet();
    seconds += carriers::seconds_since(start);
    processor += carriers::processor_seconds() - processor_before;
    expected.check(numbers);
  }
  ring.meet();  // so that nobody ends while another still reads
  const double bytes = static_cast<double>(numbers.size() * sizeof(float) * options.repeat);
  const char* const format =
      options.json ? "{\"over\": \"%s\", \"rank\": %zu, \"ranks\": %zu, \"bytes\": %.0f, "
                     "\"gigabytes_per_s\": %.4f, "
                     "\"seconds\": %.4f, \"processor_seconds\": %.4f, \"exact\": true}\n"
                   : "%s: rank %zu of %zu: %.0f bytes, %.3f GB/s, %.3f s, %.3f s of processor "
                     "time; all sums are exact\n";
  std::printf(format, options.over.c_str(), options.rank, ranks, bytes, bytes / seconds / 1e9,
              seconds, processor);
}

[[noreturn]] void explain() {
  std::fputs(
      "Usage: ring_allreduce --over tcp|uring|unix|pipe --ring A,B,... --rank I [--size BYTES]\n"
      "         [--message BYTES] [--repeat N] [--json]\n",
      stderr);
  std::exit(2);
}

std::size_t number_of(const char* text) {
  return std::strtoull(text, nullptr, 10);
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int at = 1; at < argc; ++at) {
    const std::string_view name = argv[at];
    if (name == "--json") {
      options.json = true;
      continue;
    }
    if (++at == argc) explain();
    if (name == "--over")
      options.over = argv[at];
    else if (name == "--ring")
      options.ring = carriers::split(argv[at]);
    else if (name == "--rank")
      options.rank = number_of(argv[at]);
    else if (name == "--size")
      options.size = number_of(argv[at]);
    else if (name == "--message")
      options.message = number_of(argv[at]);
    else if (name == "--repeat")
      options.repeat = number_of(argv[at]);
    else
      explain();
  }
  const std::size_t ranks = options.ring.size(), most_message = 16 << 20;
  const bool fits = options.message >= 64 && options.message <= most_message &&
                    options.message % sizeof(float) == 0 && Numbers::tell_apart(options.message);
  if (ranks < 2 || ranks > kMostRanks || options.rank >= ranks || options.size < sizeof(float) ||
      !fits || options.repeat == 0) {
    explain();
  }
  return options;
}

std::unique_ptr<Neighbours> make_neighbours(const Options& options) {
  const Place place{options.ring[options.rank],
                    options.ring[(options.rank + 1) % options.ring.size()], options.message};
  if (carriers::is_path(place.own) != (options.over == "unix")) {
    carriers::give_up_plainly(
        "paths in --ring are for --over unix, and ADDRESS:PORT for all others");
  }
  if (options.over == "tcp" || options.over == "unix") return neighbours_by_sockets(place);
  if (options.over == "uring") return neighbours_by_io_uring(place);
  if (options.over == "pipe") return neighbours_by_pipe(place);
  explain();
}

}  // namespace
}  // namespace ring_allreduce

int main(int argc, char** argv) {
  using namespace ring_allreduce;
  const Options options = parse_options(argc, argv);
  run(*make_neighbours(options), options);
  return 0;
}
