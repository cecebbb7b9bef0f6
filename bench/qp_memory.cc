// What idle, connected RC queue pairs take of the process's heap, beside their queues and for each
// entry of those: from three depths of the queues.
//
//   qp_memory [--qps N]
//     prints
//     {"qps":4096,"bytes_per_qp":1712,"bytes_per_send_entry":96,"bytes_per_receive_entry":40}
#include <malloc.h>

#include <cstdio>
#include <span>
#include <string_view>

#include "rc_side.h"

namespace {

using ferry::bench::number;
using ferry::bench::RcSide;

constexpr std::uint32_t kShallow = 4, kDeep = 68;

// Bytes of the heap for each queue pair of two sides that are connected with each other.
double bytes_per_qp(ibv_device* device, std::uint32_t qps, std::uint32_t send_depth,
                    std::uint32_t receive_depth) {
  const auto heap = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  RcSide few, few_peers, many, many_peers;
  const double before = heap();
  few.open(device, 1, send_depth, receive_depth, 1);
  few_peers.open(device, 1, send_depth, receive_depth, 1);
  few.connect(few_peers);
  few_peers.connect(few);
  const double between = heap();
  many.open(device, 1 + qps, send_depth, receive_depth, 1);
  many_peers.open(device, 1 + qps, send_depth, receive_depth, 1);
  many.connect(many_peers);
  many_peers.connect(many);
  const double after = heap();
  for (RcSide* side : {&few, &few_peers, &many, &many_peers}) side->close();
  // Two sides with one QP each cost `between - before`, of which `many` has as much beside its QPs.
  return ((after - between) - (between - before)) / (2.0 * qps);
}

void measure(std::uint32_t qps) {
  ibv_device** devices = ibv_get_device_list(nullptr);
  if (!devices || !devices[0])
    throw std::runtime_error("no RDMA device; start it by `ferry run --`");
  const double shallow = bytes_per_qp(devices[0], qps, kShallow, kShallow);
  const double send =
      (bytes_per_qp(devices[0], qps, kDeep, kShallow) - shallow) / (kDeep - kShallow);
  const double receive =
      (bytes_per_qp(devices[0], qps, kShallow, kDeep) - shallow) / (kDeep - kShallow);
  std::printf(
      "{\"qps\":%u,\"bytes_per_qp\":%.0f,\"bytes_per_send_entry\":%.1f,"
      "\"bytes_per_receive_entry\":%.1f}\n",
      qps, shallow - kShallow * (send + receive), send, receive);
  ibv_free_device_list(devices);
}

}  // namespace

int main(int argc, char** argv) try {
  std::uint32_t qps = 4096;
  if (argc == 3 && std::string_view(argv[1]) == "--qps") {
    qps = static_cast<std::uint32_t>(number("--qps", argv[2], 1, 16'384));
  } else if (argc != 1) {
    throw std::runtime_error("usage: qp_memory [--qps N]");
  }
  measure(qps);
} catch (const std::exception& error) {
  std::fprintf(stderr, "qp_memory: %s\n", error.what());
  return 1;
}
