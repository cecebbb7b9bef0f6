#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/checkpoint/step_bytes.h"
#include "host/checkpoint/take/host_part.h"
#include "host/checkpoint/take/stored_bytes.h"
#include "host/move/source/group/cut.h"
#include "store/new_images.h"

namespace ferry::host {

class Departures;
class Move;
struct ThisHost;

// The programs of this host in a checkpoint: a move that is given up after its dump. It runs in a thread of its own,
// and waits in its Cut for each step.
class LocalPart final : public HostPart {
 public:
  // `tell`: is told how much memory is copied ahead in check(), and how much of the images is stored in store().
  LocalPart(const ThisHost& host, Departures& departures, ControlServer& control, uid_t user,
            std::vector<MoveGroup::Program> programs, bool stop, TellBytes tell);
  ~LocalPart() override;

  std::vector<Connection> look(const std::string& directory, const std::string& id,
                               std::uint32_t first,
                               const std::optional<store::ContentKey>& key) override;
  void check() override;
  void freeze() override;
  void dump() override;
  double end() override;
  std::vector<store::Program> store() override;
  void give_up() override;

 private:
  enum class Stage { kRunning, kChecked, kFrozen, kDumped, kOver };

  Cut::Owner owner();
  void wait_for_all(Stage here, Stage next, std::chrono::seconds limit,
                    const Cut::NeedOpen& need_open);
  void need_wanted();
  void copied(std::size_t program, const StepBytes& bytes);
  void write_file(store::ImageWriter& writer, const ImageFile& file, StoredBytes& stored);
  void run();
  void reach(Stage stage);
  // Returns when the programs have come to this stage. Throws Failure when they go on without that.
  void await(Stage stage);
  void allow(Stage stage);

  const ThisHost& host_;
  Departures& departures_;
  ControlServer& control_;
  const uid_t user_;
  const std::vector<MoveGroup::Program> programs_;
  const TellBytes tell_;
  const std::shared_ptr<Cut> cut_;
  std::string directory_;  // of the store
  std::optional<store::ContentKey> key_;
  std::optional<store::NewImages> images_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Stage reached_ = Stage::kRunning;
  Stage allowed_ = Stage::kChecked;  // the last one that the programs may come to
  bool is_given_up_ = false;
  std::vector<std::shared_ptr<Move>> moves_;  // while they are under way
  std::map<std::size_t, StepBytes> copied_;   // of the programs: what is copied ahead
  std::string failure_;
  double standstill_ms_ = 0;
  std::future<void> run_;
};

}  // namespace ferry::host
