#pragma once

#include <cstddef>
#include <cstdint>

// The one routine that touches application memory. Its owner may unmap, protect or truncate that
// memory at any time; a fault inside the routine ends in `false`, not in a crash, when the
// process's SIGSEGV and SIGBUS handler asks recover_from_fault() first. Until that was announced by
// set_fault_handler_installed(true) the copies go through process_vm_readv and process_vm_writev on
// the own process, which is slower (0.5 us) and never faults.
namespace ferry::rnic {

// Both copies read and write each 8, 4 and 2 aligned bytes of application memory that they have to
// do with as a whole, from low addresses to high ones, as a NIC does: counters, locks and pointers
// are never torn, and what programs poll, the last bytes, is written last. (So it is on x86-64 with
// a handler; what goes through the kernel may be torn.)

// Copies from application memory. False: it faulted; what `to` holds then is undefined.
bool copy_from_application(void* to, const void* from, std::size_t length);

// Copies to application memory. False: it faulted; a prefix may have been written.
bool copy_to_application(void* to, const void* from, std::size_t length);

// Atomic operations on 8 aligned bytes of application memory, by the processor's own instructions:
// so they are atomic towards everybody who maps the memory. *original gets what was there before.
// False: it faulted; nothing was changed.
bool compare_swap_application(void* at, std::uint64_t compare, std::uint64_t swap,
                              std::uint64_t* original);
bool fetch_add_application(void* at, std::uint64_t add, std::uint64_t* original);
// One store of 8 aligned bytes.
bool store_application(void* at, std::uint64_t value);

void set_fault_handler_installed(bool installed);

// For a handler of SIGSEGV and SIGBUS: true when the fault happened inside the copy routine; the
// context was changed such that the routine returns `false`, and the handler must return at once.
// False: not ours, nothing was changed. Async-signal-safe.
bool recover_from_fault(void* ucontext, void* address);

}  // namespace ferry::rnic
