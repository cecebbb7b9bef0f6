#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host/image/rootfs.h"
#include "host/units/criu_runner.h"

// The containers of this host: records in CONTAINERS/NAME/config.json, kept by who runs containers
// (lab/lab) and rewritten by moves. The fields that ferryd uses:
//
//   name      the container's name, the same on every host
//   pid       of its init in our pid namespace; 0 unless it runs
//   state     running, restoring (arriving, or in doubt), moved, exited
//   netns     path of its network namespace
//   instance  what the network hook calls that namespace
//   log       the regular file that its stdout and stderr are appended to
//   rdma0_moves  true when the address of rdma0 moves along (default: it belongs to the host)
//
// All other fields are the network hook's, or the runtime's.
namespace ferry::host {

inline constexpr char kContainers[] = "/run/ferry/containers";

// Of what has no Extras.
inline constexpr char kOnlyRunc[] =
    "is no container of runc's, for which --copy-rootfs and --stdio are";

class Runtime;

struct Container {
  Runtime* runtime = nullptr;  // whose it is
  std::string folder;          // CONTAINERS/NAME
  std::string json;            // the whole config
  std::string name, state, netns, instance, log;
  pid_t pid = 0;
  bool rdma_moves = false;
  bool restored = false;  // on this host: a ferryd has to tell how it ends, not who started it
};

// What a user may want of a container's move, if its runtime can do it.
struct Extras {
  bool rootfs = false;  // its root filesystem is copied
  // File at the destination that its output is appended to. Programs without a container have it too.
  std::string stdio;
};

// The containers of one runtime on this host, and what a move needs of who runs them. These here are
// known by their records alone, and a hook of the host's makes their networks.
class Runtime {
 public:
  // `hook` is the network hook's path; empty when this host has none.
  Runtime(std::string directory, std::string hook);
  virtual ~Runtime() = default;

  // As requests name it; empty for these.
  virtual std::string runtime() const { return {}; }

  // Nothing when there is none, or its record cannot be read.
  virtual std::optional<Container> find(const std::string& name);
  virtual std::vector<Container> all();
  // The container that a running process belongs to.
  std::optional<Container> of_process(pid_t pid);

  // True when a program may arrive under this name.
  bool name_is_free(const std::string& name);

  // On the destination: throws Failure when the container cannot come to `host`, this one. Nothing
  // is changed.
  virtual void check_arrival(const std::string& host, const std::string& name,
                             const std::string& source_json);
  // Makes its network, silent; writes its record (state "restoring", old `exit` removed). Throws
  // Failure, and leaves nothing.
  virtual Container arrive(const std::string& name, const std::string& source_json);

  // On the source: what the user wants of the move beside. Throws Failure.
  virtual Container with(const Container& container, const Extras& extras);
  // When it is copied with the move.
  virtual std::optional<Rootfs> copied_rootfs(const Container& container);

  // As CriuRunner's, which these here call.
  virtual std::string dump(CriuRunner& criu, const CriuRunner::Dump& dump,
                           const Container& container, std::atomic<pid_t>* pid);
  virtual std::string restore(CriuRunner& criu, const CriuRunner::Restore& restore,
                              const Container& container, std::atomic<pid_t>* pid);

  // Rewrites state and pid in the record, if it is still this instance's.
  void set_state(const Container& container, const std::string& state, pid_t pid);
  // The same in two steps: what a full disk can make fail, and what it cannot.
  void stage_state(const Container& container, const std::string& state, pid_t pid);
  void publish_state(const Container& container);
  // Its program has ended: records that and releases the network. False, and nothing was done: the
  // container has moved on.
  bool end(const Container& container, int status);
  // Writes the exit status and the state "exited".
  void record_exit(const Container& container, int status);
  // Removes what an arrival that failed has made beside its network, if it is still this instance's.
  virtual void forget(const Container& container);
  // On the source, before the program stops: notes what a later ferryd has to know. Throws Failure.
  virtual void leave(const Container& container);
  // On the source, after the commit: what is to be gone as soon as the program is.
  virtual void left(const Container& container);

  // hold, activate, deactivate or release, as the network hook takes them. Throws Failure.
  virtual void switch_network(const std::string& command, const std::string& instance);

 protected:
  std::optional<Container> recorded(const std::string& name);
  Container write_record(const std::string& name, const std::string& json);
  const std::string& directory() const { return directory_; }

 private:
  bool is_current(const Container& container);

  std::string directory_, hook_;
};

// Throws Failure when `json` is no record. `folder` is left empty.
Container parse_container(const std::string& json);

}  // namespace ferry::host
