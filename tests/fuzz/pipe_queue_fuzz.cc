#include <algorithm>
#include <cstddef>

#include "input.h"
#include "pipe/played.h"

// The command queues of the pipe, as ferry-piped reads them from a program: entries of any content, and
// memory that the program scribbles over at any time. Another program sends and receives meanwhile:
// nothing of that may be lost or changed. When both have ended, nothing is left.
//
//   input = { op:8 … }
//     op 0…127   an entry: flags:8 bytes[32]; flags: 1 names a socket of the program, 2 a block of its
//                SBT, 4 a place in that block, 8 is a send, 16 says that something was read; 32: lane 1
//     op 128…159 bytes anywhere in the queues: offset:24 length:8 bytes[length]
//     op 160…191 the driver works: most:8
//     op 192…223 the engine's completions are taken
//     op 224…    the other program sends `op - 223` bytes
namespace ferry::fuzz {
namespace {

using namespace pipe;

constexpr Domain kBridge{1, 7, 0};

class World {
 public:
  World() {
    Driver::Settings settings;
    settings.queues = 2;
    driver_ = std::make_unique<Driver>(settings, pool_, engine_);
    for (std::uint8_t number = 1; number <= 3; ++number) {
      auto network = std::make_shared<PlayedNetwork>(number, address_of(number, 0), kBridge);
      programs_.push_back(std::make_unique<PlayedProgram>(*driver_, std::move(network)));
    }
    const SocketId listener = server().listening(address_of(1, 80));
    attack_ = connect(attacker(), listener);
    honest_ = connect(honest(), listener);
  }

  void entry(Input& input) {
    const std::uint8_t flags = input.byte();
    Entry entry;
    const auto bytes = input.bytes(sizeof entry);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(&entry));
    if (flags & 1) {
      entry.connection = static_cast<std::uint16_t>(attack_.client.number);
      entry.generation = attack_.client.generation;
    }
    if (flags & 2) {
      entry.table = Table::kSend;
      entry.sequence = static_cast<std::uint16_t>(attack_.block);
    }
    if (flags & 4) entry.source = attack_.offset + entry.source % kBlock;
    if (flags & 8) {
      entry.type = EntryType::kSend;
      entry.destination = ++attacks_;  // else the driver takes it for one that it has had
    }
    if (flags & 16) entry.type = EntryType::kReceiveDone;
    attacker().submit(entry, flags & 32 ? 1 : 0);
  }

  void scribble(Input& input) {
    auto* queues =
        reinterpret_cast<std::byte*>(&attacker().queue(0)) - offsetof(QueueMemory, queues);
    const std::size_t size = QueueMemory::size(attacker().lanes());
    const std::size_t offset = input.number(3) % size;
    const auto bytes = input.bytes(input.byte());
    std::copy_n(bytes.begin(), std::min(bytes.size(), size - offset), queues + offset);
  }

  void work(std::size_t most) {
    for (const auto& program : programs_) driver_->work(program->session(), most);
    driver_->announce();
  }
  void pump() { driver_->pump(); }

  void send(std::uint32_t length) {
    for (std::uint32_t byte = 0; byte < length; ++byte) {
      honest_.ring->base()[honest_.offset + (sent_ + byte) % kBlock] =
          static_cast<std::byte>((sent_ + byte) * 7);
    }
    const std::uint64_t at = sent_ % kBlock;
    if (at + length > kBlock || in_flight() + length > kBlock / 2) return;
    if (honest().send(honest_.client, honest_.block, honest_.offset + at, length)) sent_ += length;
  }

  void end() {
    for (int round = 0; round < 2000 && in_flight() != 0; ++round) {
      work(64);
      pump();
      receive();
    }
    require(in_flight() == 0, "what the other program has sent arrives");
    require((server().of(honest_.server).flags & kReset) == 0, "its connection stays");
    for (const auto& program : programs_) program->end();
    finish(*driver_, engine_);
    require(driver_->connections() == 0, "no connection is left");
    honest_ = attack_ = {};
    programs_.clear();
    require(pool_.used() == 0, "no memory is left");
  }

 private:
  static constexpr std::uint64_t kBlock = 4096;
  struct Pair {
    SocketId client, server;
    std::uint32_t block = 0;
    std::uint64_t offset = 0;
    std::shared_ptr<Ring> ring, received;
  };

  PlayedProgram& server() { return *programs_[0]; }
  PlayedProgram& attacker() { return *programs_[1]; }
  PlayedProgram& honest() { return *programs_[2]; }

  Pair connect(PlayedProgram& program, SocketId listener) {
    Pair pair;
    pair.client = program.socket();
    require(program.ask(Call::kConnect, pair.client, 0, 0, address_of(1, 80)).error == 0,
            "a connection");
    pair.server = server().ask(Call::kAccept, listener).socket;
    pair.received = server().rings_of_answer.at(1);
    const auto block = program.ask(Call::kAllocate, pair.client, 0, kBlock);
    pair.block = block.number;
    pair.offset = block.sizes[0];
    program.ask(Call::kRings, pair.client);
    pair.ring = program.rings_of_answer.at(0);
    program.rings_of_answer.clear();
    server().rings_of_answer.clear();
    return pair;
  }

  std::uint64_t in_flight() {
    receive();
    return sent_ - read_;
  }
  void receive() {
    server().reap();
    for (const std::uint64_t until = server().of(honest_.server).received; read_ < until; ++read_) {
      require(honest_.received->base()[read_ % honest_.received->size()] ==
                  static_cast<std::byte>(read_ * 7),
              "the other program's bytes are as they were");
    }
    server().read(honest_.server, read_);
  }

  Pool pool_{{}};
  PlayedEngine engine_{1};
  std::unique_ptr<Driver> driver_;
  std::vector<std::unique_ptr<PlayedProgram>> programs_;
  Pair attack_, honest_;
  std::uint64_t sent_ = 0, read_ = 0, attacks_ = 0;
};

}  // namespace
}  // namespace ferry::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ferry::fuzz;
  Input input(data, size);
  World world;
  for (int steps = 0; !input.empty() && steps < 2000; ++steps) {
    const std::uint8_t op = input.byte();
    if (op < 128)
      world.entry(input);
    else if (op < 160)
      world.scribble(input);
    else if (op < 192)
      world.work(input.byte());
    else if (op < 224)
      world.pump();
    else
      world.send(op - 223U);
  }
  world.end();
  return 0;
}
