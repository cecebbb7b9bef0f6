// One thread with a CQ and a QP of its own, which steps two counters of a peer by atomics.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device.h"
#include "side_channel.h"
#include "steps.h"

namespace atomic_check {

// What remote QPs step: `adds` by FETCH_ADD, `swaps` by COMPARE_SWAP.
struct Counters {
  uint64_t adds = 0;
  uint64_t swaps = 0;
};

class Worker {
 public:
  // `events`: sleeps in ibv_get_cq_event. Throws stream_check::Failure.
  Worker(stream_check::Device* device, bool events);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  uint32_t qpn() const { return qp_->qp_num; }
  // Brings the QP to RTS, connected to a QP of `peer`; PSNs begin at the QPNs.
  void connect(const stream_check::Endpoint& local, const stream_check::Endpoint& peer,
               uint32_t peer_qpn);

  // Steps the counters at `address` `rate` times a second, for `seconds` or until stop().
  void start(uint64_t address, uint32_t rkey, uint32_t rate, uint32_t seconds);
  void stop() { stopped_ = true; }
  bool running() const { return running_; }

  // The rest only when it no longer runs.
  const Found& added() const { return added_; }
  const Found& swapped() const { return swapped_; }
  // What failed first, in words; empty: nothing.
  const std::string& error() const { return error_; }

 private:
  void modify(ibv_qp_attr attributes, int mask, const char* what);
  void run(uint64_t address, uint32_t rkey, uint32_t rate, uint32_t seconds);
  void post(uint64_t address, uint32_t rkey);
  void take_completions(bool wait);
  void wait_for_event();
  void take(const ibv_wc& wc);
  void fail(const std::string& text);

  stream_check::Device& device_;
  uint32_t depth_;
  std::unique_ptr<uint64_t[]> results_;  // depth_ of them
  std::unique_ptr<ibv_comp_channel, stream_check::Destroyer<ibv_destroy_comp_channel>> channel_;
  std::unique_ptr<ibv_cq, stream_check::Destroyer<ibv_destroy_cq>> cq_;
  std::unique_ptr<ibv_qp, stream_check::Destroyer<ibv_destroy_qp>> qp_;
  std::unique_ptr<ibv_mr, stream_check::Destroyer<ibv_dereg_mr>> mr_;
  std::vector<uint64_t> compared_;  // by slot: what a COMPARE_SWAP expected
  uint64_t posted_ = 0, completed_ = 0;
  uint64_t expected_ = 0;  // of the next COMPARE_SWAP
  Found added_, swapped_;
  std::string error_;
  std::atomic<bool> running_ = false;
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

}  // namespace atomic_check
