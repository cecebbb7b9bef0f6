#include "agent/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace ferry::agent {
namespace {

void here() {}

std::string note_of(const dl_phdr_info* info) {
  static constexpr char kDigits[] = "0123456789abcdef";
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    const char* end = at + segment.p_memsz;
    const std::size_t align = segment.p_align == 8 ? 8 : 4;
    const auto padded = [align](std::size_t size) { return (size + align - 1) & ~(align - 1); };
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
      const char* name = at + sizeof *note;
      const char* description = name + padded(note->n_namesz);
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !std::memcmp(name, "GNU", 4)) {
        std::string text;
        for (std::size_t k = 0; k < note->n_descsz; ++k) {
          const auto byte = static_cast<unsigned char>(description[k]);
          text += kDigits[byte >> 4];
          text += kDigits[byte & 15];
        }
        return text;
      }
      at = description + padded(note->n_descsz);
    }
  }
  return {};
}

int visit(dl_phdr_info* info, std::size_t, void* out) {
  const auto address = reinterpret_cast<std::uintptr_t>(&here);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const std::uintptr_t start = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address >= start && address < start + segment.p_memsz) {
      *static_cast<std::string*>(out) = note_of(info);
      return 1;
    }
  }
  return 0;
}

}  // namespace

std::string build_id() {
  std::string id;
  ::dl_iterate_phdr(visit, &id);
  return id;
}

}  // namespace ferry::agent
