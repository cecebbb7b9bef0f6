#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string>

#include "base/failure.h"
#include "input.h"
#include "pipe/played.h"
#include "pipe/policy/command.h"

// The control sockets of the pipe, as ferry-piped reads them: requests of any content, of two programs, and
// lines of root, with the sends and ends that come between. ferry-piped answers each; no container gets
// more memory than its limit; when the programs have ended, nothing is left.
//
//   input = { op:8 … }
//     op 0…191   a request: call:8 socket:8 number:32 sizes: 8 8 address:8 port:8. Bit 0 of op: of the
//                second program. socket: one of those that the program has been given, by its place; 255:
//                one that it has not. A size is 2 to the power of its number; 255: all bits
//     op 192…223 a send: socket:8 block:8 length:16
//     op 224…239 the driver works, and the engine; op - 224 times 16 ms have passed
//     op 240…247 the program ends, and another one comes
//     op 248…    a line of root of op - 248 words: word:8, one that has a meaning, or from 224 on the
//                next word - 224 bytes
namespace ferry::fuzz {
namespace {

using namespace pipe;

constexpr Domain kBridge{1, 7, 0};
constexpr std::size_t kLimit = 64 << 20;

constexpr std::array kWords{"allow",
                            "deny",
                            "forget",
                            "limit",
                            "ps",
                            "any",
                            "10.0.0.1",
                            "10.0.0.2",
                            "10.0.0.0/30",
                            "10.0.0.1:80",
                            "::/0",
                            "[::1]:80",
                            "--before",
                            "--rate",
                            "--memory",
                            "none",
                            "1K",
                            "20M",
                            "1",
                            "2",
                            "3",
                            "0",
                            "--connection-rate"};

std::string word_of(std::uint8_t byte, Input& input) {
  if (byte < 224) return kWords[byte % kWords.size()];
  const auto bytes = input.bytes(byte - 224U);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::uint64_t size_of(std::uint8_t power) {
  return power == 255 ? ~0ULL : 1ULL << (power % 64);
}

struct Member {
  std::unique_ptr<PlayedProgram> program;
  std::vector<SocketId> sockets;
};

class World {
 public:
  World() {
    Driver::Settings settings;
    settings.container.memory = kLimit;
    settings.clock = [this] { return time_; };
    driver_ = std::make_unique<Driver>(settings, pool_, engine_);
    for (std::uint8_t number = 0; number < 2; ++number) come(number);
  }

  void request(std::uint8_t op, Input& input) {
    Member& member = members_[op & 1];
    ControlRequest request;
    request.call = static_cast<Call>(input.byte() % 32);
    request.socket = socket_of(member, input.byte());
    request.number = input.number(4);
    for (auto& size : request.sizes) size = size_of(input.byte());
    const std::uint8_t last = input.byte();
    request.address = address_of(last % 4, input.byte());
    if (last & 64) request.address.ip = {};
    if (last & 128) request.address.family = AF_INET6;
    const auto reply = member.program->ask(request);
    const bool makes = request.call == Call::kSocket || request.call == Call::kAccept;
    if (makes && reply.error == 0) member.sockets.push_back(reply.socket);
    member.program->rings_of_answer.clear();
    require(pool_.used() <= 2 * kLimit, "no container has more than its limit");
  }

  void send(std::uint8_t op, Input& input) {
    Member& member = members_[op & 1];
    const SocketId socket = socket_of(member, input.byte());
    const std::uint32_t block = input.byte();
    member.program->send(socket, block, 0, 1 + input.number(2));
  }

  void work(std::uint8_t op) {
    time_ += (op - 224U) * 16'000'000ULL;
    for (auto& member : members_) {
      driver_->work(member.program->session(), 64);
      member.program->reap();
    }
    driver_->pump();
    driver_->announce();
  }

  void ask_as_root(std::uint8_t op, Input& input) {
    std::string line;
    for (int words = op - 248; words > 0; --words) line += word_of(input.byte(), input) + " ";
    try {
      driver_->change(command_of(line));
    } catch (const Failure&) {
    }
  }

  void end(std::uint8_t op) {
    members_[op & 1].program->end();
    come(op & 1);
  }

  void finish() {
    for (auto& member : members_) member.program->end();
    pipe::finish(*driver_, engine_);
    require(driver_->connections() == 0, "no connection is left");
    for (auto& member : members_) member.program.reset();
    require(pool_.used() == 0, "no memory is left");
  }

 private:
  void come(std::uint8_t number) {
    auto network = std::make_shared<PlayedNetwork>(number + 1, address_of(number + 1, 0), kBridge);
    members_[number] = {std::make_unique<PlayedProgram>(*driver_, std::move(network)), {}};
  }
  static SocketId socket_of(const Member& member, std::uint8_t place) {
    if (place == 255 || member.sockets.empty()) return {place, place};
    return member.sockets[place % member.sockets.size()];
  }

  Pool pool_{{}};
  PlayedEngine engine_{2};
  std::uint64_t time_ = 1;
  std::unique_ptr<Driver> driver_;
  Member members_[2];
};

}  // namespace
}  // namespace ferry::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ferry::fuzz;
  Input input(data, size);
  World world;
  for (int steps = 0; !input.empty() && steps < 500; ++steps) {
    const std::uint8_t op = input.byte();
    if (op < 192)
      world.request(op, input);
    else if (op < 224)
      world.send(op, input);
    else if (op < 240)
      world.work(op);
    else if (op >= 248)
      world.ask_as_root(op, input);
    else
      world.end(op);
  }
  world.finish();
  return 0;
}
