// One operation after the other between two RNICs of this one process, all in one thread: for
// counting what an operation costs in instructions and system calls, on both sides together.
//
//   data_path [--operation send|write|read] [--size BYTES] [--count N] [--qps N] [--depth N]
//     prints {"operation":"send","size":64,"count":1000,"qps":1}
//
// Under valgrind --tool=callgrind --instr-atstart=no only these N are counted, not what is before
// and after. With several QPs they take turns. With --depth, so many requests are under way at once
// (WRITE and READ only), posted one by one, of which the last asks for a completion.
//
// While it counts, the progress threads get this program's processor only when it does not want it,
// which is never: under valgrind they are too slow to park, and would take some of its packets,
// each time others.
#include <sched.h>
#include <valgrind/callgrind.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "rc_side.h"

namespace {

using ferry::bench::number;
using ferry::bench::RcSide;

constexpr std::uint32_t kReceives = 4;
constexpr int kWarmUp = 200;
constexpr std::uint32_t kParts = 10;

struct Options {
  ibv_wr_opcode opcode = IBV_WR_SEND;
  std::string_view name = "send";
  std::uint32_t size = 64;
  std::uint32_t count = 1000;
  std::uint32_t qps = 1;
  std::uint32_t depth = 1;
};

void share_one_processor() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(sched_getcpu(), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) throw ferry::bench::system_error("affinity");
}

void put_progress_threads_behind() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != "ferry-rnic") continue;
    const sched_param none{};
    if (sched_setscheduler(std::stoi(task.path().filename()), SCHED_IDLE, &none) != 0)
      throw ferry::bench::system_error("priority of a progress thread");
  }
}

// True when a completion was there.
bool poll(RcSide& side) {
  ibv_wc wc;
  const int count = ibv_poll_cq(side.cq, 1, &wc);
  if (count < 0) throw std::runtime_error("ibv_poll_cq failed");
  if (count > 0 && wc.status != IBV_WC_SUCCESS) {
    throw std::runtime_error(std::string("an operation failed: ") + ibv_wc_status_str(wc.status));
  }
  return count > 0;
}

// `depth` operations from their requests to the last one's completion; a SEND's receive completes
// on the way.
void operate(RcSide& requester, RcSide& responder, const Options& options, std::size_t qp) {
  ibv_sge mine{reinterpret_cast<std::uintptr_t>(requester.memory.data()), options.size,
               requester.mr->lkey};
  bool received = options.opcode != IBV_WR_SEND;
  if (!received) {
    ibv_sge theirs{reinterpret_cast<std::uintptr_t>(responder.memory.data()), options.size,
                   responder.mr->lkey};
    ibv_recv_wr receive{};
    receive.sg_list = &theirs;
    receive.num_sge = 1;
    ibv_recv_wr* bad;
    if (ibv_post_recv(responder.qps[qp], &receive, &bad) != 0)
      throw std::runtime_error("no receive");
  }
  ibv_send_wr request{};
  request.sg_list = &mine;
  request.num_sge = 1;
  request.opcode = options.opcode;
  request.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(responder.memory.data());
  request.wr.rdma.rkey = responder.mr->rkey;
  ibv_send_wr* bad;
  for (std::uint32_t i = 0; i < options.depth; ++i) {
    request.send_flags = i + 1 == options.depth ? IBV_SEND_SIGNALED : 0;
    if (ibv_post_send(requester.qps[qp], &request, &bad) != 0)
      throw std::runtime_error("no request");
  }
  for (bool sent = false; !sent || !received;) {
    received |= poll(responder);
    sent |= poll(requester);
  }
}

Options parse(std::span<char*> arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    const std::string_view word = arguments[i];
    if (i + 1 == arguments.size()) throw std::runtime_error(std::string(word) + ": give a value");
    const char* value = arguments[i + 1];
    if (word == "--operation") {
      options.name = value;
      options.opcode = options.name == "read"    ? IBV_WR_RDMA_READ
                       : options.name == "write" ? IBV_WR_RDMA_WRITE
                                                 : IBV_WR_SEND;
      if (options.opcode == IBV_WR_SEND && options.name != "send") {
        throw std::runtime_error("--operation: give send, write or read");
      }
    } else if (word == "--size") {
      options.size = static_cast<std::uint32_t>(number("--size", value, 1, 1 << 30));
    } else if (word == "--count") {
      options.count = static_cast<std::uint32_t>(number("--count", value, 1, 100'000'000));
    } else if (word == "--qps") {
      options.qps = static_cast<std::uint32_t>(number("--qps", value, 1, 8192));
    } else if (word == "--depth") {
      options.depth = static_cast<std::uint32_t>(number("--depth", value, 1, 1024));
    } else {
      throw std::runtime_error(
          "usage: data_path [--operation send|write|read] [--size BYTES] [--count N] [--qps N] "
          "[--depth N]");
    }
  }
  if (options.depth > 1 && options.opcode == IBV_WR_SEND) {
    throw std::runtime_error("--depth: give --operation write or read as well");
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse({argv + 1, static_cast<std::size_t>(argc - 1)});
  share_one_processor();  // and the threads that are made from here on
  ibv_device** devices = ibv_get_device_list(nullptr);
  if (!devices || !devices[0])
    throw std::runtime_error("no RDMA device; start it by `ferry run --`");
  RcSide a, b;
  a.open(devices[0], options.qps, 4 * options.depth, kReceives, options.size);
  b.open(devices[0], options.qps, 4 * options.depth, kReceives, options.size);
  a.connect(b);
  b.connect(a);
  for (std::uint32_t i = 0; i < kWarmUp + options.qps; ++i) operate(a, b, options, i % options.qps);
  put_progress_threads_behind();
  CALLGRIND_START_INSTRUMENTATION;
  for (std::uint32_t i = 0; i < options.count; i += options.depth) {
    operate(a, b, options, i / options.depth % options.qps);
    if ((i + options.depth) % (options.count / kParts) == 0) CALLGRIND_DUMP_STATS;
  }
  CALLGRIND_STOP_INSTRUMENTATION;
  std::printf("{\"operation\":\"%s\",\"size\":%u,\"count\":%u,\"qps\":%u}\n", options.name.data(),
              options.size, options.count, options.qps);
  a.close();
  b.close();
  ibv_free_device_list(devices);
} catch (const std::exception& error) {
  std::fprintf(stderr, "data_path: %s\n", error.what());
  return 1;
}
