// How long ferryds take to stop a job on many hosts for a checkpoint, and to let it go on, beside what the programs
// themselves take. The ferryd that takes it is real. A second process plays all the others, over TLS: they serve the
// real steps, of programs that do nothing, and answer after the time that a network would take to them and back. One
// line of JSON: milliseconds of each round, and processor time of the ferryd that takes it.
//
//   build/release/bin/checkpoint_hosts HOSTS PROGRAMS MICROSECONDS [ROUNDS]     programs: of each host

#include <fmt/core.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/unique_fd.h"
#include "ferry.grpc.pb.h"
#include "host/checkpoint/attempt.h"
#include "host/checkpoint/take/content_keys.h"
#include "host/checkpoint/take/cut_host.h"
#include "host/checkpoint/take/serve.h"
#include "host/checkpoint/take/take.h"
#include "host/peers/certificate.h"
#include "host/peers/credentials.h"
#include "host/peers/this_host.h"

namespace ferry::host {
namespace {

using Clock = std::chrono::steady_clock;

struct Shape {
  std::size_t hosts = 0, programs = 0;  // programs: of each host
  std::chrono::microseconds round_trip{};
  std::size_t all() const { return hosts * programs; }
};

// From the first step that stops a program to the last reply to one that lets it go on.
class Standstill {
 public:
  // Is told how far the checkpoint is.
  void heed(const std::string& phase) {
    if (phase == "stop") began_ = {Clock::now(), processor_time()};
    if (phase == "store") ended_ = {Clock::now(), processor_time()};
  }
  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(ended_.at - began_.at).count();
  }
  double processor_milliseconds() const { return ended_.processor - began_.processor; }

 private:
  struct Moment {
    Clock::time_point at;
    double processor = 0;  // milliseconds of this process
  };
  static double processor_time() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
  }

  Moment began_, ended_;
};

// Of a job in which each program has a QP with each one whose number differs in one bit.
class PlayedPart final : public HostPart {
 public:
  PlayedPart(const Shape& shape, std::size_t host) : shape_(shape), host_(host) {}

  std::vector<Connection> look(const std::string&, const std::string&, std::uint32_t,
                               const std::optional<store::ContentKey>&) override {
    std::vector<Connection> all;
    const std::size_t first = host_ * shape_.programs;
    for (std::size_t program = first; program < first + shape_.programs; ++program) {
      for (std::size_t bit = 1; bit < shape_.all(); bit <<= 1) {
        const std::size_t peer = program ^ bit;
        if (peer < shape_.all()) all.push_back(qp_of(program, peer, bit));
      }
    }
    return all;
  }
  void check() override {}
  void freeze() override { travel(); }
  void dump() override { travel(); }
  double end() override {
    travel();
    return 0;
  }
  std::vector<store::Program> store() override {
    std::vector<store::Program> programs;
    for (std::size_t i = 0; i < shape_.programs; ++i)
      programs.push_back({"rank", fmt::format("h{}", host_)});
    return programs;
  }
  void give_up() override {}

 private:
  static Connection qp_of(std::size_t program, std::size_t peer, std::size_t bit) {
    const auto end_of = [](std::size_t of) {
      return Connection::End{fmt::format("10.{}.{}.1", of >> 8, of & 255), 18515};
    };
    return {"rank", static_cast<std::uint32_t>(bit), end_of(program), end_of(peer)};
  }
  // The way of the step here, and of its reply.
  void travel() const { std::this_thread::sleep_for(shape_.round_trip); }

  const Shape shape_;
  const std::size_t host_;
};

class PlayedHost final : public v1::Ferryd::Service {
 public:
  PlayedHost(const Shape& shape, std::size_t number, const KeyAndCertificate& ca)
      : shape_(shape), number_(number) {
    here_.name = fmt::format("h{}", number);
    here_.version = "bench";
    const auto own = make_host_certificate(ca, {here_.name, {here_.name}, {}}, Days(1));
    credentials_.emplace(ca.certificate, own.certificate, own.key);
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", credentials_->server(), &port);
    builder.RegisterService(this);
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
    server_ = builder.BuildAndStart();
    address_ = fmt::format("127.0.0.1:{}", port);
  }
  ~PlayedHost() override { server_->Shutdown(); }

  grpc::Status Cut(grpc::ServerContext* context,
                   grpc::ServerReaderWriter<v1::CutReply, v1::CutStep>* stream) override {
    ServedStream<v1::CutStep, v1::CutReply> steps(*context, *stream);
    serve_cut([this](const auto&, bool,
                     const auto&) { return std::make_unique<PlayedPart>(shape_, number_); },
              here_, steps);
    return grpc::Status::OK;
  }
  const std::string& address() const { return address_; }

 private:
  const Shape shape_;
  const std::size_t number_;
  ThisHost here_;
  std::optional<Credentials> credentials_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

// The process of all hosts but one, until the other end of the socket is closed; tells it their addresses.
void play_hosts(const Shape& shape, const KeyAndCertificate& ca, const UniqueFd& socket) {
  std::vector<std::unique_ptr<PlayedHost>> hosts;
  std::string addresses;
  for (std::size_t i = 0; i < shape.hosts; ++i) {
    hosts.push_back(std::make_unique<PlayedHost>(shape, i, ca));
    addresses += hosts.back()->address() + "\n";
  }
  addresses += "\n";
  for (std::size_t sent = 0; sent < addresses.size();) {
    const auto size = ::write(socket.get(), addresses.data() + sent, addresses.size() - sent);
    if (size <= 0) return;
    sent += static_cast<std::size_t>(size);
  }
  char end = 0;
  while (::read(socket.get(), &end, 1) > 0) continue;
}

std::vector<std::string> addresses_from(const UniqueFd& socket) {
  std::vector<std::string> addresses;
  std::string line;
  for (char next = 0; ::read(socket.get(), &next, 1) == 1;) {
    if (next != '\n') {
      line += next;
    } else if (line.empty()) {
      return addresses;
    } else {
      addresses.push_back(std::exchange(line, {}));
    }
  }
  throw Failure("the process that plays the hosts has ended");
}

void take(const Shape& shape, const KeyAndCertificate& ca,
          const std::vector<std::string>& addresses, Standstill& standstill) {
  const auto own = make_host_certificate(ca, {"asked", {"asked"}, {}}, Days(1));
  const Credentials credentials(ca.certificate, own.certificate, own.key);
  ThisHost here;
  here.name = "asked";
  here.version = "bench";
  here.credentials = &credentials;
  Attempts attempts;
  Attempt attempt(
      attempts, here, Attempt::Kind::kCheckpoint,
      [&](const v1::CheckpointProgress& progress) { standstill.heed(progress.phase()); },
      [] { return true; });
  std::vector<CutHost> hosts;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    hosts.push_back(cut_host_there(here, addresses[i],
                                   std::vector<std::string>(shape.programs, "rank"),
                                   fmt::format("h{}", i)));
  }
  char store[] = "/tmp/ferry-checkpoint-hosts.XXXXXX";
  if (::mkdtemp(store) == nullptr) throw Failure("cannot make a folder in /tmp");
  v1::CheckpointRequest request;
  request.set_directory(store);
  ContentKeys keys;
  take_checkpoint(here, std::move(hosts), request, keys, attempt);
  std::filesystem::remove_all(store);
}

int run(int count, char** arguments) {
  if (count < 4) {
    fmt::print(stderr, "usage: checkpoint_hosts HOSTS PROGRAMS MICROSECONDS [ROUNDS]\n");
    return 2;
  }
  const Shape shape{std::stoul(arguments[1]), std::stoul(arguments[2]),
                    std::chrono::microseconds(std::stoul(arguments[3]))};
  const std::size_t rounds = count > 4 ? std::stoul(arguments[4]) : 1;
  const auto ca = make_ca("bench", Days(1));
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    throw Failure("cannot make a socket");
  }
  UniqueFd here(sockets[0]), there(sockets[1]);
  const pid_t player = ::fork();  // before gRPC has threads
  if (player == 0) {
    here.reset();
    play_hosts(shape, ca, there);
    std::_Exit(0);
  }
  there.reset();
  const auto addresses = addresses_from(here);
  nlohmann::json milliseconds = nlohmann::json::array(), processor = nlohmann::json::array();
  for (std::size_t round = 0; round < rounds; ++round) {
    Standstill standstill;
    take(shape, ca, addresses, standstill);
    milliseconds.push_back(standstill.milliseconds());
    processor.push_back(standstill.processor_milliseconds());
  }
  here.reset();
  ::waitpid(player, nullptr, 0);
  const nlohmann::json report{{"hosts", shape.hosts},
                              {"programs", shape.all()},
                              {"standstill_ms", milliseconds},
                              {"processor_ms", processor}};
  fmt::print("{}\n", report.dump());
  return 0;
}

}  // namespace
}  // namespace ferry::host

int main(int count, char** arguments) {
  try {
    return ferry::host::run(count, arguments);
  } catch (const std::exception& failure) {
    fmt::print(stderr, "checkpoint_hosts: {}\n", failure.what());
    return 1;
  }
}
