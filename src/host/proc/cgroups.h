#pragma once

#include <string>
#include <vector>

// Cgroups as folders, of versions 1 and 2.
namespace ferry::host {

// The cgroups that the cgroupsPath of a container's config.json names, one in each hierarchy, as
// runc finds them: a path that does not begin with '/' begins at the caller's own cgroups. They
// need not exist.
std::vector<std::string> cgroups_at(const std::string& path);

// False, too, when there is no such cgroup.
bool has_processes(const std::string& cgroup);

// Removes the cgroup with all cgroups in it, and kills their processes. Throws Failure when the cgroup still exists
// after a while.
void remove_cgroup(const std::string& cgroup);

}  // namespace ferry::host
