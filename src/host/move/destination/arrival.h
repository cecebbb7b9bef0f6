#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "host/history/accounts.h"
#include "host/image/image_room.h"
#include "host/image/image_stream.h"
#include "host/image/rootfs_helper.h"
#include "host/journal/journal.h"
#include "host/move/destination/arrival_group.h"
#include "host/move/under_way.h"
#include "host/peers/messages.h"
#include "host/standin/announcer.h"
#include "host/standin/network_rules.h"
#include "host/standin/stopped_tree.h"
#include "host/timeline/timeline.h"
#include "host/units/stdio_file.h"
#include "host/units/unit.h"
#include "port/endpoint.h"
#include "precopy/page_server.h"
#include "precopy/page_store.h"

// The destination's side of the move of one program: carries out the actions that ArrivalMachine
// (arrival_machine.h) gives. While the program is held, CRIU waits in its post-restore action.
namespace ferry::host {

class CriuRunner;
class Whereabouts;
struct ThisHost;

// By id and start_time().
using Processes = std::map<pid_t, std::uint64_t>;

// How a program that has arrived has ended here.
struct Ending {
  std::pair<pid_t, std::uint64_t> root;  // as in Processes
  Processes processes;                   // all that it had when it arrived
  std::optional<int> status;             // as a shell has it; nothing: nobody knows
  std::vector<port::Endpoint> origins;   // of its RNICs
};

class Arrival : public UnderWay {
 public:
  // Makes room for the image. `unit`: made by UnitKind::arrive(). A constructor that throws Failure
  // leaves nothing behind, not even the unit.
  Arrival(const ThisHost& host, DecisionLog& decisions, Whereabouts& whereabouts,
          const ImageRoom& room, ImageReceiver* images, CriuRunner& criu, Accounts& accounts,
          std::shared_ptr<ArrivalGroup> group, std::shared_ptr<const Unit> unit,
          const v1::PrepareRequest& request);
  // An arrival that a former ferryd has committed, by the journal: finishes the commit, and gives
  // the processes their sockets if they still ask for them.
  Arrival(const ThisHost& host, DecisionLog& decisions, Whereabouts& whereabouts,
          const ImageRoom& room, ImageReceiver* images, CriuRunner& criu, Accounts& accounts,
          std::shared_ptr<ArrivalGroup> group, std::shared_ptr<const Unit> unit,
          std::uint64_t move_id, const Held& held);
  ~Arrival() override;

  std::uint64_t move_id() const { return move_id_; }
  const std::string& program() const { return program_; }
  const Unit& unit() const { return *unit_; }
  std::uint64_t group() const { return group_id_; }  // 0: the program arrives alone
  std::size_t index() const { return index_; }       // in the group
  const ImageToken& token() const { return token_; }

  // The steps, called by the source. When one throws Failure, the caller aborts, and the history
  // gets the reason. Sockets that can be
  // bound before the program is restored are bound by bind(), else by restore(): each gives those
  // that it has bound.
  std::vector<ProcessSlots> bind(const std::vector<ProcessSlots>& wanted);
  // `limit`: what is left of the source's standstill.
  // `timeline`: the source wants one.
  std::vector<ProcessSlots> restore(std::chrono::milliseconds limit, const Redirection& stdio,
                                    bool timeline);
  // These act on the whole group.
  Answer commit(std::string* reason) { return group_->commit(index_, reason); }
  Answer commit_by_operator(std::string* reason) { return group_->commit_by_operator(reason); }
  Answer abort(const std::string& reason) { return group_->abort(reason); }
  void keep_house() { group_->keep_house(); }

  // CRIU's action scripts; the result is the script's exit status.
  int action(const std::string& name, pid_t root) override;

  // The runtime's CRIU, where that restores the program.
  bool is_checkpointed() const override { return unit_->is_checkpointed(); }
  void need_restorable() const override;
  int restored(pid_t pid) override;

  // True for the processes that CRIU restored here. `pid`: as in ferryd's own pid namespace;
  // another process may have the same number in its own.
  bool has_process(pid_t pid) const override;
  // What the processes tell, and ask.
  std::optional<ResumeSlots> wake(pid_t inner_pid) override;
  void resumed(pid_t inner_pid, const agent::Resumed& resumed) override;
  // The process has registered with its sockets: it had told a former ferryd that it has them, if
  // not this one.
  void registered(pid_t inner_pid);
  void peers_know(pid_t inner_pid, const agent::PeersKnow& peers);

  // The news so far, of which a source that watches anew may have missed some.
  std::vector<v1::WatchEvent> account() const;
  // The next event for the source, waiting for it at most `timeout`.
  std::optional<v1::WatchEvent> next_event(std::chrono::milliseconds timeout);

  bool is_held() const;  // waits for the decision
  bool in_doubt() const { return group_->in_doubt(); }
  bool owes_timeline() const;
  bool is_over() const;  // aborted; or committed, and the program has ended or moved on
  pid_t root() const;
  // Once it runs: of its first process.
  std::pair<pid_t, std::uint64_t> root_process() const;
  // Those that it had when it arrived.
  Processes processes() const;
  // Once it is over; nothing: it was aborted.
  std::optional<Ending> ending() const;
  const std::string& from() const {
    return group_->source(index_).name;
  }  // the source's name in its certificate

 private:
  static constexpr char kPostRestore[] = "post-restore";
  struct Process {
    pid_t inner_pid = 0;
    pid_t pid = 0;  // in ferryd's pid namespace, once it is restored
    std::vector<ContextSlots> contexts;
    bool back = false;
    std::uint64_t rdma_ns = 0;
    agent::PeersKnow peers;         // latest
    std::set<std::uint32_t> known;  // virtual QPNs whose peers know, so far
    bool heard = false;
  };

  friend class ArrivalGroup;
  // Does what may fail before the commit is recorded: throws Failure.
  void stage() const;
  // Does what follows the commit: failures are reported only.
  void connect();
  std::string device_here(const std::string& there) const;
  ContextSlots bind_context(const ContextSlots& wanted);
  void undo(const std::string& reason);
  void run_criu();
  void all_go_on();
  void add_resumed(v1::WatchEvent* event) const;
  std::string fill(pid_t root, const std::vector<pid_t>& tree);
  void add_criu_log();
  void tell_timeline();
  std::vector<ProcessSlots> bind_all(const std::vector<ProcessSlots>& wanted);
  std::vector<ProcessSlots> restore_here(std::chrono::milliseconds limit, const Redirection& stdio);
  void tell_begin() const;
  void note_failure(const std::string& reason);
  std::string step() const;
  void tell_undone(const std::string& reason);
  void tell_here();
  void tell_lost(const std::string& reason);
  void end_criu();
  void end_remains();
  void watch_program();
  void watch_by_pidfd();
  std::string hold(pid_t root, std::vector<pid_t> tree, std::vector<pid_t> living);
  int answer_to_criu(std::unique_lock<std::mutex>& lock);
  void bind_late(pid_t root);
  void note_held(pid_t root, const std::vector<pid_t>& tree);
  void program_ended();
  void sum_up(v1::WatchEvent* event) const;
  void clean_up();
  bool is_committed() const { return group_->decision().committed(); }  // with mutex_
  void place_log();
  void redirect(const Redirection& stdio);
  void push(v1::WatchEvent event);

  const ThisHost& host_;
  DecisionLog& decisions_;
  Whereabouts& whereabouts_;
  const ImageRoom& room_;
  ImageReceiver* const receiver_;
  CriuRunner& criu_runner_;
  Accounts& accounts_;
  const std::shared_ptr<ArrivalGroup> group_;
  const std::uint64_t move_id_, group_id_;
  const std::size_t index_;
  const std::string program_;
  const std::shared_ptr<const Unit> unit_;
  std::string netns_;  // path; of a program that is_checkpointed() once it is held
  std::string images_;
  std::vector<rnic::Slot> reserved_;  // bound before the program is stopped
  // The names of the devices behind shadows, from those at the source to those here, as the check has chosen.
  std::map<std::string, std::string> devices_;
  std::optional<NetworkRules> silence_;  // until the commit, where the runtime makes the network
  std::optional<Announcer> announcer_;
  std::optional<RootfsHelper> rootfs_;        // unpacks the container's files that are copied
  std::optional<precopy::PageStore> memory_;  // the memory that was copied ahead
  std::optional<precopy::PageServer> pages_;  // gives memory_ to CRIU
  std::mutex filling_;                        // held while pages_ fills; taken before mutex_
  struct StreamEnd {
    std::string id;
    UniqueFd descriptor;
  };
  std::vector<StreamEnd> stream_ends_;  // CRIU gives them to the program
  ImageToken token_{};
  bool receiving_ = false;
  std::atomic<std::uint64_t> image_bytes_{0};

  // These two are the group's.
  std::mutex& mutex_;
  std::condition_variable& changed_;
  std::vector<Process> processes_;
  std::list<v1::WatchEvent> events_;
  std::string error_;                                                  // why CRIU failed
  std::string failed_step_, failure_;                                  // of this program, the first
  std::chrono::steady_clock::time_point whole_, held_, committed_at_;  // the image; restored
  bool criu_ended_ = false;
  bool goes_on_ = false;       // the program, with all of its QPs
  bool is_taken_up_ = false;   // from a former ferryd
  pid_t root_ = 0;             // once it is held
  std::uint64_t started_ = 0;  // the root's start_time()
  std::vector<pid_t> tree_;    // the program's processes, as in ferryd's pid namespace
  Processes started_then_;     // the same, by the times when they started
  std::optional<int> status_;  // of the root, when that has ended as ferryd's child
  std::vector<pid_t> living_;  // those of them that had not ended when CRIU had restored them
  Timeline timeline_;
  std::atomic<bool> tells_timeline_{false};  // the source has asked for it
  bool told_timeline_ = false;
  std::atomic<pid_t> criu_pid_{0};
  std::thread criu_;
};

}  // namespace ferry::host
