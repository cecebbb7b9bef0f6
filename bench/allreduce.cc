// MPI_Allreduce (sum of floats) of 1 KiB to 16 MiB over all ranks, each size in turn.
//
//   mpirun ... allreduce [--quick]
//     rank 0 prints {"1024":21.3,"4096":30.1,...}: bytes, and the median of a call in microseconds
//
// Of each call the slowest rank counts. Exit code 1 when a sum is wrong.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr std::size_t kSmallest = 1 << 10, kLargest = 16 << 20, kStep = 4;  // bytes

// Microseconds of the median call, at rank 0; -1 when a sum was wrong.
double measure(std::size_t bytes, int calls, int ranks) {
  const std::size_t count = bytes / sizeof(float);
  const std::vector<float> mine(count, 1);
  std::vector<float> sum(count);
  std::vector<double> times;
  const int warm_up = calls / 10 + 2;
  for (int call = 0; call < warm_up + calls; ++call) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    MPI_Allreduce(mine.data(), sum.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    const double elapsed = MPI_Wtime() - begin;
    double slowest = 0;
    MPI_Reduce(&elapsed, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (call >= warm_up) times.push_back(slowest);
  }
  const bool right = std::all_of(sum.begin(), sum.end(),
                                 [ranks](float each) { return each == static_cast<float>(ranks); });
  if (!right) return -1;
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  return times[times.size() / 2] * 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  bool right = true;
  if (rank == 0) std::printf("{");
  for (std::size_t bytes = kSmallest; bytes <= kLargest; bytes *= kStep) {
    const int calls = (bytes < (1 << 20) ? 200 : 20) / (quick ? 4 : 1);
    const double us = measure(bytes, calls, ranks);
    right = right && us >= 0;
    if (rank == 0) std::printf("%s\"%zu\":%.2f", bytes == kSmallest ? "" : ",", bytes, us);
  }
  if (rank == 0) std::printf("}\n");
  if (!right) std::fprintf(stderr, "allreduce: a sum was wrong on rank %d\n", rank);
  MPI_Finalize();
  return right ? 0 : 1;
}
