// What a message costs in transport/ alone: two connections joined by a queue of packets in memory,
// without sockets, ICRC and the RNIC's tables.
#include <benchmark/benchmark.h>

#include <cstring>
#include <deque>
#include <vector>

#include "transport/connected/connection.h"
#include "wire/header.h"

namespace {

using namespace ferry;
using namespace ferry::transport;
using std::chrono::nanoseconds;

constexpr std::uint32_t kMtu = 4096;
constexpr std::uint32_t kDepth = 128;
constexpr std::int64_t kWindow = 1 << 20;

struct Datagram {
  wire::Header header;
  std::vector<std::byte> payload;
};

// Memory is one buffer; receives are always there; what is emitted waits in `out`.
class LoopHost : public Host {
 public:
  explicit LoopHost(std::size_t size) : memory_(size) {}

  EmitResult emit(const OutPacket& packet) override {
    Datagram& datagram = out.emplace_back();
    datagram.header = packet.header;
    datagram.payload.resize(packet.length);
    if (packet.source == OutPacket::Source::kBytes) {
      std::memcpy(datagram.payload.data(), packet.bytes, packet.length);
    } else if (packet.source != OutPacket::Source::kNone) {
      std::memcpy(datagram.payload.data(), memory_.data() + packet.offset, packet.length);
    }
    return EmitResult::kOk;
  }
  bool take_receive(ReceiveRequest* request) override {
    request->sges.assign(1, {0, static_cast<std::uint32_t>(memory_.size()), 1});
    return true;
  }
  std::uint32_t receives_posted() const override { return kDepth; }
  MemoryResult scatter(std::span<const Sge>, std::uint64_t offset,
                       std::span<const std::byte> data) override {
    std::memcpy(memory_.data() + offset, data.data(), data.size());
    return MemoryResult::kOk;
  }
  MemoryResult check_region(std::uint32_t, std::uint64_t, std::uint64_t, std::uint32_t) override {
    return MemoryResult::kOk;
  }
  MemoryResult write_region(std::uint32_t, std::uint64_t address,
                            std::span<const std::byte> data) override {
    std::memcpy(memory_.data() + address, data.data(), data.size());
    return MemoryResult::kOk;
  }
  void complete_send(const SendCompletion& completion) override {
    if (completion.status == Status::kSuccess) ++sends_completed;
  }
  void complete_receive(const ReceiveCompletion&) override {}
  void flush_receives() override {}
  void raise(Event) override {}
  std::uint64_t random() override { return ++random_; }
  std::int64_t window(const port::Endpoint&) const override { return kWindow - in_flight_; }
  void account(const port::Endpoint&, std::int64_t bytes) override { in_flight_ += bytes; }

  std::deque<Datagram> out;
  std::uint64_t sends_completed = 0;

 private:
  std::vector<std::byte> memory_;
  std::uint64_t random_ = 0;
  std::int64_t in_flight_ = 0;
};

struct Side {
  Side(std::size_t message, std::uint32_t number, std::uint32_t address)
      : endpoint{port::Address::from_ipv4(address), 4791},
        host(message),
        connection(host, {.max_send_wr = kDepth, .max_send_sge = 1}, {}, number, number),
        qpn(number) {}

  void connect(const Side& peer) {
    connection.init();
    connection.to_rtr({.peer = peer.endpoint,
                       .peer_qpn = peer.qpn,
                       .mtu = kMtu,
                       .max_dest_rd_atomic = 1,
                       .min_rnr_timer = 12},
                      nanoseconds(1));
    connection.to_rts({.timeout = 14, .retry_count = 7, .rnr_retry = 7, .max_rd_atomic = 1},
                      nanoseconds(1));
  }

  port::Endpoint endpoint;
  LoopHost host;
  Connection connection;
  std::uint32_t qpn;
};

// Sends what `from` can send and gives it to `to`.
void carry(Side& from, Side& to, Time now) {
  while (from.connection.transmit(now, 64) != 0) {
  }
  for (; !from.host.out.empty(); from.host.out.pop_front()) {
    const Datagram& datagram = from.host.out.front();
    to.connection.handle_packet({datagram.header, datagram.payload}, from.endpoint, now);
  }
}

// One message at a time, to its completion.
void run_messages(benchmark::State& state, Operation operation) {
  const auto length = static_cast<std::uint32_t>(state.range(0));
  Side a(length, 0x11, 0x0A4E010A), b(length, 0x22, 0x0A4E020A);
  a.connect(b);
  b.connect(a);
  const Sge sge{0, length, 1};
  SendRequest request;
  request.operation = operation;
  request.signaled = true;
  request.length = length;
  request.sge_count = 1;
  request.sges = &sge;
  Time now = nanoseconds(2);
  for (auto _ : state) {
    const std::uint64_t before = a.host.sends_completed;
    if (a.connection.post_send(request) != 0) {
      state.SkipWithError("post_send failed");
      break;
    }
    for (int turn = 0; a.host.sends_completed == before && turn < 100; ++turn) {
      now += nanoseconds(1000);
      carry(a, b, now);
      carry(b, a, now);
    }
    if (a.host.sends_completed == before) {
      state.SkipWithError("the message did not complete");
      break;
    }
  }
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * length);
}

void BM_Send(benchmark::State& state) {
  run_messages(state, Operation::kSend);
}
void BM_Write(benchmark::State& state) {
  run_messages(state, Operation::kWrite);
}
BENCHMARK(BM_Send)->Arg(64)->Arg(4096)->Arg(65536);
BENCHMARK(BM_Write)->Arg(64)->Arg(65536)->Arg(1 << 20);

}  // namespace
