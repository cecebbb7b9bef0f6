#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "host/custody/custody.h"
#include "host/image/image_stream.h"
#include "host/journal/decision_log.h"
#include "host/move/standstill.h"
#include "host/peers/messages.h"
#include "host/peers/peer.h"
#include "host/peers/this_host.h"
#include "host/units/podman/podman.h"

// The source's side of the move of a container of podman. podman makes the checkpoint and restores
// it, and the restored processes run at once. So it is not a record on each side that decides, but
// the keeper of the checkpoint (custody.h), which is this host:
//
//   check, prepare ─ podman container checkpoint ─ archive ► as it is written ─► the destination
//   not claimed there ──► called back: it is restored here
//   claimed there ──────► it may run there: called back, and restored here when the destination, or
//                         an operator, says that nothing of it is left there
//   taken there ────────► podman removes it here
//
// A ferryd that is started again finds the same in its journal (Journal::podman), except for the
// claim: it always asks.
namespace ferry::host {

class PodmanMove {
 public:
  using Progress = std::function<void(const v1::MoveProgress& progress)>;

  // Throws Failure when `to` is no host.
  PodmanMove(const ThisHost& host, ControlServer& control, DecisionLog& decisions, Custody& custody,
             const Podman& podman, PodmanContainer container, const std::string& to);
  // A move of a former ferryd: ends it, in a thread of its own.
  PodmanMove(const ThisHost& host, ControlServer& control, DecisionLog& decisions, Custody& custody,
             const Podman& podman, std::uint64_t move_id, const Journal::Entry& entry);
  // ThisHost::stopping is set before, or the move is over.
  ~PodmanMove();

  // Carries out the whole move. Throws Failure: then the container runs here, or the message says
  // what became of it.
  v1::GroupReport run(bool force, const Progress& progress);

  std::uint64_t move_id() const { return move_id_; }
  const std::string& name() const { return container_.name; }
  const std::string& id() const { return container_.id; }
  pid_t root() const { return container_.pid; }
  const std::string& to() const { return peer_.name(); }

  // The answer for a destination that asks.
  Answer answer() const;
  // The checkpoint is called back, and the destination has not said yet that it has nothing of it.
  bool in_doubt() const;
  // An operator says that nothing of the container is left at the destination.
  void resolve_abort();
  bool is_over() const;

 private:
  using Clock = std::chrono::steady_clock;

  void tell(const std::string& phase);
  void check(bool force);
  v1::PodmanContainer described() const;
  void prepare();
  void checkpoint();
  void stream(std::future<std::string>& podman);
  void restore_there();
  std::uint64_t await_word();
  void bring_back();
  void await_destination();
  void await_podman() const;
  void settle();
  std::string restore_here();
  void remove_here();
  void clear_up();
  bool is_taken() const;
  v1::GroupReport report() const;

  const ThisHost& host_;
  ControlServer& control_;
  DecisionLog& decisions_;
  Custody& custody_;
  const Podman& podman_;
  PodmanContainer container_;
  const std::uint64_t move_id_;
  Peer peer_;
  const std::string fifo_;
  const bool of_former_;
  Progress progress_;
  std::string host_there_;  // the destination's name
  std::optional<ImageSender> sender_;
  bool is_prepared_ = false, stopped_it_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool taken_ = false, in_doubt_ = false, resolved_ = false, over_ = false;
  StoppedTree::Timing timing_;
  Standstill standstill_;
  Clock::time_point stopped_, dumped_, transferred_, restored_, resumed_;
  std::uint64_t rdma_ns_there_ = 0;
  ImageTotals image_;
  std::thread settler_;
};

}  // namespace ferry::host
