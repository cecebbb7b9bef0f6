// Figures of the pipe's rtl engine beside those of PipeDevice's FPGA (figure 10, tables 5 and 6 of the paper). They are
// counted in cycles, and so the same on each machine. --json: as scripts/bench reads them.

#include "pipe_rtl.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

namespace {

constexpr std::size_t kOtherAlignment = 13;
constexpr std::array<const char*, 5> kColumns{"average", "median", "p75", "p90", "p99"};

// Of kColumns, in microseconds.
std::array<double, 5> latency_row(std::size_t message) {
  const auto latencies = ferry::pipe::latencies_of(message);
  const auto percentile = [&](std::size_t percent) {
    return latencies[latencies.size() * percent / 100];
  };
  const double sum = std::accumulate(latencies.begin(), latencies.end(), 0.0);
  return {sum / static_cast<double>(latencies.size()), percentile(50), percentile(75),
          percentile(90), percentile(99)};
}

void print_latencies(const char* what, std::size_t message, const std::array<double, 5>& paper) {
  std::printf("%-6s", what);
  for (const double latency : latency_row(message)) std::printf(" %8.2f", latency);
  std::printf("\n%-6s", "paper");
  for (const double latency : paper) std::printf(" %8.2f", latency);
  std::printf("\n");
}

void print_json() {
  nlohmann::json figures;
  for (const std::size_t message : {64, 512, 1024, 4096, 65536}) {
    figures["throughput"].push_back(
        {{"message", message},
         {"aligned", ferry::pipe::throughput_of(message)},
         {"unaligned", ferry::pipe::throughput_of(message, kOtherAlignment)}});
  }
  for (const std::size_t message : {64, 8192}) {
    nlohmann::json row{{"message", message}};
    const auto latencies = latency_row(message);
    for (std::size_t column = 0; column < kColumns.size(); ++column) {
      row[kColumns[column]] = latencies[column];
    }
    figures["latency"].push_back(row);
  }
  std::printf("%s\n", figures.dump().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--json") {
    print_json();
    return 0;
  }
  std::printf("PD Stack at 250 MHz, PCIe 3.0 x16 (%.1f Gbit/s)\n\n", 8.0 * 16 * 128 / 130);
  std::printf("%-10s %14s %15s   Gbit/s (paper: 85 from 4 KiB on)\n", "message", "as aligned",
              "other alignment");
  for (std::size_t message = 64; message <= std::size_t{1} << 20; message *= 2) {
    std::printf("%-10zu %14.1f %15.1f\n", message, ferry::pipe::throughput_of(message),
                ferry::pipe::throughput_of(message, kOtherAlignment));
  }
  std::printf("\n%-6s", "");
  for (const char* column : kColumns) std::printf(" %8s", column);
  std::printf("   microseconds, without software; the paper's with it\n");
  print_latencies("64 B", 64, {8.27, 7.39, 8.11, 13.82, 23.13});
  print_latencies("8 KiB", 8192, {9.85, 9.54, 9.78, 11.68, 18.84});
}
