#pragma once

#include <cstddef>
#include <cstdint>

// The only functions that touch application memory. The application may unmap, protect or truncate
// that memory at any time. A fault inside these functions ends in `false`, not in a crash, if the
// process's handler of SIGSEGV and SIGBUS asks recover_from_fault() first. Until
// set_fault_handler_installed(true) says that it does, the copies go through process_vm_readv and
// process_vm_writev on the own process, which is slower (by 0.5 us) and never faults.
namespace ferry::rnic {

// Both copies access every aligned word of 8, 4 or 2 bytes of application memory as a whole, and go
// from low addresses to high ones, as a NIC does: counters, locks and pointers are never torn, and
// the last bytes, which programs poll, are written last. (This holds on x86-64 with a handler;
// copies through the kernel may tear words.)

// Copies from application memory. False: it faulted; what `to` holds then is undefined.
bool copy_from_application(void* to, const void* from, std::size_t length);

// Copies to application memory. False: it faulted; a prefix may have been written.
bool copy_to_application(void* to, const void* from, std::size_t length);

// Atomic operations on 8 aligned bytes of application memory, by the processor's own instructions:
// they are atomic towards everybody who maps the memory. *original gets the value before. False: it
// faulted; nothing was changed.
bool compare_swap_application(void* at, std::uint64_t compare, std::uint64_t swap,
                              std::uint64_t* original);
bool fetch_add_application(void* at, std::uint64_t add, std::uint64_t* original);
// Writes 8 aligned bytes in one store. False: it faulted; nothing was changed.
bool store_application(void* at, std::uint64_t value);

void set_fault_handler_installed(bool installed);

// For a handler of SIGSEGV and SIGBUS. True: the fault happened inside one of the functions above;
// *ucontext is changed so that the function returns `false`, and the handler must return at once.
// False: the fault is not ours, nothing was changed. Async-signal-safe.
bool recover_from_fault(void* ucontext, void* address);

}  // namespace ferry::rnic
