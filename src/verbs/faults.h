#pragma once

#include <cstdint>

// The library touches application memory, which its owner may unmap, protect or truncate at any
// time. So it sees SIGSEGV and SIGBUS first: a fault in the copy routine (rnic/memory/copy.h) ends there,
// everything else goes to where the program sent it. From the first opened device on, sigaction()
// and signal() of the program change a table of ours for these two, and masks keep the two
// unblocked. The program's other handlers run behind a counter, for verbs/restart.cc. Programs that
// open no device of ours are left alone.
namespace ferry::verbs {

void install_fault_handlers();

// Around fork(): no other thread is in the middle of a change, which the child would not finish.
void fault_handlers_before_fork();
void fault_handlers_after_fork();
// In a child after fork(): our table now belongs to the child's table in the kernel. Both are
// copies of the parent's.
void fault_handlers_in_child();

// How many handlers of the program ran on this thread since the first device was opened.
std::uint32_t handlers_run_on_this_thread();
// Those among them that were installed without SA_RESTART.
std::uint32_t interrupting_handlers_run_on_this_thread();

}  // namespace ferry::verbs
