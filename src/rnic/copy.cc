#include "rnic/copy.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)

// Leaf functions without a stack frame: whatever instruction between begin and end faults, going on
// at ferry_copy_fault returns 1 to the caller. Microarchitectures with fast short `rep movsb` reach
// the memory's bandwidth from a few hundred bytes on.
extern "C" {
__attribute__((visibility("hidden"))) int ferry_copy_bytes(void* to, const void* from,
                                                           std::size_t length);
__attribute__((visibility("hidden"))) int ferry_store_8(void* to, std::uint64_t value);
__attribute__((visibility("hidden"))) int ferry_store_4(void* to, std::uint32_t value);
__attribute__((visibility("hidden"))) int ferry_store_2(void* to, std::uint16_t value);
__attribute__((visibility("hidden"))) int ferry_store_1(void* to, std::uint8_t value);
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
  .hidden ferry_copy_bytes, ferry_store_8, ferry_store_4, ferry_store_2, ferry_store_1
  .hidden ferry_compare_swap, ferry_fetch_add
  .globl ferry_copy_begin, ferry_copy_end, ferry_copy_fault
  .globl ferry_copy_bytes, ferry_store_8, ferry_store_4, ferry_store_2, ferry_store_1
  .globl ferry_compare_swap, ferry_fetch_add
  .type ferry_copy_bytes, @function
  .type ferry_store_8, @function
  .type ferry_store_4, @function
  .type ferry_store_2, @function
  .type ferry_store_1, @function
  .type ferry_compare_swap, @function
  .type ferry_fetch_add, @function
  .p2align 4
ferry_copy_begin:
ferry_copy_bytes:
  .cfi_startproc
  cmpq $16, %rdx
  jb 3f
  cmpq $384, %rdx
  jb 1f
  movq %rdx, %rcx
  rep movsb
  xorl %eax, %eax
  ret
1:
  movdqu (%rsi), %xmm0
  movdqu %xmm0, (%rdi)
  addq $16, %rsi
  addq $16, %rdi
  subq $16, %rdx
  cmpq $16, %rdx
  jae 1b
  testq %rdx, %rdx
  jz 2f
  movdqu -16(%rsi,%rdx), %xmm0
  movdqu %xmm0, -16(%rdi,%rdx)
2:
  xorl %eax, %eax
  ret
3:
  testq %rdx, %rdx
  jz 2b
4:
  movzbl (%rsi), %eax
  movb %al, (%rdi)
  incq %rsi
  incq %rdi
  decq %rdx
  jnz 4b
  xorl %eax, %eax
  ret
  .cfi_endproc
ferry_store_8:
  .cfi_startproc
  movq %rsi, (%rdi)
  xorl %eax, %eax
  ret
  .cfi_endproc
ferry_store_4:
  .cfi_startproc
  movl %esi, (%rdi)
  xorl %eax, %eax
  ret
  .cfi_endproc
ferry_store_2:
  .cfi_startproc
  movw %si, (%rdi)
  xorl %eax, %eax
  ret
  .cfi_endproc
ferry_store_1:
  .cfi_startproc
  movb %sil, (%rdi)
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

// Without a handler: the page is made present and writable first. What its owner does to it in
// between is then the owner's risk.
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
  return ferry_copy_bytes(to, from, length) == 0;
}

bool copy_to_application(void* to, const void* from, std::size_t length) {
  if (length == 0) return true;
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  if (!handler_installed.load(std::memory_order_relaxed)) {
    return copy_through_kernel(out, in, length - 1, false) &&
           copy_through_kernel(out + length - 1, in + length - 1, 1, false);
  }
  // x86 makes the stores of `rep movsb` visible before later stores, so program order suffices as
  // release order.
  const auto end = reinterpret_cast<std::uintptr_t>(out) + length;
  if (length >= 8 && (end - 8) % 64 <= 56) {
    std::uint64_t last;
    std::memcpy(&last, in + length - 8, 8);
    return ferry_copy_bytes(out, in, length - 8) == 0 && ferry_store_8(out + length - 8, last) == 0;
  }
  if (length == 4 && end % 4 == 0) {
    std::uint32_t last;
    std::memcpy(&last, in, 4);
    return ferry_store_4(out, last) == 0;
  }
  if (length == 2 && end % 2 == 0) {
    std::uint16_t last;
    std::memcpy(&last, in, 2);
    return ferry_store_2(out, last) == 0;
  }
  return ferry_copy_bytes(out, in, length - 1) == 0 &&
         ferry_store_1(out + length - 1, static_cast<std::uint8_t>(in[length - 1])) == 0;
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

#else  // No copy routine with recovery for this machine yet: the kernel copies.

bool copy_from_application(void* to, const void* from, std::size_t length) {
  return copy_through_kernel(to, from, length, true);
}

bool copy_to_application(void* to, const void* from, std::size_t length) {
  if (length == 0) return true;
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  return copy_through_kernel(out, in, length - 1, false) &&
         copy_through_kernel(out + length - 1, in + length - 1, 1, false);
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
