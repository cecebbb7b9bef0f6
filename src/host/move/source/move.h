#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "host/history/accounts.h"
#include "host/image/copy_ahead.h"
#include "host/image/copy_limits.h"
#include "host/image/copy_rootfs.h"
#include "host/image/image_stream.h"
#include "host/move/source/group/cut.h"
#include "host/move/source/group/move_group.h"
#include "host/move/source/group/others.h"
#include "host/move/source/kernel/partners.h"
#include "host/move/source/report.h"
#include "host/move/source/source_side.h"
#include "host/move/standstill.h"
#include "host/move/under_way.h"
#include "host/peers/messages.h"
#include "host/peers/peer.h"
#include "host/standin/network_rules.h"
#include "host/standin/standard_peers.h"
#include "host/standin/stopped_tree.h"
#include "host/timeline/timeline.h"
#include "host/timeline/timeline_message.h"
#include "host/units/dump_turn.h"
#include "host/units/stdio_file.h"
#include "host/units/unit.h"
#include "precopy/page_keeper.h"

// The source's side of the move of one program (docs/protocol.md, "A move decides once"): carries
// out the actions that the group's MoveMachine gives for it. CRIU's plugin and action scripts call
// in from other threads while run() waits for `criu dump`:
//
//   check, prepare, copy ahead ─ criu dump ┬ pause_tree()            stop
//                                          ├ frozen()                control blocks; what was
//                                          │                         written since it was copied
//                                          ├ action("network-lock")  the container leaves its
//                                          │                         network, but for the stand-in,
//                                          │                         where its address moves along
//                                          └ action("post-dump")     transfer, restore, commit: all
//                                                                    while the tree is frozen
//
// Any failure of any program of the group before the commit thaws the tree where it was.
namespace ferry::host {

// What the user wants of a move.
struct MoveOptions {
  enum class Ahead : std::uint8_t {
    kBySize,  // copy ahead if the program is large enough for that to pay
    kAlways,
    kNever,
  };
  bool force = false;  // move also if a standard peer may give up meanwhile
  Ahead copy_ahead = Ahead::kBySize;
  CopyLimits limits;
  std::string kind;  // UnitKind::kind() of the units that are meant; empty: all kinds
  std::vector<std::string> to_devices;  // wanted_devices.h
  Extras extras;
  bool timeline = false;         // the report has one
  std::shared_ptr<Cut> cut;      // in place of a move: the programs are dumped for a checkpoint
  std::optional<Others> others;  // programs of other hosts, which move with these
};

class Move : public UnderWay {
 public:
  using Clock = std::chrono::steady_clock;
  // Not called any more once run() has ended.
  using Progress = std::function<void(const v1::MoveProgress& progress)>;
  // How the move ended, for the report of the group.
  struct Outcome {
    std::shared_ptr<const v1::MoveReport> report;
    Clock::time_point stopped, resumed;
  };

  // Moves the group's program with this index. `user` asked for it: a program that is not this
  // user's when all is frozen does not move.
  Move(const SourceSide& side, std::shared_ptr<MoveGroup> group, std::size_t program, uid_t user,
       const MoveOptions& options);
  // Waits for the thread that goes on after run().
  ~Move() override;

  std::uint64_t move_id() const { return program_.move_id; }
  const Unit& unit() const { return unit_; }
  MoveGroup& group() const { return *group_; }

  // Looks whether the program could move, and changes nothing; in place of run(). Throws Failure when
  // it could not.
  v1::MovePlan plan();
  // What all programs of the group, of all hosts, need there.
  Weight weight() const;
  // Does everything from the check until the peers know, or until the program is back. A failure is
  // told to the group, and then the program runs here when this ends. Throws Failure for a program
  // that moved and does not go on.
  void run(const Progress& progress);
  // When committed; after a checkpoint, and then without a report.
  const Outcome& outcome() const { return outcome_; }
  // When committed: what was done, here and there. Empty unless the options ask for it.
  const TimelineMessage& timeline() const { return told_timeline_; }
  // These two are for the history. tell_end(): how run() has ended: it has thrown `failure`, or
  // nothing if that is empty.
  void tell_begin() const;
  void tell_end(const std::string& failure) const;

  // The user gives the move up. False: it is too late.
  bool give_up() { return !(options_.cut && options_.cut->is_full()) && group_->give_up(index_); }

  // Called by the control server.
  // Gives the note for the image (host/image/checkpoint_note.h), which may be empty. Throws Failure.
  std::string pause_tree();
  void frozen();  // throws Failure
  void dump_failed();
  int action(const std::string& name, pid_t root) override;
  std::optional<ResumeSlots> wake(pid_t inner_pid) override;
  void resumed(pid_t inner_pid, const agent::Resumed& resumed) override;
  bool has_process(pid_t pid) const override { return tree_.has_process(pid); }
  bool is_checkpointed() const override { return unit_.is_checkpointed(); }
  void need_restorable() const override;
  int restored(pid_t pid) override;

  // True when nobody needs this object any more.
  bool is_over() const;

 private:
  static constexpr char kRootfsLog[] = "rootfs.out";
  static constexpr char kStepLane[] = "steps";  // of the timeline
  static constexpr char kPostDump[] = "post-dump";

  void tell(const std::string& phase, const CopyAhead::Progress* ahead = nullptr);
  void tell_rootfs(std::uint64_t bytes);
  void tell(v1::MoveProgress progress, const std::string& phase);
  bool copies_ahead(std::uint64_t bytes) const;
  void in_group(const std::function<void()>& step);
  Clock::duration attempt(MoveMachine::Event event, const std::function<void()>& step);
  void check_here_and_there();
  std::vector<agent::ContextStatus> check_peers(const Waiting& expected);
  void await_peers();
  void make_folder() const;
  void prepare_there();
  void copy_rootfs();
  void copy_memory();
  void copy_by_itself();
  precopy::PageSink& memory_sink();
  void need_go_on() const;
  void dump();
  // Which pages CRIU does not see (criu/left_out.cc).
  std::string left_out_folder() const { return images_ + "/left-out"; }
  void begin_copy_ahead();
  CopyLimits copy_limits() const;
  std::string run_criu();
  void give_up_standstill();
  bool is_given_up() const;
  class AtWork;
  class BreaksOff;
  void await_work();
  std::vector<pid_t> pids() const;
  void note_held(const std::vector<HeldProcess>& processes);
  void stop_rdma();
  void leave_out();
  void leave_network();
  int after_dump();
  int go_on();
  int join_cut();
  bool is_cut() const { return options_.cut && options_.cut->is_taken(); }
  void transfer();
  void restore();
  void take_places(std::vector<ProcessSlots> places);
  void leave();
  void depart();
  void end_here();
  void await_end() const;
  void roll_back();
  void await_return();
  void kill_rest();
  void end_dump_turn();
  void watch();
  void handle(const v1::WatchEvent& event);
  void finish();
  v1::MoveReport report() const;
  void add_before_stop(v1::MoveReport* report) const;
  void tell_timeline();
  std::vector<ImageFile> files() const;

  const SourceSide& side_;
  const ThisHost& host_;
  const std::shared_ptr<MoveGroup> group_;
  const std::size_t index_;
  const MoveGroup::Program& program_;
  const Unit& unit_;
  const std::uint64_t move_id_;
  const uid_t user_;
  const MoveOptions options_;
  Partners partners_;
  std::vector<ContextSlots> kept_;    // its slots that standard peers know
  std::vector<OuterStream> streams_;  // the streams that --stdio replaces, as of the start of
                                      // the dump
  Peer& peer_;
  std::string host_there_;                           // the destination's name
  std::shared_ptr<const v1::CheckRequest> checked_;  // what a restart is to look for
  // Devices behind shadows that the program has, and those that the destination has chosen for it.
  std::map<std::string, std::string> chosen_devices_;
  std::shared_ptr<void> network_;  // the container's; released when nobody holds it any more
  StoppedTree tree_;
  const std::string images_;
  std::mutex progress_mutex_;
  Progress progress_;
  std::optional<ImageSender> sender_;  // from prepare_there() until CRIU has ended
  std::optional<CopyRootfs> rootfs_;   // as long as ahead_
  Clock::duration rootfs_time_{};
  std::uint64_t rootfs_ahead_ = 0, rootfs_last_ = 0;
  // For a checkpoint, in place of sender_: the memory that is copied ahead stays here.
  std::shared_ptr<precopy::PageStore> kept_memory_;
  std::map<std::int32_t, precopy::PageRanges> pages_left_out_;  // CRIU does not dump them
  std::optional<precopy::PageKeeper> keeper_;
  std::optional<CopyAhead> ahead_;  // from prepare_there() until the program has gone or goes on
  Clock::duration ahead_time_{};
  unsigned ahead_rounds_ = 0;
  std::uint64_t ahead_bytes_ = 0, last_bytes_ = 0;
  bool is_prepared_ = false;
  std::size_t qps_ = 0, standard_peers_ = 0;  // as of the check
  DumpTurns::Turn dump_turn_;                 // with mutex_; from the freeze to the end of the dump
  Timeline timeline_;                         // before what has threads that tell it
  std::future<std::vector<ProcessSlots>> places_;
  std::vector<ProcessSlots> there_;             // the result of places_
  std::vector<UniqueFd> pidfds_;                // of the whole tree, as of the stop
  std::optional<NetworkRules> lock_exception_;  // while its runtime's CRIU dumps it
  BeforeStop before_stop_;
  TimelineMessage timeline_there_, told_timeline_;
  std::string not_back_;  // why it does not go on here, after the abort
  bool is_late_ = false;  // after the abort: not all of its processes go on yet

  std::atomic<pid_t> criu_{0};  // set when CRIU starts
  Standstill standstill_;       // begins before CRIU starts

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  unsigned at_work_ = 0;                   // calls of CRIU's plugin and action scripts that have
                                           // not ended
  std::atomic<bool> left_network_{false};  // threads of CRIU's scripts change it
  std::future<void> leaving_;              // leave_network(), from the freeze to network-lock
  std::future<void> sending_;              // the memory that was written last, while CRIU dumps
  Clock::time_point stopped_, dumped_, transferred_, restored_, committed_at_, resumed_, last_news_;
  ImageTotals image_;
  bool is_resumed_ = false, heard_peers_ = false;
  std::string failed_there_;
  std::uint64_t rdma_ns_there_ = 0, retransmitted_ = 0;
  std::vector<Unit::InnerProgram> inner_programs_;
  std::uint32_t remaining_ = 0;
  Outcome outcome_;
  std::thread watcher_;
};

}  // namespace ferry::host
