#pragma once

#include <string>
#include <vector>

// What is mounted in the mount namespace of the calling thread.
namespace ferry::host {

struct Mount {
  std::string target;   // where
  std::string root;     // the folder of the file system that is mounted there
  std::string type;     // of the file system
  std::string options;  // of the file system: rw,memory
};

// All mounts. A mount that lies below another one comes after it.
std::vector<Mount> all_mounts();

// The targets that lie below the folder; a mount at the folder itself is not among them.
std::vector<std::string> targets_below(const std::string& folder);

// Unmounts what is at the targets, whoever has it open. Mounts below a target that are shared with
// another place stay there. Throws Failure when not all could be unmounted.
void unmount_all(const std::vector<std::string>& targets);

}  // namespace ferry::host
