#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
// All other fields are the network hook's.
namespace ferry::migrate {

inline constexpr char kContainers[] = "/run/ferry/containers";

struct Container {
  std::string folder;  // CONTAINERS/NAME
  std::string json;    // the whole config
  std::string name, state, netns, instance, log;
  pid_t pid = 0;
  bool rdma_moves = false;
  bool restored = false;  // on this host: a ferryd has to tell how it ends, not who started it
};

class Containers {
 public:
  // `hook` is the network hook's path; empty when this host has none.
  Containers(std::string directory, std::string hook);

  // Nothing when there is none, or its record cannot be read.
  std::optional<Container> find(const std::string& name) const;
  std::vector<Container> all() const;
  // The container that a running process belongs to.
  std::optional<Container> of_process(pid_t pid) const;

  // True when a program may arrive under this name.
  bool name_is_free(const std::string& name) const;

  // Calls the hook's prepare with the source's config; writes the record that it gives (state
  // "restoring", old `exit` removed). Throws Failure.
  Container arrive(const std::string& name, const std::string& source_json);
  // Rewrites state and pid in the record, if it is still this instance's.
  void set_state(const Container& container, const std::string& state, pid_t pid) const;
  // The same in two steps: what a full disk can make fail, and what it cannot.
  void stage_state(const Container& container, const std::string& state, pid_t pid) const;
  void publish_state(const Container& container) const;
  // Its program has ended: records that and releases the network. False, and nothing was done: the
  // container has moved on.
  bool end(const Container& container, int status) const;
  // Writes the exit status and the state "exited".
  void record_exit(const Container& container, int status) const;
  // Removes the record of an arrival that failed, if it is still this instance's.
  void forget(const Container& container) const;

  // activate, deactivate or release of the network hook. Throws Failure.
  void call_hook(const std::string& command, const std::string& instance) const;
  bool has_hook() const { return !hook_.empty(); }

 private:
  bool is_current(const Container& container) const;

  std::string directory_, hook_;
};

// Throws Failure when `json` is no record. `folder` is left empty.
Container parse_container(const std::string& json);

}  // namespace ferry::migrate
