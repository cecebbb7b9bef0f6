#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstring>

// The unwinder that is linked into libferry.so asks for _dl_find_object(), which glibc has
// from 2.35 on; the library promises to run with 2.34. This one, which stays inside the library,
// asks dl_iterate_phdr() as older unwinders did. It is slower, and exceptions are rare here: memory
// that ran out.
namespace {

struct Search {
  std::uintptr_t address;
  dl_find_object* result;
};

int visit(dl_phdr_info* info, std::size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  const ElfW(Phdr)* unwind = nullptr;
  std::uintptr_t low = UINTPTR_MAX, high = 0;
  bool inside = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const std::uintptr_t start = info->dlpi_addr + segment.p_vaddr;
    const std::uintptr_t end = start + segment.p_memsz;
    if (segment.p_type == PT_GNU_EH_FRAME) unwind = &segment;
    if (segment.p_type != PT_LOAD) continue;
    inside |= search.address >= start && search.address < end;
    low = start < low ? start : low;
    high = end > high ? end : high;
  }
  if (!inside) return 0;
  if (!unwind) return -1;
  std::memset(search.result, 0, sizeof *search.result);
  search.result->dlfo_map_start = reinterpret_cast<void*>(low);
  search.result->dlfo_map_end = reinterpret_cast<void*>(high);
  search.result->dlfo_eh_frame = reinterpret_cast<void*>(info->dlpi_addr + unwind->p_vaddr);
  return 1;
}

}  // namespace

extern "C" int _dl_find_object(void* address, dl_find_object* result) noexcept {
  Search search{reinterpret_cast<std::uintptr_t>(address), result};
  return ::dl_iterate_phdr(visit, &search) == 1 ? 0 : -1;
}
