#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "host/proc/mounts.h"

// What a move needs of the kernel and any user can see. CRIU itself looks at what it needs besides (ferryd.h).
namespace ferry::cli::doctor {

struct KernelFacts {
  std::string release, machine;  // as uname -rm
  int tracking_error = 0;        // -errno of making a userfaultfd that tracks writes; 0: it works
  std::vector<host::Mount> mounts;
};

KernelFacts kernel_facts();
Findings check_kernel(const KernelFacts& facts);

}  // namespace ferry::cli::doctor
