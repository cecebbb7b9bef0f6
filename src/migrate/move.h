#pragma once

#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ferry.pb.h"
#include "migrate/decision.h"
#include "migrate/host.h"
#include "migrate/image_stream.h"
#include "migrate/peer.h"
#include "migrate/stopped_tree.h"
#include "migrate/unit.h"

// The source's side of one move (PROTOCOL.md, "A move decides once"). run() walks the steps; CRIU's
// plugin and action scripts call in from other threads while it waits for `criu dump`:
//
//   check, prepare ─ criu dump ┬ pause_tree()            stop
//                              ├ frozen()                control blocks
//                              ├ action("network-lock")  the container leaves its network
//                              └ action("post-dump")     transfer, restore, commit: all while the
//                              tree is frozen
//
// Any failure before the commit thaws the tree where it was.
namespace ferry::migrate {

class Move {
 public:
  // `user` asked for it: what is not its own when all is frozen does not move.
  Move(Host& host, Unit unit, const std::string& to, std::uint64_t move_id, uid_t user);
  // Waits for what goes on behind run().
  ~Move();

  std::uint64_t move_id() const { return move_id_; }
  const Unit& unit() const { return unit_; }
  const std::string& to() const { return peer_.name(); }

  // Throws Failure: the program goes on where it was.
  v1::MoveReport run(const std::function<void(const std::string&)>& progress);

  // From the control server.
  void pause_tree();  // throws Failure
  void frozen();      // throws Failure
  void dump_failed();
  int action(const std::string& name);
  std::optional<agent::Resume> wake(pid_t inner_pid);
  void resumed(pid_t inner_pid);
  bool has_process(pid_t pid) const { return tree_.has_process(pid); }

  // No decision is known yet.
  bool undecided() const;
  // The source has committed and cannot reach the destination.
  bool in_doubt() const;
  // An operator's word on a move in doubt: the destination will not go on. Throws Failure.
  void resolve_abort();
  // For a destination that asks.
  Answer answer() const;
  // True when nobody needs this object any more.
  bool is_over() const;

 private:
  using Clock = std::chrono::steady_clock;

  void check();
  void check_peers(std::vector<agent::ContextStatus> contexts);
  std::vector<agent::ContextStatus> contexts() const;
  void prepare();
  int transfer_and_commit();
  int commit();
  void depart(const std::vector<NewPlace>& places);
  void roll_back();
  void kill_rest();
  void watch();
  void handle(const v1::WatchEvent& event);
  v1::MoveReport finish();
  std::vector<ImageFile> files() const;

  Host& host_;
  const Unit unit_;
  const std::uint64_t move_id_;
  const uid_t user_;
  Peer peer_;
  std::string host_there_;         // its name
  std::shared_ptr<void> network_;  // of the container: released when nobody has it any more
  StoppedTree tree_;
  const std::string images_;
  std::function<void(const std::string&)> progress_;
  std::optional<ImageSender> sender_;
  bool is_prepared_ = false;
  std::future<std::vector<NewPlace>> places_;
  std::vector<UniqueFd> pidfds_;  // of the whole tree, at the stop

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;
  SourceDecision decision_;
  bool left_network_ = false, in_doubt_ = false, over_ = false;
  Clock::time_point stopped_, dumped_, transferred_, restored_, committed_at_, resumed_, last_news_;
  ImageTotals image_;
  bool is_resumed_ = false, heard_peers_ = false;
  std::string failed_there_;
  std::uint64_t rdma_ns_there_ = 0, retransmitted_ = 0;
  std::uint32_t remaining_ = 0;
  std::thread watcher_;
};

}  // namespace ferry::migrate
