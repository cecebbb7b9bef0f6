// Figures of the pipe's rtl engine beside those of PipeDevice's FPGA (figure 10, tables 5 and 6 of the paper). They are
// counted in cycles, and so the same on each machine.

#include "pipe_rtl.h"

#include <cstdio>
#include <numeric>

namespace {

void print_latencies(const char* what, std::size_t message, const char* paper) {
  const auto latencies = ferry::pipe::latencies_of(message);
  const double sum = std::accumulate(latencies.begin(), latencies.end(), 0.0);
  std::printf("%-6s %8.2f", what, sum / static_cast<double>(latencies.size()));
  for (const std::size_t percent : {50, 75, 90, 99}) {
    std::printf(" %8.2f", latencies[latencies.size() * percent / 100]);
  }
  std::printf("\n%-6s %s\n", "paper", paper);
}

}  // namespace

int main() {
  std::printf("PD Stack at 250 MHz, PCIe 3.0 x16 (%.1f Gbit/s)\n\n", 8.0 * 16 * 128 / 130);
  std::printf("%-10s %14s %14s   Gbit/s (paper: 85 from 4 KiB on)\n", "message", "as aligned",
              "other alignment");
  for (std::size_t message = 64; message <= std::size_t{1} << 20; message *= 2) {
    std::printf("%-10zu %14.1f %14.1f\n", message, ferry::pipe::throughput_of(message),
                ferry::pipe::throughput_of(message, 13));
  }
  std::printf("\n%-6s %8s %8s %8s %8s %8s   microseconds, without software; the paper's with it\n",
              "", "average", "median", "75 %", "90 %", "99 %");
  print_latencies("64 B", 64, "    8.27     7.39     8.11    13.82    23.13");
  print_latencies("8 KiB", 8192, "    9.85     9.54     9.78    11.68    18.84");
}
