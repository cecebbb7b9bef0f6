// One run: agrees with the peer on what to do, drives all streams, agrees on the end, compares.
//
// The end: whoever decides it (the client's time, a signal on either side, a failed request) sends
// kStop; both then post no more payload. With a limit of messages no stop is needed. A side whose
// payload is acknowledged sends kDone with its counts; a side that has the peer's kDone and all
// that it promises, or waited 5 s for it in vain, sends kVerdict. After its own verdict a side
// looks at no completion any more: the peer may be gone.
//
// Apart (Options::apart) both know from the limit of messages what the other sends; each gives its
// own verdict, and stays until a signal ends it: the peer's last requests may be under way.
#pragma once

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clock.h"
#include "device.h"
#include "gaps.h"
#include "idle_qps.h"
#include "options.h"
#include "series.h"
#include "side_channel.h"
#include "stream.h"

namespace stream_check {

struct Outcome {
  std::string ended_by;   // "time", "messages", "signal", "peer", "error"
  bool compared = false;  // both verdicts are known; apart: this side's, of all that the peer sends
  // Indexed by Op, over all QPs. `here`: what this side found in the peer's messages (for kRead: in
  // its own READs); `there`: what the peer found, with the same meaning seen from there.
  std::array<uint64_t, kOps> sent{};
  std::array<Counts, kOps> here{};
  std::array<Counts, kOps> there{};
  uint64_t completions = 0;
  uint64_t bytes_sent = 0;
  double seconds = 0;            // from the first post to the stop
  uint64_t pages_corrupted = 0;  // of --memory
};

class Session {
 public:
  // `signals`: how many termination signals have come.
  Session(const Options& options, const volatile std::sig_atomic_t* signals);

  // Exchanges addresses and connects all QPs. Throws Failure.
  void set_up();
  Outcome run();
  // After the report. Apart: returns when a signal has come.
  void stay() const;

  const Options& options() const { return options_; }  // as agreed
  const Device& device() const { return *device_; }
  uint32_t mtu() const { return mtu_; }
  const Gaps& gaps() const { return gaps_; }
  const FaultLog& message_faults() const { return message_faults_; }
  const RequestFaults& request_faults() const { return request_faults_; }

 private:
  void agree();
  uint64_t budget() const;  // messages that each stream may have sent by now
  void rest();
  size_t poll_completions();
  void wait_for_event();
  void housekeeping(int64_t now_ns);
  void handle(const Record& record);
  void look_at_async_events();
  void look_at_idle_qps();
  void stop(const char* reason);
  void call_error(const std::string& text);
  bool all_done() const;
  bool all_complete() const;
  void send_done();
  void send_verdict();
  void judge();
  void print_progress();

  Options options_;
  const volatile std::sig_atomic_t* signals_;
  // Above the device and the streams, which refer to them.
  FaultLog message_faults_;
  RequestFaults request_faults_;
  Gaps gaps_;
  std::optional<Series> series_;
  std::optional<SideChannel> peer_;
  std::optional<Device> device_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::optional<IdleQps> idle_;  // nothing: there are none
  uint32_t session_ = 0;
  uint32_t mtu_ = 0;

  RunningTime time_;
  double stopped_at_ = 0;
  double last_completion_at_ = 0;
  double peer_done_at_ = 0;
  double armed_at_ = 0;
  bool armed_ = false;
  bool stopping_ = false;
  bool done_sent_ = false;
  bool verdict_sent_ = false;
  std::vector<std::array<uint64_t, kOps>> peer_sent_;  // empty before the peer's kDone
  Outcome outcome_;

  double next_progress_ = 1;
  uint64_t progress_completions_ = 0;
  uint64_t progress_bytes_ = 0;
  uint64_t bytes_seen_ = 0;
};

}  // namespace stream_check
