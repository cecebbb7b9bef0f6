#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "verbs/entry.h"
#include "verbs/stock.h"

// Programs that load libibverbs by name (NCCL does) get libferry.so, with the stock library behind it: dlsym()
// and dlvsym() on that handle look into libferry.so first, and then into the libraries that it needs.
//
// libc finds out who called dlopen(), for the caller's RUNPATH and namespace: so the call goes on
// as a jump, which leaves the caller's return address in place. Other namespaces (dlmopen) have no
// preloaded libraries, and stay as they are.
namespace ferry::verbs {
namespace {

using Open = void* (*)(const char*, int);
using OpenIn = void* (*)(Lmid_t, const char*, int);

bool is_libibverbs(const char* path) {
  const char* slash = strrchr(path, '/');
  const char* name = slash ? slash + 1 : path;
  return !strcmp(name, "libibverbs.so.1") || !strcmp(name, "libibverbs.so");
}

// The path that this library was loaded from; null, which stands for the program, in a program into
// which this code is linked.
const char* own_path() {
  Dl_info info;
  link_map* map = nullptr;
  const bool found = dladdr1(reinterpret_cast<void*>(&own_path), &info,
                             reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0;
  return found && map->l_name[0] != '\0' ? map->l_name : nullptr;
}

}  // namespace
}  // namespace ferry::verbs

using namespace ferry::verbs;

extern "C" {

__attribute__((used, visibility("hidden"))) const char* ferry_library_for(const char* path) {
  return path && is_libibverbs(path) ? own_path() : path;
}
__attribute__((used, visibility("hidden"))) const char* ferry_library_in(Lmid_t space,
                                                                         const char* path) {
  return space == LM_ID_BASE ? ferry_library_for(path) : path;
}
__attribute__((used, visibility("hidden"))) Open ferry_next_dlopen() {
  return FERRY_NEXT(dlopen);
}
__attribute__((used, visibility("hidden"))) OpenIn ferry_next_dlmopen() {
  return FERRY_NEXT(dlmopen);
}

__attribute__((naked, visibility("default"))) void* dlopen(const char*, int) noexcept {
  asm("push %rsi\n\t"
      "call ferry_library_for\n\t"
      "push %rax\n\t"
      "sub $8, %rsp\n\t"
      "call ferry_next_dlopen\n\t"
      "add $8, %rsp\n\t"
      "pop %rdi\n\t"
      "pop %rsi\n\t"
      "jmp *%rax");
}

__attribute__((naked, visibility("default"))) void* dlmopen(Lmid_t, const char*, int) noexcept {
  asm("push %rdx\n\t"
      "push %rdi\n\t"
      "sub $8, %rsp\n\t"
      "call ferry_library_in\n\t"
      "mov %rax, (%rsp)\n\t"
      "sub $16, %rsp\n\t"
      "call ferry_next_dlmopen\n\t"
      "add $16, %rsp\n\t"
      "pop %rsi\n\t"
      "pop %rdi\n\t"
      "pop %rdx\n\t"
      "jmp *%rax");
}
}
