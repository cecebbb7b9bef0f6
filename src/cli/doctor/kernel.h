#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "host/proc/mounts.h"

// What a move needs of the kernel, and any user can see. What CRIU needs besides, CRIU looks at
// itself (ferryd.h).
namespace ferry::cli::doctor {

struct KernelFacts {
  std::string release, machine;  // as uname -rm
  int tracking_error = 0;        // of a userfaultfd that tracks writes; 0: there is one
  std::vector<host::Mount> mounts;
};

KernelFacts kernel_facts();
Findings check_kernel(const KernelFacts& facts);

}  // namespace ferry::cli::doctor
