// Programs that connect, send, read and end in any order, an engine that copies when it likes, and a driver that is
// killed now and then: what arrives is what was sent, and nothing is left. A seed is a schedule: FERRY_PIPE_SEED=N
// runs it alone. With FERRY_PIPE_ENGINE=rtl it is PD Stack that copies.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "chosen_engine.h"
#include "played.h"
#ifdef FERRY_PIPE_RTL
#include "pipe/engine/rtl_engine.h"
#endif

namespace ferry::pipe {
namespace {

constexpr std::size_t kRing = 2 << 20;
constexpr Domain kBridge{1, 7, 0};

// Byte `at` of the stream that `number` is.
std::byte byte_of(std::uint64_t number, std::uint64_t at) {
  return static_cast<std::byte>((number * 131 + at) * 0x9e3779b97f4a7c15ULL >> 56);
}

// One end of a connection.
struct End {
  PlayedProgram* program = nullptr;
  SocketId id;
  std::uint64_t out = 0, in = 0;  // the numbers of both streams
  std::unique_ptr<Mapped> send_ring, receive_ring;
  std::vector<Given> rings;
  std::uint32_t block = 0;
  std::uint64_t block_offset = 0, block_size = 0;
  std::uint64_t sent = 0, sends = 0, read = 0;
  bool shut = false, deaf = false;
};

template <typename SlowEngine>
class Simulation {
 public:
  template <typename... EngineSettings>
  explicit Simulation(unsigned seed, const EngineSettings&... settings_of_engine)
      : random_(seed),
        new_engine_([=] { return std::make_unique<SlowEngine>(settings_of_engine...); }) {
    start_driver();
    for (std::uint8_t number = 1; number <= 3; ++number) add_program(number);
  }

  void run(int steps) {
    for (int step = 0; step < steps && !testing::Test::HasFailure(); ++step) take_step();
    // Nobody sends any more: everything is delivered.
    do {
      for (auto& program : programs_) come_again(*program);
      accept_all();
    } while (!lost_.empty());
    for (auto& end : ends_) shut(end);
    for (int round = 0; round < 3000 && !is_quiet(); ++round) {
      for (auto& program : programs_) driver_->work(program->session(), 64);
      driver_->pump();
      driver_->announce();
      for (auto& end : ends_) read_some(end, kRing);
    }
    for (auto& end : ends_) check_all_read(end);
    for (auto& end : ends_) end.program->ask(Call::kClose, end.id);
    for (auto& program : programs_) program->end();
    finish(*driver_, *engine_);
    ends_.clear();
    EXPECT_EQ(driver_->connections(), 0U);
    programs_.clear();
    EXPECT_EQ(pool_->used(), 0U);
    EXPECT_TRUE(driver_->absent().empty());
  }

  std::uint64_t bytes_read() const { return bytes_read_; }
  int killed() const { return killed_; }
  int restarts() const { return restarts_; }
  int lost_answers() const { return lost_answers_; }
  int given_up() const { return given_up_; }

 private:
  void add_program(std::uint8_t number) {
    const SocketAddress own = address_of(number, 0);
    auto network = std::make_shared<PlayedNetwork>(number, own, kBridge);
    programs_.push_back(
        std::make_unique<PlayedProgram>(*driver_, std::move(network), 1, 0, next_pid_++));
    listeners_[programs_.back().get()] = {number,
                                          programs_.back()->listening(address_of(number, 80))};
  }

  void start_driver() {
    driver_.reset();
    engine_ = new_engine_();
    pool_ = std::make_unique<Pool>(Pool::Settings{});
    Driver::Settings settings;
    settings.queues = 2;
    settings.records = records_;
    driver_ = std::make_unique<Driver>(settings, *pool_, *engine_);
  }

  // What the driver has in its own memory is gone, and what the engine has not copied is not copied.
  void restart_driver() {
    ++restarts_;
    for (auto& program : programs_) {
      if (program->session()) lost_[program.get()] = program->lose_driver();
    }
    start_driver();
  }

  bool is_lost(PlayedProgram& program) const { return lost_.contains(&program); }

  // Programs have waited for as long as they do. They come again, and have lost what they had.
  void give_up() {
    if (lost_.empty()) return;
    ++given_up_;
    driver_->give_up_absent();
    for (const auto& [lost, peer] : lost_) {
      for (const End& end : ends_) {
        if (end.program == lost) break_connection(end.out, end.in);
      }
      for (const auto& [out, in] : std::exchange(waiting_[lost], {})) break_connection(out, in);
    }
  }

  void come_again(PlayedProgram& program) {
    if (!is_lost(program)) return;
    ASSERT_EQ(program.resume(*driver_, lost_[&program]).error, 0);
    lost_.erase(&program);
    // It may ask for more before it has said all.
    if (random_() % 4 == 0 && ends_.size() < 8) connect(program, false);
    const auto& [number, listener] = listeners_[&program];
    ASSERT_EQ(program.ask(Call::kRestore, listener, AF_INET).error, 0);
    ASSERT_EQ(program.ask(Call::kBind, listener, 0, 0, address_of(number, 80)).error, 0);
    ControlRequest listen;
    listen.call = Call::kListen;
    listen.socket = listener;
    listen.number = 8;
    listen.count = accepted_[&program];
    ASSERT_EQ(program.ask(listen).error, 0);
    for (auto& end : ends_) {
      if (end.program == &program && !program.session()->find(end.id)) restore(end);
    }
    program.ask(Call::kResumed, {});
  }

  void restore(End& end) {
    PlayedProgram& program = *end.program;
    ASSERT_EQ(program.ask(Call::kRestore, end.id, AF_INET).error, 0);
    ControlRequest request;
    request.socket = end.id;
    request.call = Call::kGiveRings;
    ASSERT_EQ(program.ask(request, end.rings).error, 0);
    request.call = Call::kRestoreBlock;
    request.number = end.block;
    request.sizes[0] = end.block_offset;
    request.sizes[1] = end.block_size;
    ASSERT_EQ(program.ask(request).error, 0);
    std::uint64_t under_way = 0;
    for (const Entry& entry : program.under_way(end.id)) under_way += length_of(entry);
    request.call = Call::kRejoin;
    request.number = static_cast<std::uint32_t>(program.under_way(end.id).size());
    request.count = program.of(end.id).done;
    request.sizes[0] = end.sent - under_way;
    request.sizes[1] = end.read;
    const int error = program.ask(request).error;
    if (error != 0) {
      EXPECT_TRUE(is_broken(end)) << "stream " << end.out;
      return;
    }
    program.resend(end.id, end.id.number % 2);
    if (end.shut) {
      EXPECT_EQ(program.ask(Call::kShutdown, end.id, SHUT_WR).error, 0);
    }
    if (end.deaf) {
      EXPECT_EQ(program.ask(Call::kShutdown, end.id, SHUT_RD).error, 0);
    }
  }

  void take_step() {
    PlayedProgram& program = *programs_[random_() % programs_.size()];
    if (random_() % 64 == 0) restart_driver();
    if (random_() % 256 == 0) give_up();
    if (is_lost(program)) {
      if (random_() % 16 == 0)
        kill(program);
      else
        come_again(program);
      return;
    }
    switch (random_() % 16) {
      case 0:
        if (ends_.size() < 8) connect(program);
        break;
      case 1: accept_all(); break;
      case 2:
        if (random_() % 8 == 0) kill(program);
        break;
      case 3:
        if (!ends_.empty() && random_() % 4 == 0) shut(any_end());
        if (!ends_.empty() && random_() % 16 == 0) close_ears(any_end());
        break;
      case 4:
      case 5:
      case 6:
      case 7:
        if (!ends_.empty()) send_some(any_end());
        break;
      case 8:
      case 9:
      case 10:
        if (!ends_.empty()) read_some(any_end(), 1 + random_() % 200'000);
        break;
      case 11: driver_->announce(); break;
      case 12: driver_->pump(); break;
      default: driver_->work(program.session(), 1 + random_() % 5);
    }
  }

  End& any_end() {
    return *std::next(ends_.begin(), static_cast<std::ptrdiff_t>(random_() % ends_.size()));
  }

  void connect(PlayedProgram& client, bool listens = true) {
    PlayedProgram& server = *programs_[random_() % programs_.size()];
    if (is_lost(server) || (&server == &client && !listens)) return;
    End end;
    end.program = &client;
    end.id = client.socket();
    ControlRequest sizes;
    sizes.call = Call::kBufferSizes;
    sizes.socket = end.id;
    sizes.sizes[0] = sizes.sizes[1] = kRing;
    client.ask(sizes);
    const auto reply =
        client.ask(Call::kConnect, end.id, 0, 0, address_of(listeners_[&server].first, 80));
    if (reply.error != 0) {
      EXPECT_EQ(reply.error, ECONNREFUSED);
      client.ask(Call::kClose, end.id);
      return;
    }
    end.out = next_stream_++;
    end.in = next_stream_++;
    waiting_[&server].push_back({end.in, end.out});
    EXPECT_EQ(client.ask(Call::kRings, end.id).error, 0);
    prepare(end, client.rings_of_answer);
    ends_.push_back(std::move(end));
  }

  void accept_all() {
    for (auto& program : programs_) {
      if (is_lost(*program)) continue;
      if (!waiting_[program.get()].empty() && random_() % 16 == 0) {
        // The driver is killed before it has answered.
        ControlRequest request;
        request.call = Call::kAccept;
        request.socket = listeners_[program.get()].second;
        EXPECT_EQ(driver_->handle(program->session(), request, {}).reply.error, 0);
        ++lost_answers_;
        return restart_driver();
      }
      for (auto& [out, in] : std::exchange(waiting_[program.get()], {})) {
        const auto reply = program->ask(Call::kAccept, listeners_[program.get()].second);
        ASSERT_EQ(reply.error, 0);
        ++accepted_[program.get()];
        for (const End& other : ends_) {
          EXPECT_FALSE(other.program == program.get() && other.id == reply.socket);
        }
        End end;
        end.program = program.get();
        end.id = reply.socket;
        end.out = out;
        end.in = in;
        prepare(end, program->rings_of_answer);
        ends_.push_back(std::move(end));
      }
    }
  }

  void prepare(End& end, const std::vector<std::shared_ptr<Ring>>& rings) {
    end.send_ring = std::make_unique<Mapped>(rings.at(0)->descriptor(), rings[0]->size());
    end.receive_ring = std::make_unique<Mapped>(rings.at(1)->descriptor(), rings[1]->size());
    for (const auto& ring : rings) end.rings.push_back(PlayedProgram::copy(ring->descriptor()));
    end.block_size = 1 + random_() % 300'000;
    const auto block = end.program->ask(Call::kAllocate, end.id, 0, end.block_size);
    ASSERT_EQ(block.error, 0);
    end.block = block.number;
    end.block_offset = block.sizes[0];
  }

  void send_some(End& end) {
    if (is_lost(*end.program) && random_() % 2 == 0) return;
    end.program->reap();
    // The buffer is written again when all that was sent from it is done.
    if (end.shut || end.program->of(end.id).done < end.sends) return;
    std::uint64_t left = 1 + random_() % end.block_size, at = end.block_offset;
    for (std::uint64_t byte = 0; byte < left; ++byte) {
      end.send_ring->base()[at + byte] = byte_of(end.out, end.sent + byte);
    }
    while (left > 0) {
      const auto piece =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(left, 1 + random_() % 65536));
      if (!end.program->send(end.id, end.block, at, piece, end.id.number % 2)) return;
      ++end.sends;
      end.sent += piece;
      at += piece;
      left -= piece;
    }
    sent_of_[end.out] = end.sent;
  }

  void read_some(End& end, std::uint64_t most) {
    end.program->reap();
    const std::uint64_t received = end.program->of(end.id).received;
    ASSERT_GE(received, end.read);
    const std::uint64_t until = std::min(received, end.read + most);
    for (; end.read < until; ++end.read, ++bytes_read_) {
      ASSERT_EQ(end.receive_ring->base()[end.read % end.receive_ring->size()],
                byte_of(end.in, end.read))
          << "byte " << end.read << " of stream " << end.in;
    }
    end.program->read(end.id, end.read, end.id.number % 2);
  }

  void shut(End& end) {
    if (is_lost(*end.program)) return;
    if (std::exchange(end.shut, true)) return;
    const int error = end.program->ask(Call::kShutdown, end.id, SHUT_WR).error;
    // Of a broken one another driver may know nothing.
    EXPECT_TRUE(error == 0 || (error == ENOTCONN && is_broken(end))) << error;
  }

  // What comes from now on nobody gets.
  void close_ears(End& end) {
    if (is_lost(*end.program) || std::exchange(end.deaf, true)) return;
    deaf_.insert(end.in);
    const int error = end.program->ask(Call::kShutdown, end.id, SHUT_RD).error;
    EXPECT_TRUE(error == 0 || (error == ENOTCONN && is_broken(end))) << error;
  }

  void break_connection(std::uint64_t out, std::uint64_t in) { broken_.insert({out, in}); }

  void kill(PlayedProgram& program) {
    ++killed_;
    const std::uint8_t number = listeners_[&program].first;
    for (auto& end : ends_) {
      if (end.program == &program) break_connection(end.out, end.in);
      for (const auto& [out, in] : waiting_[&program]) {
        if (end.out == in) break_connection(end.out, end.in);
      }
    }
    ends_.remove_if([&](const End& end) { return end.program == &program; });
    for (auto& [server, waiting] : waiting_) {
      if (server == &program) waiting.clear();
    }
    if (is_lost(program)) driver_->has_ended(lost_[&program].process());
    program.end();
    lost_.erase(&program);
    accepted_.erase(&program);
    listeners_.erase(&program);
    waiting_.erase(&program);
    std::erase_if(programs_, [&](const auto& each) { return each.get() == &program; });
    add_program(number);
  }

  bool is_broken(const End& end) const {
    return broken_.contains({end.out, end.in}) || broken_.contains({end.in, end.out});
  }

  bool is_quiet() {
    for (auto& end : ends_) {
      if (is_broken(end)) continue;
      const auto& told = end.program->of(end.id);
      if (deaf_.contains(end.out) ? told.done < end.sends : (told.flags & kReset) != 0)
        return false;
      if (end.deaf) continue;
      if ((told.flags & kEnd) == 0 || end.read < sent_of_[end.in]) return false;
    }
    return engine_->is_idle();
  }

  void check_all_read(End& end) {
    const auto& told = end.program->of(end.id);
    if (is_broken(end)) return;
    EXPECT_FALSE(told.flags & kReset);
    if (deaf_.contains(end.out)) {
      EXPECT_EQ(told.done, end.sends) << "stream " << end.out;
      EXPECT_TRUE(told.flags & kReadClosed);
    }
    if (end.deaf) return;
    EXPECT_EQ(end.read, sent_of_[end.in]) << "stream " << end.in;
    EXPECT_TRUE(told.flags & kEnd);
  }

  std::minstd_rand random_;
  const std::function<std::unique_ptr<SlowEngine>()> new_engine_;
  const std::shared_ptr<Records> records_ = std::make_shared<Records>();
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<SlowEngine> engine_;
  std::unique_ptr<Driver> driver_;
  std::int32_t next_pid_ = 1;
  std::map<PlayedProgram*, Peer> lost_;  // that have not come to this driver yet
  std::map<PlayedProgram*, std::uint64_t> accepted_;
  std::vector<std::unique_ptr<PlayedProgram>> programs_;
  std::map<PlayedProgram*, std::pair<std::uint8_t, SocketId>> listeners_;
  std::map<PlayedProgram*, std::vector<std::pair<std::uint64_t, std::uint64_t>>> waiting_;
  std::list<End> ends_;
  std::map<std::uint64_t, std::uint64_t> sent_of_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> broken_;
  std::set<std::uint64_t> deaf_;  // streams that nobody reads any more
  std::uint64_t next_stream_ = 1, bytes_read_ = 0;
  int killed_ = 0, restarts_ = 0, lost_answers_ = 0, given_up_ = 0;
};

struct Outcome {
  std::uint64_t bytes = 0;
  int killed = 0, restarts = 0, lost_answers = 0, given_up = 0;
};

template <typename SlowEngine, typename... EngineSettings>
void run(unsigned seed, Outcome* outcome, const EngineSettings&... settings_of_engine) {
  Simulation<SlowEngine> simulation(seed, settings_of_engine...);
  simulation.run(600);
  outcome->bytes += simulation.bytes_read();
  outcome->killed += simulation.killed();
  outcome->restarts += simulation.restarts();
  outcome->lost_answers += simulation.lost_answers();
  outcome->given_up += simulation.given_up();
}

void run_with_chosen_engine(unsigned seed, Outcome* outcome) {
#ifdef FERRY_PIPE_RTL
  if (chosen_engine_name() == "rtl") {
    RtlEngine::Settings settings;
    settings.cycles_per_reap = 300 + seed * 37 % 1000;
    settings.queues = 1 + seed % 3;
    settings.model.seed = seed;
    settings.model.stalls = seed % 4 * 20;
    settings.model.jitter = seed % 5 * 100;
    settings.model.shuffled = seed % 2 == 0;
    return run<RtlEngine>(seed, outcome, settings);
  }
#endif
  run<PlayedEngine>(seed, outcome, seed, 1 + seed % 40, seed % 2 ? 4096 : 65536);
}

TEST(PipeSimulationTest, WhatArrivesIsWhatWasSent) {
  const char* only = ::getenv("FERRY_PIPE_SEED");
  const unsigned all = chosen_engine_name() == "rtl" ? 15 : 40;  // it takes longer
  const unsigned first = only ? static_cast<unsigned>(std::atoi(only)) : 1, count = only ? 1 : all;
  Outcome outcome;
  for (unsigned seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("FERRY_PIPE_SEED=" + std::to_string(seed));
    run_with_chosen_engine(seed, &outcome);
    if (HasFailure()) return;
  }
  if (only) return;
  EXPECT_GT(outcome.bytes, count * 250'000) << "the schedules do nothing";
  EXPECT_GT(outcome.killed, static_cast<int>(count / 2));
  EXPECT_GT(outcome.restarts, static_cast<int>(count));
  EXPECT_GT(outcome.lost_answers, static_cast<int>(count / 4));
  EXPECT_GT(outcome.given_up, static_cast<int>(count / 4));
}

}  // namespace
}  // namespace ferry::pipe
