#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "host/checkpoint/attempt.h"
#include "host/checkpoint/step_bytes.h"
#include "host/checkpoint/take/content_keys.h"
#include "host/checkpoint/wait/restarted.h"
#include "host/control/control_server.h"
#include "host/custody/custody.h"
#include "host/history/history.h"
#include "host/move/destination/arrivals.h"
#include "host/move/several/lead.h"
#include "host/move/source/departures.h"
#include "host/peers/messages.h"
#include "host/peers/this_host.h"

// What this host's ferryd has under way: moves that leave, moves that arrive, and checkpoints of
// somebody else's CRIU (a container runtime's). The daemon gives every message of the control protocol
// to the move or checkpoint that the message concerns.
namespace ferry::host {

class Attestor;
class Carrier;
class Detachment;
struct CutHost;
class Detachments;
class LocalMovePart;
class LocalPart;
class LocalRestart;
class MovedNames;
class Wait;
struct HostAnswer;

class Daemon : public ControlHandler {
 public:
  Daemon(ThisHost& host, const Units& units, ControlServer& control, StandInHost& stand_ins,
         DecisionLog& decisions, const ImageRoom& room, CriuRunner& criu, Directory& directory,
         Whereabouts& whereabouts, Departures& departures, Arrivals& arrivals, Custody& custody,
         Carrier& carrier, Attestor& attestor, MovedNames& moved_names, Accounts& accounts,
         const History& history, Detachments& detachments);
  ~Daemon() override;

  // Takes up what former ferryds of this host have left, by the journal. Until then requests wait (await_recovery())
  // that may concern a move, an arrival or a checkpoint of a former ferryd. These are served before: cancel() and ps();
  // letters() and moved_names(); pause_tree(), dump_failed(), registered(), datagram_qps() and locate(); and frozen()
  // for a program that this ferryd itself has stopped.
  void recover();

  // --- the ferry command, for `user`: root, or the owner of the program. Throw Failure.
  // Moves programs; several move as one: all, or none.
  v1::GroupReport move(uid_t user, const std::vector<std::string>& programs, const std::string& to,
                       const MoveOptions& options, const Move::Progress& progress);
  // Only looks whether the programs could move.
  v1::GroupPlan plan(uid_t user, const std::vector<std::string>& programs, const std::string& to,
                     const MoveOptions& options);
  // The same for programs of several hosts, or of a job.
  v1::GroupReport move_several(uid_t user, const v1::MoveRequest& request,
                               const Move::Progress& progress);
  v1::GroupPlan plan_several(uid_t user, const v1::MoveRequest& request);
  // Takes a checkpoint of programs, and restarts those of one. `tell`, `is_awaited`: as Attempt has them.
  v1::CheckpointReport checkpoint(uid_t user, const v1::CheckpointRequest& request,
                                  Progress::Tell tell, std::function<bool()> is_awaited);
  v1::RestartReport restart(uid_t user, const v1::RestartRequest& request, Progress::Tell tell,
                            std::function<bool()> is_awaited);
  // The same for a caller that is going to wait for the programs, by wait_for().
  v1::RestartedPrograms restart_to_wait(uid_t user, v1::RestartRequest request,
                                        std::function<bool()> is_awaited);
  std::unique_ptr<Wait> wait_for(uid_t user, const v1::RestartedPrograms& programs);
  const std::atomic<bool>& stopping() const { return host_.stopping; }
  // Gives up moves, checkpoints and restarts that are under way.
  void cancel(uid_t user, const v1::CancelRequest& request);
  // Of another user's programs ps() shows no more than /proc shows to everybody.
  v1::PsReply ps(uid_t user);
  // Moves of programs that `ferry ps` shows, or would have shown, to the user in full.
  v1::HistoryReply history(uid_t user, const v1::HistoryRequest& request);
  void resolve(uid_t user, std::uint64_t move_id, bool commit);
  // The programs that use a device of the kernel, which are to leave it for a while.
  std::shared_ptr<Detachment> detach(uid_t user, const std::string& device);

  // --- other ferryds; `from`: the name in the asking ferryd's certificate, empty with --insecure.
  // Only the source of a move may steer it. Throw Failure.
  // Adds to *reply the devices that were chosen.
  void check(const v1::CheckRequest& request, const std::string& from, v1::CheckReply* reply);
  std::shared_ptr<Arrival> prepare(const v1::PrepareRequest& request, const std::string& from);
  std::shared_ptr<Arrival> arrival_from(std::uint64_t move_id,
                                        const std::string& from);  // null: none
  Answer commit(std::uint64_t move_id, const std::string& from, std::string* reason);
  Answer abort(std::uint64_t move_id, const std::string& from);
  Answer decision(std::uint64_t move_id);  // as the source, for a destination that asks

  // The programs of this host for which a ferryd asks that looks for those of a checkpoint.
  v1::FindReply find(const v1::FindRequest& request);
  // For a move that the asking ferryd leads.
  std::unique_ptr<LocalMovePart> move_part(const v1::MovePartStep& look, Move::Progress progress);
  // For a checkpoint that the asking ferryd takes, or restarts.
  std::unique_ptr<LocalPart> cut_part(const std::vector<std::string>& programs, bool stop,
                                      TellBytes tell);
  std::unique_ptr<LocalRestart> restart_part(const v1::RestartStep& check, TellBytes tell);
  // For a ferryd that waits for programs, and may end them.
  v1::RestartedReply restarted(const v1::RestartedRequest& request);
  // Which of the programs of its facts runs here, as what_runs() says it; empty: none.
  std::string what_runs(const v1::RestartStep& look);

  // For checkpoints that are kept here. The asking ferryd's certificate has to agree with the
  // request's `host`.
  v1::ClaimReply claimed(const v1::ClaimRequest& request, const std::string& from);
  void unclaimed(const v1::UnclaimRequest& request, const std::string& from);
  void taken(const v1::TakeRequest& request, const std::string& from);

  v1::LettersReply letters(const v1::LettersRequest& request, const std::string& from);
  v1::MovedNamesReply moved_names(const v1::MovedNamesRequest& request, const std::string& from);

  // --- the control protocol
  agent::Done pause_tree(pid_t root) override;
  agent::Done frozen(pid_t pid) override;
  agent::Done dump_failed(pid_t pid) override;
  agent::Done claim(pid_t criu, const std::string& note) override;
  agent::Done restore_failed(pid_t criu, const std::string& note) override;
  agent::Done restored(const agent::Restored& process) override;
  agent::Done action(const agent::Action& action) override;
  WakeUp awake(pid_t pid, const agent::Awake& awake) override;
  void resumed(pid_t pid, const agent::Resumed& resumed) override;
  void peers_know(pid_t pid, const agent::PeersKnow& peers) override;
  void registered(pid_t pid) override;
  void datagram_qps(pid_t pid, const std::vector<device::DatagramQps>& contexts) override;
  void letters(pid_t pid, agent::Letters letters) override;
  void locate(pid_t pid, const agent::Locate& question) override;

 private:
  void need_same_version(const std::string& host, const std::string& version) const;
  std::vector<MoveGroup::Program> programs_to_move(uid_t user,
                                                   const std::vector<std::string>& programs,
                                                   const MoveOptions& options);
  void need_rdma(const std::vector<MoveGroup::Program>& programs) const;
  // Asks the host of this name, unless that is one by which this one is known.
  bool is_this_host(const std::string& name) const;
  // Where the programs of a move of several hosts are. Adds to *silent the hosts that have not answered.
  std::vector<HostAnswer> programs_of_hosts(const v1::MoveRequest& request,
                                            std::set<std::string>* silent);
  SeveralMove::Parts move_parts(uid_t user, const v1::MoveRequest& request,
                                const Move::Progress& progress, std::set<std::string>* silent);
  void check_restart(const v1::CheckRequest& request);
  CutHost cut_host_here(std::vector<std::string> programs);
  std::vector<CutHost> named_hosts(const v1::CheckpointRequest& request);
  // Those that are not named one by one. Adds to *silent the hosts that have not answered.
  std::vector<CutHost> found_hosts(const v1::CheckpointRequest& request,
                                   std::set<std::string>* silent);
  std::vector<MoveGroup::Program> programs_to_store(uid_t user,
                                                    const std::vector<std::string>& programs);
  std::vector<MoveGroup::Program> find_units(uid_t user, const std::vector<std::string>& programs,
                                             const MoveOptions& options);
  std::shared_ptr<Arrival> arrival(std::uint64_t move_id);     // null: none
  std::shared_ptr<UnderWay> under_way(std::uint64_t move_id);  // null: none
  std::shared_ptr<UnderWay> move_of_note(const std::string& note);
  bool is_of_move(pid_t pid, std::uint64_t move_id);
  WakeUp decide(pid_t pid, const agent::Awake& awake);
  agent::Done join_network_again(pid_t root);
  std::shared_ptr<FormerMove> former(std::uint64_t move_id);
  void recover(std::uint64_t move_id, Side side, const Journal::Entry& entry);
  void await_recovery();
  Answer answer_of_former(std::uint64_t move_id);
  void keep_house();

  ThisHost& host_;
  const Units& units_;
  ControlServer& control_;
  StandInHost& stand_ins_;
  DecisionLog& decisions_;
  const ImageRoom& room_;
  CriuRunner& criu_;
  Directory& directory_;
  Whereabouts& whereabouts_;
  Departures& departures_;
  Arrivals& arrivals_;
  Custody& custody_;
  Carrier& carrier_;
  Attestor& attestor_;
  MovedNames& moved_names_;
  Accounts& accounts_;
  const History& history_;
  Detachments& detachments_;
  SeveralMoves several_moves_;
  ContentKeys content_keys_;
  Attempts attempts_;
  const Restarted restarted_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool recovered_ = false;
  std::thread housekeeper_;
};

}  // namespace ferry::host
