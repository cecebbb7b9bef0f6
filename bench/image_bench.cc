// What TLS costs an image on its way from host to host: one over a loopback connection, from tmpfs
// to tmpfs (in /dev/shm), with certificates and without.
//
//   build/release/bin/image_bench

#include <benchmark/benchmark.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "host/image/image_stream.h"
#include "host/peers/certificate.h"
#include "host/peers/credentials.h"

namespace ferry::host {
namespace {

constexpr std::size_t kBytes = 256u << 20;
constexpr int kTimeoutMs = 60000;

struct Folders {
  Folders() {
    char name[] = "/dev/shm/ferry-image-bench.XXXXXX";
    root = ::mkdtemp(name);
    std::filesystem::create_directories(root + "/from");
    std::vector<char> bytes(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>((i * 2654435761u) >> 24);
    std::ofstream(root + "/from/pages-1.img", std::ios::binary).write(bytes.data(), kBytes);
  }
  ~Folders() { std::filesystem::remove_all(root); }
  std::string root;
};

Credentials credentials_of(const KeyAndCertificate& ca, const std::string& name) {
  const auto host = make_host_certificate(ca, {name, {name}, {}}, Days(1));
  return {ca.certificate, host.certificate, host.key};
}

// Connecting is outside of the time, as it is outside of a blackout.
void transfer(benchmark::State& state) {
  ::signal(SIGPIPE, SIG_IGN);
  const Folders folders;
  std::optional<Credentials> from, to;
  if (state.range(0) != 0) {
    const auto ca = make_ca("bench CA", Days(1));
    from.emplace(credentials_of(ca, "from"));
    to.emplace(credentials_of(ca, "to"));
  }
  ImageReceiver receiver("127.0.0.1", 0, to ? &*to : nullptr);
  const auto files = image_files(folders.root + "/from");
  for (auto _ : state) {
    state.PauseTiming();
    const std::string destination = folders.root + "/to";
    std::filesystem::remove_all(destination);
    std::filesystem::create_directories(destination);
    const auto token = receiver.expect(destination, 2 * kBytes, from ? "from" : "");
    ImageSender sender("127.0.0.1", receiver.port(), token, from ? &*from : nullptr, "to");
    state.ResumeTiming();
    sender.send(files);
    receiver.wait(token, kTimeoutMs);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kBytes));
}
BENCHMARK(transfer)->ArgName("tls")->Arg(0)->Arg(1)->UseRealTime()->Unit(benchmark::kMillisecond);

// What is paid before the program is stopped: TCP, and the handshake with two certificates.
void connection(benchmark::State& state) {
  spdlog::set_level(spdlog::level::off);  // nobody expects these images
  std::optional<Credentials> from, to;
  if (state.range(0) != 0) {
    const auto ca = make_ca("bench CA", Days(1));
    from.emplace(credentials_of(ca, "from"));
    to.emplace(credentials_of(ca, "to"));
  }
  ImageReceiver receiver("127.0.0.1", 0, to ? &*to : nullptr);
  for (auto _ : state) {
    ImageSender sender("127.0.0.1", receiver.port(), ImageToken{}, from ? &*from : nullptr, "to");
  }
}
BENCHMARK(connection)->ArgName("tls")->Arg(0)->Arg(1)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace ferry::host

BENCHMARK_MAIN();
