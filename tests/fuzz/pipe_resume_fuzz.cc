#include <algorithm>
#include <cstddef>

#include "input.h"
#include "pipe/played.h"

// What a program says to a ferry-piped that has taken the place of a killed one, as that reads it: requests of any
// content, in any order, with descriptors of any kind. Another program sends meanwhile to one that receives, which say
// what is true: nothing of that may be lost, doubled or changed, and their connection stays. When all have ended,
// nothing is left.
//
//   input = { op:8 … }
//     op 0…31    the driver is killed, and another one begins. Its attacker resumes: with other numbers for 1 in op:
//                name:8 sockets:16 generation:16 descriptors:8; else as is true
//     op 32…159  a request of the attacker: call:8 socket:8 number:16 sizes: 8 8 count:8 descriptors:8. socket: 0 its
//                own, 1 its listener, else any. A size is 2 to the power of its number; from 128 on its number less 128
//     op 160…191 a send of the attacker: number:8 block:8 length:16
//     op 192…207 the driver works, and the engine's completions are taken
//     op 208…    the other program sends `op - 207` bytes
namespace ferry::fuzz {
namespace {

using namespace pipe;

constexpr Domain kBridge{1, 7, 0};
constexpr std::uint64_t kBlock = 4096;

std::uint64_t size_of(std::uint8_t number) {
  return number < 128 ? 1ULL << (number % 64) : number - 128ULL;
}

// A connection to the server, and what its client and the server say of it.
struct Pair {
  SocketId client, server;
  std::uint32_t block = 0;
  std::uint64_t offset = 0;
  std::shared_ptr<Mapped> ring, received;
  std::vector<Given> rings, rings_of_server;
};

class World {
 public:
  World() {
    start_driver();
    for (std::uint8_t number = 1; number <= 3; ++number) {
      auto network = std::make_shared<PlayedNetwork>(number, address_of(number, 0), kBridge);
      programs_.push_back(
          std::make_unique<PlayedProgram>(*driver_, std::move(network), 1, 0, number));
    }
    listener_ = server().listening(address_of(1, 80));
    own_listener_ = attacker().listening(address_of(2, 80));
    attack_ = connect(attacker());
    honest_ = connect(honest());
  }

  void restart(std::uint8_t op, Input& input) {
    Peer peers[3];
    for (std::size_t place = 0; place < 3; ++place) peers[place] = programs_[place]->lose_driver();
    more_.reset();
    start_driver();
    if (op & 1) {
      more_ = driver_->open(peers[1]);
      ControlRequest request;
      request.call = Call::kResume;
      request.number = kControlVersion;
      request.sizes[0] = input.byte();
      request.socket.number = input.number(2);
      request.socket.generation = input.number(2);
      driver_->handle(more_, request, descriptors(input.byte()));
    }
    attacker().resume(*driver_, peers[1]);
    come_again(server(), peers[0]);
    server().ask(Call::kRestore, listener_, AF_INET);
    server().ask(Call::kBind, listener_, 0, 0, address_of(1, 80));
    ControlRequest listen;
    listen.call = Call::kListen;
    listen.socket = listener_;
    listen.number = 8;
    listen.count = 2;
    server().ask(listen);
    restore(server(), attack_.server, attack_.rings_of_server, 0, 0, 0, 0, 0);
    require(restore(server(), honest_.server, honest_.rings_of_server, read_, 0, 0, 0, 0),
            "the server gets its end");
    server().ask(Call::kResumed, {});
    come_again(honest(), peers[2]);
    const auto& left = honest().under_way(honest_.client);
    std::uint64_t bytes = sent_;
    for (const Entry& entry : left) bytes -= length_of(entry);
    require(restore(honest(), honest_.client, honest_.rings, 0, bytes,
                    static_cast<std::uint32_t>(left.size()), honest().of(honest_.client).done,
                    honest_.block),
            "the other program gets its end");
    honest().resend(honest_.client, 0);
    honest().ask(Call::kResumed, {});
  }

  void request(Input& input) {
    ControlRequest request;
    request.call = static_cast<Call>(input.byte() % 21);
    const std::uint8_t socket = input.byte();
    request.socket = socket == 0   ? attack_.client
                     : socket == 1 ? own_listener_
                                   : SocketId{socket % 8U, socket / 8U};
    request.number = input.number(2);
    for (auto& size : request.sizes) size = size_of(input.byte());
    request.count = size_of(input.byte());
    request.address = address_of(1 + request.number % 3, 80);
    const std::uint8_t gives = input.byte();
    const auto& session = gives & 128 && more_ ? more_ : attacker().session();
    auto answer = driver_->handle(session, request, descriptors(gives & 127));
    driver_->sent(answer);
  }

  void send(Input& input) {
    Entry entry;
    entry.type = EntryType::kSend;
    entry.destination = input.byte();
    entry.sequence = input.byte();
    entry.length = static_cast<std::uint16_t>(input.number(2));
    entry.connection = static_cast<std::uint16_t>(attack_.client.number);
    entry.generation = attack_.client.generation;
    attacker().submit(entry);
  }

  void work() {
    for (const auto& program : programs_) driver_->work(program->session(), 8);
    driver_->pump();
    driver_->announce();
    receive();
  }

  void send_honestly(std::uint32_t length) {
    const std::uint64_t at = sent_ % kBlock;
    if (at + length > kBlock || sent_ - read_ + length > kBlock / 2) return;
    for (std::uint32_t byte = 0; byte < length; ++byte) {
      honest_.ring->base()[honest_.offset + at + byte] = static_cast<std::byte>((sent_ + byte) * 7);
    }
    if (honest().send(honest_.client, honest_.block, honest_.offset + at, length)) sent_ += length;
  }

  void end() {
    for (int round = 0; round < 2000 && sent_ != read_; ++round) work();
    require(sent_ == read_, "what the other program has sent arrives");
    require((server().of(honest_.server).flags & kReset) == 0, "its connection stays");
    if (more_) driver_->close(std::exchange(more_, nullptr));
    for (const auto& program : programs_) program->end();
    driver_->give_up_absent();
    finish(*driver_, *engine_);
    require(driver_->connections() == 0, "no connection is left");
    programs_.clear();
    require(pool_.used() == 0, "no memory is left");
  }

 private:
  PlayedProgram& server() { return *programs_[0]; }
  PlayedProgram& attacker() { return *programs_[1]; }
  PlayedProgram& honest() { return *programs_[2]; }

  void start_driver() {
    driver_.reset();
    engine_ = std::make_unique<PlayedEngine>(1);
    Driver::Settings settings;
    settings.queues = 2;
    settings.records = records_;
    driver_ = std::make_unique<Driver>(settings, pool_, *engine_);
  }

  static std::vector<Given> keep(const std::vector<std::shared_ptr<Ring>>& rings) {
    std::vector<Given> all;
    for (const auto& ring : rings) all.push_back(PlayedProgram::copy(ring->descriptor()));
    return all;
  }

  Pair connect(PlayedProgram& program) {
    Pair pair;
    pair.client = program.socket();
    require(program.ask(Call::kConnect, pair.client, 0, 0, address_of(1, 80)).error == 0,
            "a connection");
    pair.server = server().ask(Call::kAccept, listener_).socket;
    const Ring& received = *server().rings_of_answer.at(1);
    pair.received = std::make_shared<Mapped>(received.descriptor(), received.size());
    pair.rings_of_server = keep(server().rings_of_answer);
    const auto block = program.ask(Call::kAllocate, pair.client, 0, kBlock);
    pair.block = block.number;
    pair.offset = block.sizes[0];
    program.ask(Call::kRings, pair.client);
    const Ring& ring = *program.rings_of_answer.at(0);
    pair.ring = std::make_shared<Mapped>(ring.descriptor(), ring.size());
    pair.rings = keep(program.rings_of_answer);
    program.rings_of_answer.clear();
    server().rings_of_answer.clear();
    return pair;
  }

  // Two or three of what the attacker has: rings, queues, an eventfd, a timer.
  std::vector<Given> descriptors(std::uint8_t which) {
    if (which == 0) return attack_.rings;
    const auto& session = attacker().session();
    std::vector<Given> all = attack_.rings;
    if (session && session->is_open()) {
      for (const int each : {session->queue_descriptor(), session->doorbell(), session->notice()}) {
        all.push_back(PlayedProgram::copy(each));
      }
    }
    std::vector<Given> some;
    for (std::size_t place = 0; place < all.size(); ++place) {
      if (which >> place & 1) some.push_back(all[place]);
    }
    if (which & 64) std::reverse(some.begin(), some.end());
    return some;
  }

  void come_again(PlayedProgram& program, const Peer& peer) {
    require(program.resume(*driver_, peer).error == 0, "it resumes");
  }

  bool restore(PlayedProgram& program, SocketId socket, const std::vector<Given>& rings,
               std::uint64_t read, std::uint64_t bytes, std::uint32_t following, std::uint64_t done,
               std::uint32_t block) {
    program.ask(Call::kRestore, socket, AF_INET);
    ControlRequest request;
    request.socket = socket;
    request.call = Call::kGiveRings;
    program.ask(request, rings);
    if (&program == &honest()) {
      request.call = Call::kRestoreBlock;
      request.number = block;
      request.sizes[0] = honest_.offset;
      request.sizes[1] = kBlock;
      program.ask(request, {});
    }
    request.call = Call::kRejoin;
    request.number = following;
    request.count = done;
    request.sizes[0] = bytes;
    request.sizes[1] = read;
    return program.ask(request, {}).error == 0;
  }

  void receive() {
    server().reap();
    honest().reap();
    for (const std::uint64_t until = server().of(honest_.server).received; read_ < until; ++read_) {
      require(honest_.received->base()[read_ % honest_.received->size()] ==
                  static_cast<std::byte>(read_ * 7),
              "the other program's bytes are as they were");
    }
    server().read(honest_.server, read_);
  }

  Pool pool_{{}};
  const std::shared_ptr<Records> records_ = std::make_shared<Records>();
  std::unique_ptr<PlayedEngine> engine_;
  std::unique_ptr<Driver> driver_;
  std::vector<std::unique_ptr<PlayedProgram>> programs_;
  std::shared_ptr<Session> more_;  // of the attacker's process
  SocketId listener_, own_listener_;
  Pair attack_, honest_;
  std::uint64_t sent_ = 0, read_ = 0;
};

}  // namespace
}  // namespace ferry::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ferry::fuzz;
  Input input(data, size);
  World world;
  for (int steps = 0; !input.empty() && steps < 500; ++steps) {
    const std::uint8_t op = input.byte();
    if (op < 32)
      world.restart(op, input);
    else if (op < 160)
      world.request(input);
    else if (op < 192)
      world.send(input);
    else if (op < 208)
      world.work();
    else
      world.send_honestly(op - 207U);
  }
  world.end();
  return 0;
}
