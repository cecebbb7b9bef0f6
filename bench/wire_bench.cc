// What a packet costs in wire/: headers, ICRC, the MAC of a migration message.
#include <benchmark/benchmark.h>

#include <vector>

#include "wire/header.h"
#include "wire/icrc.h"
#include "wire/siphash.h"

namespace {

using namespace ferry;

const port::Endpoint kFrom{port::Address::from_ipv4(0x0A4E010A), 4791};
const port::Endpoint kTo{port::Address::from_ipv4(0x0A4E020A), 4791};

wire::Header write_header() {
  wire::Header header;
  header.opcode = wire::Opcode::kRcWriteOnly;
  header.dest_qpn = 0x12345;
  header.psn = 77;
  header.ack_request = true;
  header.reth = {0x7f0000001000, 0xABCD00, 64};
  return header;
}

std::vector<std::byte> packet(std::size_t payload) {
  const wire::Header header = write_header();
  std::vector<std::byte> bytes(wire::packet_size(header.opcode, payload), std::byte{0x5A});
  wire::encode_header(header, payload, bytes);
  wire::seal(bytes, kFrom, kTo, 0);
  return bytes;
}

void set_rates(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void BM_EncodeHeader(benchmark::State& state) {
  std::vector<std::byte> bytes = packet(64);
  const wire::Header header = write_header();
  for (auto _ : state) {
    wire::encode_header(header, 64, bytes);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_EncodeHeader);

void BM_Parse(benchmark::State& state) {
  const std::vector<std::byte> bytes = packet(64);
  for (auto _ : state) benchmark::DoNotOptimize(wire::parse(bytes));
}
BENCHMARK(BM_Parse);

void BM_Seal(benchmark::State& state) {
  std::vector<std::byte> bytes = packet(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    wire::seal(bytes, kFrom, kTo, 0);
    benchmark::ClobberMemory();
  }
  set_rates(state);
}
BENCHMARK(BM_Seal)->Arg(0)->Arg(64)->Arg(256)->Arg(1024)->Arg(4096);

void BM_Verify(benchmark::State& state) {
  const std::vector<std::byte> bytes = packet(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(wire::verify(bytes, kFrom, kTo, 0));
  set_rates(state);
}
BENCHMARK(BM_Verify)->Arg(64)->Arg(1024)->Arg(4096);

// A standard NIC's packet: its IP identification is unknown and solved for.
void BM_VerifyUnknownIdentification(benchmark::State& state) {
  std::vector<std::byte> bytes = packet(static_cast<std::size_t>(state.range(0)));
  wire::seal(bytes, kFrom, kTo, 40'001);
  for (auto _ : state) benchmark::DoNotOptimize(wire::verify(bytes, kFrom, kTo, 0));
  set_rates(state);
}
BENCHMARK(BM_VerifyUnknownIdentification)->Arg(64)->Arg(4096);

void BM_SipHash(benchmark::State& state) {
  const std::vector<std::byte> bytes(static_cast<std::size_t>(state.range(0)), std::byte{1});
  for (auto _ : state) benchmark::DoNotOptimize(wire::siphash24(1, 2, bytes));
}
BENCHMARK(BM_SipHash)->Arg(84);

}  // namespace
