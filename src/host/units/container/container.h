#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/image/rootfs.h"
#include "host/units/criu_runner.h"
#include "host/units/unit.h"

// Containers of this host: records in CONTAINERS/NAME/config.json, where CONTAINERS is a folder of
// the runtime's. The lab writes the records of its containers; ferryd writes those of runc's
// containers, when one leaves or arrives. Moves rewrite both. The fields that ferryd uses:
//
//   name      the container's name, the same on every host
//   pid       of its init in ferryd's pid namespace; 0 unless it runs
//   state     running, restoring (arriving, or in doubt), moved, exited
//   netns     path of its network namespace
//   instance  what the network hook calls that namespace
//   log       the regular file that its stdout and stderr are appended to
//   rdma0_moves  true when the address of rdma0 moves along (default: it belongs to the host)
//   restored  true when a move has brought it to this host
//   moved_to  the host to which it has moved
//
// All other fields belong to the network hook, or to the runtime.
namespace ferry::host {

inline constexpr char kContainers[] = "/run/ferry/containers";

class Runtime;

struct Container {
  Runtime* runtime = nullptr;  // runs it
  std::string folder;          // CONTAINERS/NAME
  std::string json;            // the whole config
  std::string name, state, netns, instance, log, moved_to;
  pid_t pid = 0;
  bool rdma_moves = false;
  bool restored = false;  // on this host: ferryd has to record how it ends, not whoever started it
};

// A container runtime of this host, and what a move needs of it. The records of all runtimes have
// the same form.
class Runtime : public UnitKind {
 public:
  // `directory`: the folder of the records.
  explicit Runtime(std::string directory) : directory_(std::move(directory)) {}

  // Nothing when there is no such container, or its record cannot be read.
  virtual std::optional<Container> find(const std::string& name) { return recorded(name); }
  virtual std::vector<Container> all();
  // The container that a running process belongs to.
  std::optional<Container> container_of(pid_t pid);

  // A running container, with all that its destination has to know. Throws Failure when it cannot
  // move: one line that says why. `host`: this host's name.
  virtual Container describe(const std::string& host, const std::string& name) = 0;
  // Makes the network of an arriving container, silent; writes its record (state "restoring", an
  // old `exit` removed). Throws Failure, and leaves nothing.
  virtual Container receive(const std::string& name, const std::string& source_json) = 0;

  // True when only root may move this runtime's containers away.
  virtual bool is_only_roots() const { return false; }
  // The container, changed to what the user wants to move beside its processes. Throws Failure.
  virtual Container with(const Container& container, const Extras& extras);
  // The container's root filesystem, when that is copied with the move.
  virtual std::optional<Rootfs> copied_rootfs(const Container&) { return std::nullopt; }

  // As CriuRunner's, which do this unless the runtime has its own way.
  virtual std::string dump(CriuRunner& criu, const CriuRunner::Dump& dump, const Container&,
                           std::atomic<pid_t>* pid) {
    return criu.dump(dump, pid);
  }
  virtual std::string restore(CriuRunner& criu, const CriuRunner::Restore& restore,
                              const Container&, std::atomic<pid_t>* pid) {
    return criu.restore(restore, pid);
  }

  // Rewrites state and pid in the record, if it is still this instance's. `to`: the host to which it
  // has moved.
  void set_state(const Container& container, const std::string& state, pid_t pid,
                 const std::string& to = {});
  // The same in two steps: the first may fail on a full disk, the second may not.
  void stage_state(const Container& container, const std::string& state, pid_t pid,
                   const std::string& to = {});
  void publish_state(const Container& container);
  // The container's program has ended: records that and releases the network. False, and nothing
  // was done: the container has moved on.
  bool end(const Container& container, int status);
  // Writes the exit status and the state "exited".
  void record_exit(const Container& container, int status);
  // Removes what a failed arrival has made beside its network, if the record is still this
  // instance's.
  virtual void forget(const Container& container);
  // On the source, before the program stops: notes what a later ferryd has to know. Throws Failure.
  virtual void leave(const Container&) {}
  // On the source, after the commit: removes what must go as soon as the program has gone. Stand-ins
  // may need the network for longer.
  virtual void left(const Container&) {}

  std::shared_ptr<Unit> named(const std::string& host, const std::string& name) override;
  std::shared_ptr<Unit> of_process(const std::string& host, pid_t pid) override;
  std::optional<UnitName> name_of(pid_t pid) override;
  bool name_is_free(const std::string& name) override;
  std::shared_ptr<Unit> arrive(const std::string& name, const std::string& details,
                               const std::string& source) override;
  std::shared_ptr<Unit> known(const std::string& name, const std::string& instance) override;
  void clear_up_arrivals() override;
  void join_network_again(pid_t root) override;

 protected:
  std::optional<Container> recorded(const std::string& name);
  Container write_record(const std::string& name, const std::string& json);
  const std::string& directory() const { return directory_; }

 private:
  bool is_current(const Container& container);

  std::string directory_;
};

// True for a word that names a container, and a folder.
bool is_container_name(const std::string& name);

// Throws Failure when `json` is no record. `folder` is left empty.
Container parse_container(const std::string& json);

}  // namespace ferry::host
