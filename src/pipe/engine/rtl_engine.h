#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "pipe/engine/engine.h"
#include "pipe/engine/pd_stack_model.h"

namespace ferry::pipe {

// PD Stack under Verilator. Its clock goes on only in reap(), in the thread that calls, so that a run is the
// same each time; so there is no descriptor to wait for. Each submit() fills the next of `queues` command queues.
class RtlEngine : public Engine {
 public:
  struct Settings {
    PdStackModel::Settings model;
    unsigned queues = PdStackModel::kQueues;
    // How long a reap() waits for what is not done yet; 0: until it is.
    unsigned cycles_per_reap = 0;
  };

  explicit RtlEngine(const Settings& settings);
  RtlEngine() : RtlEngine(Settings{}) {}
  ~RtlEngine() override;

  const char* name() const override { return "rtl"; }
  std::uint32_t longest() const override { return 4096; }
  std::size_t submit(std::span<const Entry> entries) override;
  std::size_t reap(std::span<Entry> done) override;
  int descriptor() const override { return -1; }

  bool is_idle() const;
  std::uint64_t cycles() const;
  // Lets so many pass.
  void wait(std::uint64_t cycles);

 private:
  // Command queues, which PD Stack reads and writes.
  struct Memory;
  // Entries since the beginning.
  struct Pointers {
    std::uint64_t submitted = 0, completed = 0;
  };

  void step();
  void take_completions(unsigned queue);

  const Settings settings_;
  mutable std::mutex mutex_;
  PdStackModel model_;
  const std::unique_ptr<Memory> memory_;
  std::vector<Pointers> pointers_;
  unsigned next_queue_ = 0;
  std::size_t under_way_ = 0;
  std::vector<Entry> done_;
};

}  // namespace ferry::pipe
