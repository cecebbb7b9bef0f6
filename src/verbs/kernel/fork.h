#pragma once

// fork(): the RNIC belongs to the parent. In the child every call on an inherited context fails
// with ENODEV and nothing hangs; devices that it opens itself work.
namespace ferry::verbs {

struct Process;

void register_fork_handlers();

// context.cc
Process* process_if_any();
void forget_process_in_child();

}  // namespace ferry::verbs
