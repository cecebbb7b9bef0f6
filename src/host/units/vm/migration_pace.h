#pragma once

#include <chrono>
#include <cstdint>

namespace ferry::host {

// When QEMU has copied enough of the memory of a machine that runs.
//
// QEMU ends its copying by itself, and stops the machine, as soon as what is left can be sent within its downtime
// limit. But before the machine stops, its programs have to leave their RDMA devices, and its NICs have to go. QEMU has
// no command that makes it wait for that. So it gets next to no bandwidth from the time when it has copied enough until
// they have gone: with a downtime limit of 1 ms it begins another round then, as long as the machine has written to one
// page in the last tenth of a second. That time comes
//
//   - shortly before the end of the first pass over all memory, if what the machine has written meanwhile, by the rate
//     that QEMU has measured before, can be sent in the time that is wanted;
//   - else at the beginning of the first round that can; or that is hardly shorter than the one before: the machine
//     writes too fast then for more rounds to be of use.
class MigrationPace {
 public:
  using Time = std::chrono::nanoseconds;
  struct Sample {
    Time at{};               // by any clock
    std::uint64_t left = 0;  // bytes that this round has not sent yet
    unsigned round = 0;      // dirty-sync-count: 1 in the first pass
    double rate = 0;         // bytes a second that were sent lately
  };
  // Bytes a second at which QEMU sends a page, and then waits for the next tenth of a second.
  static constexpr std::uint64_t kHold = 40 << 10;
  static constexpr unsigned kMostRounds = 8;

  // `wanted_ms`: how long sending what is left may take in the end. `write_rate`: bytes a second.
  MigrationPace(double wanted_ms, double write_rate)
      : wanted_ms_(wanted_ms), write_rate_(write_rate) {}

  // True when QEMU is to be held back from now on.
  bool next(const Sample& sample);
  // How long sending what is left would take, and what the machine has written since the last round began.
  double left_ms() const;

 private:
  double ms_for(double bytes) const;

  const double wanted_ms_, write_rate_;
  double best_rate_ = 0;
  double fall_rate_ =
      0;  // the most bytes a second by which what is left has become less; empty pages cost nothing
  Time begun_{};  // this round
  Sample last_;
  std::uint64_t written_ = 0;  // bytes that were left when this round began
  bool is_ready_ = false;
};

}  // namespace ferry::host
