#include "pipe/engine/pd_stack_model.h"

#include <Vpd_stack.h>
#include <verilated.h>

#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <utility>

#include "pipe/engine/guarded_copy.h"
#include "pipe/engine/pcie_link.h"

namespace ferry::pipe {
namespace {

constexpr unsigned kBeat = 64;
constexpr unsigned kLargestPayload = 256;  // of a packet
constexpr double kSendBuffer = 4;          // cycles of the link that packets may wait

struct Read {
  std::uint64_t address;
  unsigned length, tag;
  unsigned sent = 0;  // bytes
  bool is_fetched = false, failed = false;
  // As aligned as it is in memory.
  std::array<std::byte, 512 + kBeat> data{};
};

struct Write {
  std::uint64_t address = 0;
  unsigned tag = 0, length = 0;
  std::array<std::byte, kLargestPayload> data{};
};

struct RegisterWrite {
  std::uint16_t address;
  std::uint64_t value;
};

struct Response {
  unsigned tag;
  bool failed;
};

template <typename T>
using ByTime = std::multimap<std::uint64_t, T>;

// Takes the earliest if its time has come.
template <typename T>
std::optional<T> take_due(ByTime<T>& what, std::uint64_t now) {
  if (what.empty() || what.begin()->first > now) return std::nullopt;
  return std::move(what.extract(what.begin()).mapped());
}

}  // namespace

struct PdStackModel::State {
  explicit State(const Settings& with)
      : settings(with), random(with.seed), up(with.link_bytes), down(with.link_bytes) {
    context.randReset(2);  // registers without a reset have any value
    context.randSeed(1 + static_cast<int>(with.seed % 1'000'000));  // 0: from the clock
    stack = std::make_unique<Vpd_stack>(&context);
    stack->mmio_valid = stack->read_data_valid = stack->write_response_valid = 0;
    stack->reset = 1;
    for (int cycle = 0; cycle < 4; ++cycle) clock();
    stack->reset = 0;
    do clock();
    while (!stack->ready);
  }
  ~State() {
    stack->final();
    // Verilator's scopes take themselves out of the context that the thread has last had.
    Verilated::threadContextp(&context);
  }

  void settle() {
    stack->clk = 0;
    stack->eval();
  }
  void rise() {
    stack->clk = 1;
    stack->eval();
    ++now;
    context.time(now);
  }
  void clock() {
    settle();
    rise();
  }

  bool is_held_up() { return settings.stalls != 0 && random() % 100 < settings.stalls; }
  std::uint64_t later() { return settings.jitter == 0 ? 0 : random() % settings.jitter; }

  void offer_registers();
  void offer_data();
  void offer_response();
  void take_requests();
  void write_memory();

  const Settings settings;
  std::minstd_rand random;
  VerilatedContext context;
  std::unique_ptr<Vpd_stack> stack;
  std::uint64_t now = 0;
  PcieLink up, down;

  ByTime<RegisterWrite> registers;
  ByTime<Read> reads;    // on their way through the host
  std::deque<Read> due;  // whose data goes to the device; of the first one is shown
  bool data_shown = false;
  Write gathered;  // of which not all beats have come
  ByTime<Write> writes;
  ByTime<Response> responses;
  std::optional<Response> response_shown;
  ByTime<unsigned> interrupts;
};

void PdStackModel::State::offer_registers() {
  const auto write = take_due(registers, now);
  stack->mmio_valid = write.has_value();
  if (!write) return;
  stack->mmio_address = write->address;
  stack->mmio_data = write->value;
}

void PdStackModel::State::offer_data() {
  while (auto read = take_due(reads, now)) due.push_back(*std::move(read));
  if (data_shown) return;
  stack->read_data_valid = 0;
  if (due.empty() || is_held_up() || !down.is_free(now, 1)) return;
  if (settings.shuffled) std::swap(due.front(), due[random() % due.size()]);
  Read& read = due.front();
  const unsigned first = read.address % kBeat;
  if (!std::exchange(read.is_fetched, true)) {
    read.failed = !guarded_copy(read.data.data() + first,
                                reinterpret_cast<const void*>(read.address), read.length);
  }
  const unsigned at = read.sent == 0 ? 0 : first + read.sent;  // a multiple of a beat
  const unsigned length = std::min(read.length - read.sent, kBeat - (at == 0 ? first : 0));
  const bool starts_packet = read.sent == 0 || (read.address + read.sent) % kLargestPayload == 0;
  down.send(now, (starts_packet ? PcieLink::kCompletionHeader : 0) + (read.failed ? 0 : length));
  if (starts_packet) up.send(now, PcieLink::kDllpPart);
  read.sent += length;
  std::memcpy(&stack->read_data_beat, read.data.data() + at, kBeat);
  stack->read_data_valid = 1;
  stack->read_data_tag = static_cast<CData>(read.tag);
  stack->read_data_error = read.failed;
  stack->read_data_last = read.failed || read.sent == read.length;
  data_shown = true;
}

void PdStackModel::State::offer_response() {
  if (!response_shown && !is_held_up()) response_shown = take_due(responses, now);
  stack->write_response_valid = response_shown.has_value();
  if (!response_shown) return;
  stack->write_response_tag = static_cast<CData>(response_shown->tag);
  stack->write_response_error = response_shown->failed;
}

// What passes in this cycle, after the combinational logic has settled.
void PdStackModel::State::take_requests() {
  if (stack->read_data_valid && stack->read_data_ready) {
    data_shown = false;
    if (stack->read_data_last) due.pop_front();
  }
  if (stack->write_response_valid && stack->write_response_ready) response_shown.reset();
  if (stack->read_request_valid && stack->read_request_ready) {
    down.send(now, PcieLink::kDllpPart);
    const std::uint64_t sent = up.send(now, PcieLink::kRequestHeader);
    Read read{stack->read_request_address, stack->read_request_length, stack->read_request_tag};
    reads.emplace(sent + 2 * settings.one_way + settings.memory_access + later(), read);
  }
  if (stack->write_request_valid && stack->write_request_ready) {
    const std::uint64_t keep = stack->write_request_keep;
    const auto first = static_cast<unsigned>(std::countr_zero(keep));
    const auto length = static_cast<unsigned>(std::popcount(keep));
    const bool starts_packet = gathered.length == 0;
    if (starts_packet) gathered.address = stack->write_request_address + first;
    std::memcpy(gathered.data.data() + gathered.length,
                reinterpret_cast<const std::byte*>(&stack->write_request_data) + first, length);
    gathered.length += length;
    gathered.tag = stack->write_request_tag;
    const std::uint64_t sent =
        up.send(now, (starts_packet ? PcieLink::kRequestHeader : 0) + length);
    if (stack->write_request_last) {
      down.send(now, PcieLink::kDllpPart);
      writes.emplace(sent + settings.one_way + later(), std::exchange(gathered, {}));
    }
  }
  if (stack->msi_valid && stack->msi_ready) {
    down.send(now, PcieLink::kDllpPart);
    const std::uint64_t sent = up.send(now, PcieLink::kRequestHeader + 4);
    interrupts.emplace(sent + settings.one_way + later(), stack->msi_queue);
  }
}

void PdStackModel::State::write_memory() {
  while (const auto write = take_due(writes, now)) {
    const bool written =
        guarded_copy(reinterpret_cast<void*>(write->address), write->data.data(), write->length);
    responses.emplace(now + later(), Response{write->tag, !written});
  }
}

PdStackModel::PdStackModel(const Settings& settings) {
  guard_copies();
  state_ = std::make_unique<State>(settings);
}

PdStackModel::~PdStackModel() = default;

void PdStackModel::write_register(std::uint16_t address, std::uint64_t value) {
  State& state = *state_;
  const std::uint64_t sent = state.down.send(state.now, PcieLink::kRequestHeader + 8);
  state.registers.emplace(sent + state.settings.one_way, RegisterWrite{address, value});
}

void PdStackModel::step() {
  State& state = *state_;
  state.write_memory();
  state.offer_registers();
  state.offer_data();
  state.offer_response();
  const bool room = state.up.is_free(state.now, kSendBuffer);
  state.stack->read_request_ready = room && !state.is_held_up();
  state.stack->write_request_ready = room && !state.is_held_up();
  state.stack->msi_ready = room && !state.is_held_up();
  state.settle();
  state.take_requests();
  state.rise();
}

std::optional<unsigned> PdStackModel::take_interrupt() {
  return take_due(state_->interrupts, state_->now);
}

std::uint64_t PdStackModel::cycles() const {
  return state_->now;
}

bool PdStackModel::is_faulty() const {
  return state_->stack->fault;
}

}  // namespace ferry::pipe
