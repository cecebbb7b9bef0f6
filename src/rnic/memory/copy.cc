#include "rnic/memory/copy.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)

// Leaf functions without a stack frame: whichever instruction between ferry_copy_begin and
// ferry_copy_end faults, going on at ferry_copy_fault returns 1 to the caller.
//
// ferry_copy_from keeps the words whole that it loads, ferry_copy_to those that it stores. `rep
// movsb` tears the words that it loads when source and target are aligned differently, and is
// slower then.
extern "C" {
__attribute__((visibility("hidden"))) int ferry_copy_from(void* to, const void* from,
                                                          std::size_t length);
__attribute__((visibility("hidden"))) int ferry_copy_to(void* to, const void* from,
                                                        std::size_t length);
__attribute__((visibility("hidden"))) int ferry_store_8(void* to, std::uint64_t value);
__attribute__((visibility("hidden"))) int ferry_compare_swap(void* at, std::uint64_t compare,
                                                             std::uint64_t swap,
                                                             std::uint64_t* original);
__attribute__((visibility("hidden"))) int ferry_fetch_add(void* at, std::uint64_t add,
                                                          std::uint64_t* original);
__attribute__((visibility("hidden"))) extern const char ferry_copy_begin[];
__attribute__((visibility("hidden"))) extern const char ferry_copy_end[];
__attribute__((visibility("hidden"))) extern const char ferry_copy_fault[];
}

asm(R"(
  .pushsection .text.ferry_copy, "ax", @progbits
  .hidden ferry_copy_begin, ferry_copy_end, ferry_copy_fault
  .hidden ferry_copy_from, ferry_copy_to, ferry_store_8, ferry_compare_swap, ferry_fetch_add
  .globl ferry_copy_begin, ferry_copy_end, ferry_copy_fault
  .globl ferry_copy_from, ferry_copy_to, ferry_store_8, ferry_compare_swap, ferry_fetch_add
  .type ferry_copy_from, @function
  .type ferry_copy_to, @function
  .type ferry_store_8, @function
  .type ferry_compare_swap, @function
  .type ferry_fetch_add, @function

  .macro ferry_step load, value, store, bytes
  \load (%rsi), \value
  \store \value, (%rdi)
  addq $\bytes, %rsi
  addq $\bytes, %rdi
  subq $\bytes, %rdx
  .endm

  # Steps of 1, 2, 4 and 8 bytes until `at` (with the low byte `low`) is a multiple of 16, then of
  # 64 and 16, and back down for the rest.
  .macro ferry_copy at, low
  .cfi_startproc
  cmpq $8, %rdx
  jne 1f
  movq \at, %rax
  andl $63, %eax
  cmpl $56, %eax
  ja 1f
  movq (%rsi), %rax  # in one cache line: whole, however it is aligned
  movq %rax, (%rdi)
  xorl %eax, %eax
  ret
1:
  testq %rdx, %rdx
  jz 9f
  testb $1, \low
  jz 2f
  movzbl (%rsi), %eax
  movb %al, (%rdi)
  incq %rsi
  incq %rdi
  decq %rdx
2:
  testb $2, \low
  jz 3f
  cmpq $2, %rdx
  jb 8f
  ferry_step movw, %ax, movw, 2
3:
  testb $4, \low
  jz 4f
  cmpq $4, %rdx
  jb 8f
  ferry_step movl, %eax, movl, 4
4:
  cmpq $16, %rdx
  jb 7f
  testb $8, \low
  jz 5f
  ferry_step movq, %rax, movq, 8
5:
  cmpq $64, %rdx
  jb 6f
  movdqu (%rsi), %xmm0
  movdqu 16(%rsi), %xmm1
  movdqu 32(%rsi), %xmm2
  movdqu 48(%rsi), %xmm3
  movdqu %xmm0, (%rdi)
  movdqu %xmm1, 16(%rdi)
  movdqu %xmm2, 32(%rdi)
  movdqu %xmm3, 48(%rdi)
  addq $64, %rsi
  addq $64, %rdi
  subq $64, %rdx
  jmp 5b
6:
  cmpq $16, %rdx
  jb 7f
  ferry_step movdqu, %xmm0, movdqu, 16
  jmp 6b
7:
  testb $8, %dl
  jz 8f
  ferry_step movq, %rax, movq, 8
8:
  testb $4, %dl
  jz 1f
  ferry_step movl, %eax, movl, 4
1:
  testb $2, %dl
  jz 1f
  ferry_step movw, %ax, movw, 2
1:
  testb $1, %dl
  jz 9f
  movzbl (%rsi), %eax
  movb %al, (%rdi)
9:
  xorl %eax, %eax
  ret
  .cfi_endproc
  .endm

  .p2align 4
ferry_copy_begin:
ferry_copy_from:
  ferry_copy %rsi, %sil
  .p2align 4
ferry_copy_to:
  ferry_copy %rdi, %dil
ferry_store_8:
  .cfi_startproc
  movq %rsi, (%rdi)
  xorl %eax, %eax
  ret
  .cfi_endproc
ferry_compare_swap:
  .cfi_startproc
  movq %rsi, %rax
  lock cmpxchgq %rdx, (%rdi)
  movq %rax, (%rcx)
  xorl %eax, %eax
  ret
  .cfi_endproc
ferry_fetch_add:
  .cfi_startproc
  lock xaddq %rsi, (%rdi)
  movq %rsi, (%rdx)
  xorl %eax, %eax
  ret
  .cfi_endproc
ferry_copy_end:
ferry_copy_fault:
  .cfi_startproc
  movl $1, %eax
  ret
  .cfi_endproc
  .purgem ferry_copy
  .purgem ferry_step
  .popsection
)");

#endif

namespace ferry::rnic {
namespace {

std::atomic<bool> handler_installed{false};

bool copy_through_kernel(void* to, const void* from, std::size_t length, bool read) {
  while (length > 0) {
    iovec ours{read ? to : const_cast<void*>(from), length};
    iovec theirs{read ? const_cast<void*>(from) : to, length};
    const ssize_t done = read ? process_vm_readv(getpid(), &ours, 1, &theirs, 1, 0)
                              : process_vm_writev(getpid(), &ours, 1, &theirs, 1, 0);
    if (done <= 0) return false;
    to = static_cast<char*>(to) + done;
    from = static_cast<const char*>(from) + done;
    length -= static_cast<std::size_t>(done);
  }
  return true;
}

// Writes the last byte last.
bool write_through_kernel(void* to, const void* from, std::size_t length) {
  if (length == 0) return true;
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  return copy_through_kernel(out, in, length - 1, false) &&
         copy_through_kernel(out + length - 1, in + length - 1, 1, false);
}

// Without a fault handler the page is made present and writable before the access. If the
// application unmaps or protects it in between, the access faults and the process crashes.
bool make_writable(void* at) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* begin = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(at) & ~(page - 1));
  return madvise(begin, page, MADV_POPULATE_WRITE) == 0;
}

bool compare_swap_after_check(void* at, std::uint64_t compare, std::uint64_t swap,
                              std::uint64_t* original) {
  if (!make_writable(at)) return false;
  std::atomic_ref<std::uint64_t>(*static_cast<std::uint64_t*>(at))
      .compare_exchange_strong(compare, swap);
  *original = compare;
  return true;
}

bool fetch_add_after_check(void* at, std::uint64_t add, std::uint64_t* original) {
  if (!make_writable(at)) return false;
  *original = std::atomic_ref<std::uint64_t>(*static_cast<std::uint64_t*>(at)).fetch_add(add);
  return true;
}

bool store_after_check(void* at, std::uint64_t value) {
  if (!make_writable(at)) return false;
  std::atomic_ref<std::uint64_t>(*static_cast<std::uint64_t*>(at)).store(value);
  return true;
}

}  // namespace

void set_fault_handler_installed(bool installed) {
  handler_installed.store(installed, std::memory_order_relaxed);
}

#if defined(__x86_64__)

bool copy_from_application(void* to, const void* from, std::size_t length) {
  if (!handler_installed.load(std::memory_order_relaxed)) {
    return copy_through_kernel(to, from, length, true);
  }
  return ferry_copy_from(to, from, length) == 0;
}

bool copy_to_application(void* to, const void* from, std::size_t length) {
  if (!handler_installed.load(std::memory_order_relaxed)) {
    return write_through_kernel(to, from, length);
  }
  return ferry_copy_to(to, from, length) == 0;  // x86 makes stores visible in their order
}

bool compare_swap_application(void* at, std::uint64_t compare, std::uint64_t swap,
                              std::uint64_t* original) {
  return handler_installed.load(std::memory_order_relaxed)
             ? ferry_compare_swap(at, compare, swap, original) == 0
             : compare_swap_after_check(at, compare, swap, original);
}

bool fetch_add_application(void* at, std::uint64_t add, std::uint64_t* original) {
  return handler_installed.load(std::memory_order_relaxed)
             ? ferry_fetch_add(at, add, original) == 0
             : fetch_add_after_check(at, add, original);
}

bool store_application(void* at, std::uint64_t value) {
  return handler_installed.load(std::memory_order_relaxed) ? ferry_store_8(at, value) == 0
                                                           : store_after_check(at, value);
}

bool recover_from_fault(void* ucontext, void* /*address*/) {
  auto* context = static_cast<ucontext_t*>(ucontext);
  greg_t& rip = context->uc_mcontext.gregs[REG_RIP];
  const auto at = static_cast<std::uintptr_t>(rip);
  if (at < reinterpret_cast<std::uintptr_t>(ferry_copy_begin) ||
      at >= reinterpret_cast<std::uintptr_t>(ferry_copy_end)) {
    return false;
  }
  rip = static_cast<greg_t>(reinterpret_cast<std::uintptr_t>(ferry_copy_fault));
  return true;
}

#else  // This machine has no copy routine with recovery yet: the kernel copies.

bool copy_from_application(void* to, const void* from, std::size_t length) {
  return copy_through_kernel(to, from, length, true);
}

bool copy_to_application(void* to, const void* from, std::size_t length) {
  return write_through_kernel(to, from, length);
}

bool compare_swap_application(void* at, std::uint64_t compare, std::uint64_t swap,
                              std::uint64_t* original) {
  return compare_swap_after_check(at, compare, swap, original);
}

bool fetch_add_application(void* at, std::uint64_t add, std::uint64_t* original) {
  return fetch_add_after_check(at, add, original);
}

bool store_application(void* at, std::uint64_t value) {
  return store_after_check(at, value);
}

bool recover_from_fault(void*, void*) {
  return false;
}

#endif

}  // namespace ferry::rnic
