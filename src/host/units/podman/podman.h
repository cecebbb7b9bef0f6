#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ferry::host {

// A container of podman, as `podman container inspect` and its OCI configuration have it.
struct PodmanContainer {
  std::string id, name;
  std::string status;  // "running", "exited", ...
  pid_t pid = 0;
  std::string image, image_name;      // image: its id
  std::string pod;                    // id; empty: in none
  bool removes_itself = false;        // --rm
  std::string network_mode;           // "bridge", "host", "none", "ns:PATH", "container:ID", ...
  std::vector<std::string> networks;  // of podman's own
  std::vector<std::string> volumes;   // with names
  std::vector<std::string> sources;   // of bind mounts, except those that podman itself makes
  std::string static_folder;          // where CRIU's logs are

  bool runs() const { return status == "running"; }
};

// The podman command. Failures give podman's own reason, or CRIU's where there is one.
class Podman {
 public:
  // `command`: looked up in PATH, unless it has a slash.
  explicit Podman(std::string command) : command_(std::move(command)) {}

  static constexpr std::size_t kShortId = 12;  // digits of an id that people write

  bool is_installed() const;
  // Why podman cannot checkpoint or restore programs with RDMA here, in one line; empty when it
  // can.
  std::string unusable() const;

  // Finds a container by name or id. Nothing: there is none. Throws Failure.
  std::optional<PodmanContainer> find(const std::string& name) const;
  // The id of the container that a process is in, by its cgroup. Empty: it is in none of podman's.
  static std::string container_of(pid_t pid);
  // The name of the container with this id that a process is in, without asking podman, which waits
  // while it makes a checkpoint of it. Empty: unknown.
  static std::string name_of(pid_t pid, const std::string& id);
  static std::vector<pid_t> processes_of(const std::string& id);

  bool has_image(const std::string& id) const;
  bool has_network(const std::string& name) const;
  bool has_volume(const std::string& name) const;
  std::uint64_t free_disk() const;  // bytes, where containers are kept

  // Whether a podman, perhaps one that a former ferryd started, is at work on this archive.
  static bool is_at_work(const std::string& archive);

  // These give an empty string, or what failed in one line. `*podman` is podman's pid while it runs:
  // whoever kills it kills what is below it, too (kill_dump() at the checkpoint). `archive` may be a
  // FIFO for the checkpoint, not for import. When the checkpoint has failed the container goes on,
  // with its TCP connections (broken_dump.h).
  std::string checkpoint(const PodmanContainer& container, const std::string& archive,
                         std::atomic<pid_t>* podman) const;
  std::string import(const std::string& archive, std::atomic<pid_t>* podman) const;
  // `killed`: whether podman was killed after `timeout`. end_restore() clears up what it has left
  // then.
  std::string restore(const PodmanContainer& container, std::chrono::milliseconds timeout,
                      bool* killed) const;
  // Clears up what a podman that was killed has left at the restore of a container on this host:
  // conmon, which is not below podman, with runc, CRIU and the container below it; their mounts;
  // and the container's network. The restored processes end without a word to their TCP peers, by
  // silence(). The container stays, stopped.
  void end_restore(const std::string& id) const;
  // Removes a container, also one that runs, with `kill`. One that does not exist counts as
  // removed.
  std::string remove(const std::string& id, bool kill) const;
  std::string remove_volume(const std::string& name) const;

 private:
  const std::string command_;
};

}  // namespace ferry::host
