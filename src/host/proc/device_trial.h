#pragma once

#include <string>

namespace ferry::host {

// Makes what a program needs of an RDMA device of this host's kernel (virtual/messages/needs.h), and destroys
// it again, in a process of its own (src/trial). Throws Failure, one line: what the device refuses.
void try_device(const std::string& device, const std::string& needs);

}  // namespace ferry::host
