// One operation after the other between two RNICs of this one process, all in one thread: for
// counting what an operation costs in instructions and system calls, on both sides together.
//
//   data_path [--operation send|write|read] [--size BYTES] [--count N] [--qps N]
//     prints {"operation":"send","size":64,"count":1000,"qps":1}
//
// Under valgrind --tool=callgrind --instr-atstart=no only these N are counted, not what is before
// and after. With several QPs they take turns.
#include <infiniband/verbs.h>
#include <valgrind/callgrind.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "udp_socket.h"

namespace {

using ferry::bench::number;
using ferry::bench::system_error;

constexpr int kWarmUp = 200;  // the progress threads park meanwhile
constexpr std::uint8_t kPort = 1;

struct Options {
  ibv_wr_opcode opcode = IBV_WR_SEND;
  std::string_view name = "send";
  std::uint32_t size = 64;
  std::uint32_t count = 1000;
  std::uint32_t qps = 1;
};

// One RNIC with its queue pairs, a buffer, and one CQ for all.
struct Side {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_gid gid{};
  std::vector<ibv_qp*> qps;
  std::vector<char> memory;

  void open(ibv_device* device, const Options& options) {
    memory.resize(options.size);
    context = ibv_open_device(device);
    if (!context) throw system_error("cannot open the device");
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 2 * static_cast<int>(options.qps) + 14, nullptr, nullptr, 0);
    if (!pd || !cq || ibv_query_gid(context, kPort, 0, &gid) != 0)
      throw system_error("no CQ or GID");
    mr = ibv_reg_mr(pd, memory.data(), memory.size(),
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    if (!mr) throw system_error("cannot register memory");
    for (std::uint32_t i = 0; i < options.qps; ++i) {
      ibv_qp_init_attr init{};
      init.send_cq = init.recv_cq = cq;
      init.qp_type = IBV_QPT_RC;
      init.cap.max_send_wr = init.cap.max_recv_wr = 4;
      init.cap.max_send_sge = init.cap.max_recv_sge = 1;
      qps.push_back(ibv_create_qp(pd, &init));
      if (!qps.back()) throw system_error("cannot create a QP");
    }
  }

  void connect(const Side& peer) {
    for (std::size_t i = 0; i < qps.size(); ++i) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_INIT;
      attr.port_num = kPort;
      attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
      int error = ibv_modify_qp(
          qps[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
      attr.qp_state = IBV_QPS_RTR;
      attr.path_mtu = IBV_MTU_4096;
      attr.dest_qp_num = peer.qps[i]->qp_num;
      attr.max_dest_rd_atomic = 1;
      attr.ah_attr.is_global = 1;
      attr.ah_attr.port_num = kPort;
      attr.ah_attr.grh.dgid = peer.gid;
      attr.ah_attr.grh.hop_limit = 1;
      if (error == 0) {
        error = ibv_modify_qp(qps[i], &attr,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
      }
      attr.qp_state = IBV_QPS_RTS;
      attr.timeout = 18;
      attr.retry_cnt = attr.rnr_retry = 7;
      attr.max_rd_atomic = 1;
      if (error == 0) {
        error = ibv_modify_qp(qps[i], &attr,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
      }
      if (error != 0)
        throw std::runtime_error("cannot connect a QP: " + std::string(strerror(error)));
    }
  }

  void close() {
    for (ibv_qp* qp : qps) ibv_destroy_qp(qp);
    ibv_dereg_mr(mr);
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
  }
};

// True when a completion was there.
bool poll(Side& side) {
  ibv_wc wc;
  const int count = ibv_poll_cq(side.cq, 1, &wc);
  if (count < 0) throw std::runtime_error("ibv_poll_cq failed");
  if (count > 0 && wc.status != IBV_WC_SUCCESS) {
    throw std::runtime_error(std::string("an operation failed: ") + ibv_wc_status_str(wc.status));
  }
  return count > 0;
}

// One operation from its request to its completion; a SEND's receive completes on the way.
void operate(Side& requester, Side& responder, const Options& options, std::size_t qp) {
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
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(responder.memory.data());
  request.wr.rdma.rkey = responder.mr->rkey;
  ibv_send_wr* bad;
  if (ibv_post_send(requester.qps[qp], &request, &bad) != 0) throw std::runtime_error("no request");
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
    } else {
      throw std::runtime_error(
          "usage: data_path [--operation send|write|read] [--size BYTES] [--count N] [--qps N]");
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse({argv + 1, static_cast<std::size_t>(argc - 1)});
  ibv_device** devices = ibv_get_device_list(nullptr);
  if (!devices || !devices[0])
    throw std::runtime_error("no RDMA device; start it by `ferry run --`");
  Side a, b;
  a.open(devices[0], options);
  b.open(devices[0], options);
  a.connect(b);
  b.connect(a);
  for (std::uint32_t i = 0; i < kWarmUp + options.qps; ++i) operate(a, b, options, i % options.qps);
  CALLGRIND_START_INSTRUMENTATION;
  for (std::uint32_t i = 0; i < options.count; ++i) operate(a, b, options, i % options.qps);
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
