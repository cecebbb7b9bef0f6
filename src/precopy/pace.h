#pragma once

#include <chrono>
#include <cstdint>

// Decides how long a thread that copies the memory of a running program waits after each piece, so that the programs
// of a busy host keep their processors. No I/O, no clock.
namespace ferry::precopy {

struct PaceSettings {
  // What copying may take where no processor is free: this share of one processor, and twice as much after each
  // `doubles`, so that a copy ends however large the memory is.
  double floor = 0.15;
  std::chrono::nanoseconds doubles{std::chrono::seconds(30)};
  double rate = 0;  // bytes a second, at most; 0: no limit
};

class Pace {
 public:
  // Since the copy began.
  struct Used {
    std::chrono::nanoseconds time{0};
    std::chrono::nanoseconds processor{0};  // of the thread that copies
    std::chrono::nanoseconds idle{0};       // of all processors of the host that the thread may use
    std::uint64_t bytes = 0;
    unsigned sharers = 1;  // threads, this one too, that share the floor and the rate now
  };

  explicit Pace(const PaceSettings& settings)
      : settings_(settings), floor_(settings.floor), share_(settings.floor) {}

  // How long to wait before the next piece.
  std::chrono::nanoseconds after(const Used& used);
  // The thread would copy faster if the floor were higher.
  bool is_slow() const { return floor() < 1 && is_slow_; }

  // Copying may take twice as much from now on.
  void raise() { floor_ *= 2; }
  void set_floor(double share) { floor_ = share; }
  double floor() const;  // of this thread, now; 1 at most

 private:
  void look(const Used& used);

  const PaceSettings settings_;
  double floor_, share_;  // share_: of one processor, now
  bool is_slow_ = false;
  Used looked_, last_;
  std::chrono::nanoseconds due_{0};  // when the next piece may begin
};

}  // namespace ferry::precopy
