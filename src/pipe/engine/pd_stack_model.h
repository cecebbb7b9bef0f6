#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace ferry::pipe {

// PD Stack (pipe/rtl) and the host that it is plugged into, clock by clock: its DMA reads and writes the
// memory of this process, and memory that is gone is an error that it hears of. Between both is a model
// of PCIe. One thread at a time.
class PdStackModel {
 public:
  // As in pd_stack.sv.
  static constexpr unsigned kQueues = 16, kDepth = 1024;
  // Of MMIO; for each queue 8 bytes.
  static constexpr std::uint16_t kSubmissionBase = 0, kCompletionBase = 8, kSubmissionTail = 0x1000,
                                 kCompletionHead = 0x2000;

  // Cycles are of 4 ns: 250 MHz.
  struct Settings {
    // PCIe 3.0 x16: 8 GT/s, 16 lanes, 128 of 130 bits; of each direction, in a cycle.
    double link_bytes = 8.0 * 16 * 128 / 130 / 8 * 4;
    unsigned one_way = 50;        // from one side to the other
    unsigned memory_access = 50;  // of a read, in the host
    // What a test wants worse.
    std::uint32_t seed = 1;
    unsigned stalls = 0;    // of 100 cycles, those in which a stream is held up
    unsigned jitter = 0;    // up to so many cycles more for each request, so that they overtake
    bool shuffled = false;  // beats of different requests mixed
  };

  explicit PdStackModel(const Settings& settings);
  ~PdStackModel();

  // The processor writes to a register: it arrives later.
  void write_register(std::uint16_t address, std::uint64_t value);
  // One clock.
  void step();
  // The queue of an interrupt that has arrived.
  std::optional<unsigned> take_interrupt();
  std::uint64_t cycles() const;
  // It could not read or write a command queue.
  bool is_faulty() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ferry::pipe
