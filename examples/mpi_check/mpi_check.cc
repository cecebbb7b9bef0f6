// Checks what MPI carries: every byte of messages of many sizes, of collective operations and of
// one-sided ones.
//
//   mpirun ... mpi_check [SECONDS]     at least one round, and rounds for SECONDS (default 0), or
//                                      until rank 0 gets SIGUSR1
//
// Ends with "mpi_check: N rounds, N bytes received by rank 0, no errors"; on the first wrong byte,
// says where and ends the job.
#include <mpi.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using Bytes = std::vector<unsigned char>;

int rank = 0, ranks = 1;
std::uint64_t received = 0;
volatile std::sig_atomic_t told_to_end = 0;

// What byte `i` is of what `from` sends to `to`: different for each kind, round and pair.
unsigned char pattern(unsigned kind, unsigned round, int from, int to, std::size_t i) {
  std::uint64_t x = i * 0x9E3779B97F4A7C15u + kind * 0x100000001B3u + round * 0xC2B2AE3D27D4EB4Fu +
                    static_cast<unsigned>(from) * 0x165667B19E3779F9u +
                    static_cast<unsigned>(to) * 0x27D4EB2F165667C5u;
  x ^= x >> 29;
  return static_cast<unsigned char>((x * 0xBF58476D1CE4E5B9u) >> 56);
}

void fill(Bytes& out, std::size_t at, std::size_t size, unsigned kind, unsigned round, int from,
          int to) {
  for (std::size_t i = 0; i < size; ++i) out[at + i] = pattern(kind, round, from, to, i);
}

[[noreturn]] void wrong(const char* what, unsigned round, int from, std::size_t i) {
  std::fprintf(stderr, "mpi_check: rank %d, round %u: %s from rank %d is wrong at byte %zu\n", rank,
               round, what, from, i);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

void check(const Bytes& got, std::size_t at, std::size_t size, const char* what, unsigned kind,
           unsigned round, int from, int to) {
  for (std::size_t i = 0; i < size; ++i) {
    if (got[at + i] != pattern(kind, round, from, to, i)) wrong(what, round, from, i);
  }
  received += size;
}

// To the next rank, from the one before, several messages at a time.
void ring(unsigned round) {
  constexpr std::size_t kSizes[] = {0, 1, 63, 1000, 8192, 12345, 65536, 1u << 20};
  constexpr int kAtATime = 4;
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  for (std::size_t size : kSizes) {
    Bytes out(size * kAtATime), in(size * kAtATime);
    MPI_Request requests[2 * kAtATime];
    for (int i = 0; i < kAtATime; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * size;
      fill(out, at, size, static_cast<unsigned>(i), round, rank, next);
      MPI_Irecv(in.data() + at, static_cast<int>(size), MPI_BYTE, previous, i, MPI_COMM_WORLD,
                &requests[i]);
      MPI_Isend(out.data() + at, static_cast<int>(size), MPI_BYTE, next, i, MPI_COMM_WORLD,
                &requests[kAtATime + i]);
    }
    MPI_Waitall(2 * kAtATime, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < kAtATime; ++i) {
      check(in, static_cast<std::size_t>(i) * size, size, "a message", static_cast<unsigned>(i),
            round, previous, rank);
    }
  }
}

void all_to_all(unsigned round) {
  constexpr std::size_t kSizes[] = {4, 4000, 100000};
  for (std::size_t size : kSizes) {
    const auto count = static_cast<std::size_t>(ranks);
    Bytes out(size * count), in(size * count);
    for (int to = 0; to < ranks; ++to) {
      fill(out, static_cast<std::size_t>(to) * size, size, 10, round, rank, to);
    }
    MPI_Alltoall(out.data(), static_cast<int>(size), MPI_BYTE, in.data(), static_cast<int>(size),
                 MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; ++from) {
      check(in, static_cast<std::size_t>(from) * size, size, "all-to-all", 10, round, from, rank);
    }
  }
  std::int64_t sum = 0, mine = rank + round;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  if (sum != static_cast<std::int64_t>(ranks) * (ranks - 1) / 2 + std::int64_t{ranks} * round) {
    wrong("all-reduce", round, rank, 0);
  }
}

// Put and get between neighbours, and counters on rank 0 that all ranks add to.
void one_sided(unsigned round) {
  constexpr std::size_t kSize = 50000;
  constexpr int kAdds = 8;
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  Bytes put(kSize), got(kSize);
  unsigned char* memory = nullptr;
  MPI_Win window;
  MPI_Win_allocate(2 * kSize, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  MPI_Win_fence(0, window);
  fill(put, 0, kSize, 20, round, rank, next);
  MPI_Put(put.data(), kSize, MPI_BYTE, next, 0, kSize, MPI_BYTE, window);
  MPI_Win_fence(0, window);
  check(Bytes(memory, memory + kSize), 0, kSize, "what was put", 20, round, previous, rank);
  MPI_Get(got.data(), kSize, MPI_BYTE, next, 0, kSize, MPI_BYTE, window);
  MPI_Win_fence(0, window);
  check(got, 0, kSize, "what was got", 20, round, rank, next);
  MPI_Win_free(&window);

  std::int64_t* counters = nullptr;
  MPI_Win_allocate(2 * sizeof(std::int64_t), sizeof(std::int64_t), MPI_INFO_NULL, MPI_COMM_WORLD,
                   &counters, &window);
  MPI_Win_lock_all(0, window);
  counters[0] = counters[1] = 0;
  MPI_Win_sync(window);
  MPI_Barrier(MPI_COMM_WORLD);
  const std::int64_t one = 1;
  for (int i = 0; i < kAdds; ++i) {
    std::int64_t before = -1;
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 0, MPI_SUM, window);
    MPI_Win_flush(0, window);
    if (before < i || before >= std::int64_t{kAdds} * ranks) wrong("a counter", round, 0, 0);
    // Each value is taken by one rank exactly: whoever finds the one before its own, puts it.
    for (std::int64_t found = -1; found != before;) {
      const std::int64_t after = before + 1;
      MPI_Compare_and_swap(&after, &before, &found, MPI_INT64_T, 0, 1, window);
      MPI_Win_flush(0, window);
      if (found > before) wrong("a compare-and-swap", round, 0, 0);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  std::int64_t sums[2] = {};
  MPI_Get(sums, 2, MPI_INT64_T, 0, 0, 2, MPI_INT64_T, window);
  MPI_Win_flush(0, window);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
  if (sums[0] != std::int64_t{kAdds} * ranks || sums[1] != sums[0]) wrong("a sum", round, 0, 0);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0;
  const double end = MPI_Wtime() + seconds;
  std::signal(SIGUSR1, [](int) { told_to_end = 1; });
  unsigned round = 0;
  for (int again = 1; again != 0;) {
    ++round;
    ring(round);
    all_to_all(round);
    one_sided(round);
    if (rank == 0 && seconds > 0) {
      std::printf("round %u\n", round);
      std::fflush(stdout);
    }
    again = rank == 0 && told_to_end == 0 && MPI_Wtime() < end ? 1 : 0;
    MPI_Bcast(&again, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  if (rank == 0) {
    std::printf("mpi_check: %u rounds, %llu bytes received by rank 0, no errors\n", round,
                static_cast<unsigned long long>(received));
  }
  MPI_Finalize();
  return 0;
}
