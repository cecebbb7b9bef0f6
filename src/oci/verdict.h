#pragma once

#include <string>

#include "oci/root.h"

// Whether libferry.so can live in an image, and with whose libibverbs.
namespace ferry::oci {

struct Verdict {
  std::string reason;       // why there can be no RDMA; empty when there can
  bool host_verbs = false;  // the image has no libibverbs: it needs the host's
};

// Looks at the libraries of the image, and at those that are mounted into it (layout.h). Runs
// nothing of the image.
Verdict judge(const Root& root);

// Whether an /etc/ld.so.preload names anything.
bool names_libraries(const std::string& preload);

}  // namespace ferry::oci
