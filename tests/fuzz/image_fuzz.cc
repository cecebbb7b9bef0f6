#include <sys/mman.h>

#include <algorithm>

#include "input.h"
#include "rnic/image.h"

// Images: the records of a mutated one are restored into a fresh RNIC, which is then resumed, runs
// for a while and writes an image of its own; that must be restored without complaint. Nothing
// arrives: the network drops all packets (the keys of a mutated image give access to any memory).
//
//   input = the records of an image (docs/image.md)
namespace ferry::fuzz {
namespace {

using namespace rnic::testing;
using rnic::Context;
using rnic::Engine;

// SimPair without its fault handler (libFuzzer's must stay) and without its RNICs: memory is copied
// by the kernel then.
struct Rig {
  port::SimNetwork network{1};
  SimEnvironment environment{network, 2};
  std::shared_ptr<SimPortSource> ports = std::make_shared<SimPortSource>(network);

  std::unique_ptr<Context> open(Sink& sink, unsigned host) {
    Context::Options options;
    options.sink = &sink;
    options.environment = &environment;
    options.ports = ports;
    options.with_thread = false;
    options.netdev.name = "sim0";
    options.netdev.mtu = 9000;
    options.netdev.guid = host;
    options.netdev.addresses = {port::Address::from_ipv4(0x0A000000 + host)};
    int error = 0;
    auto context = Context::open(options, &error);
    require(context != nullptr, "an RNIC opens");
    return context;
  }
};

// The sanitizer maps terabytes for itself, and to look whether all of such a region is mapped takes
// half a minute.
bool has_vast_region(std::span<const std::byte> image) {
  device::Record record;
  while (!image.empty() && device::next_record(&image, &record)) {
    if (record.type != device::ObjectType::kMr) continue;
    wire::ByteReader in(record.body);
    in.take(4 + 4 + 8);  // PD, key, address
    if (in.get<std::uint64_t>() > std::uint64_t{1} << 30) return true;
  }
  return false;
}

void run(std::span<const std::byte> image) {
  if (has_vast_region(image)) return;
  // Where the golden images have their memory.
  static const FixedMemory memory_a(kMemoryA), memory_b(kMemoryB);
  Rig rig;
  rig.network.set_filter([](const auto&, const auto&, auto) { return false; });
  Sink sink;
  auto context = rig.open(sink, 50);
  Restored restored;
  const bool whole = restore(*context, image, &restored) == 0;
  context->resume(false);
  {
    Engine::Lock lock(context->engine());
    for (int i = 0; i < 10; ++i) {
      rig.network.advance_to(rig.network.now() + std::chrono::milliseconds(1 << i));
      context->engine().run(rig.network.now());
    }
  }
  for (device::Cq* cq : restored.cqs) {
    ibv_wc wc{};
    for (int i = 0; i < 100 && cq->poll(1, &wc) == 1; ++i) continue;
  }
  if (!whole) return;
  std::uint32_t unacked = 0;
  require(context->quiesce(std::chrono::seconds(1), &unacked) == 0,
          "a restored RNIC can be stopped");
  std::vector<std::byte> again;
  int count = 0;
  require(context->describe(&again, &count) == 0, "a restored RNIC can be described");
  Sink other_sink;
  auto other = rig.open(other_sink, 51);
  Restored twice;
  require(restore(*other, again, &twice) == 0, "what was written can be restored");
}

}  // namespace
}  // namespace ferry::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ferry::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
