#pragma once

// fork(): the RNIC belongs to the parent. In the child every call on an inherited context fails with ENODEV and nothing
// hangs, unless the device survives a fork (device::Context::survives_fork()). A device of the kernel does, but not
// while it is away. Devices that the child opens work.
namespace ferry::verbs {

struct Process;

void register_fork_handlers();

// In calls/device/context.cc.
Process* process_if_any();
void forget_process_in_child();

}  // namespace ferry::verbs
