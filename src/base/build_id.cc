#include "base/build_id.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/unique_fd.h"

namespace ferry {
namespace {

constexpr std::size_t kMostNotes = 1u << 20;  // bytes of notes that are looked at
constexpr std::string_view kOwner("GNU", 4);  // with its 0

void here() {}

// The build id in a segment of notes; empty: it is not among them.
std::string id_in(std::string_view notes, std::size_t alignment) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const std::size_t align = alignment == 8 ? 8 : 4;
  const auto padded = [align](std::size_t size) { return (size + align - 1) & ~(align - 1); };
  Elf64_Nhdr note;
  while (notes.size() >= sizeof note) {
    std::memcpy(&note, notes.data(), sizeof note);
    const std::size_t description = padded(sizeof note + note.n_namesz);
    if (description > notes.size() || note.n_descsz > notes.size() - description) return {};
    if (note.n_type == NT_GNU_BUILD_ID && notes.substr(sizeof note, note.n_namesz) == kOwner) {
      std::string text;
      for (const char each : notes.substr(description, note.n_descsz)) {
        const auto byte = static_cast<unsigned char>(each);
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
      }
      return text;
    }
    notes.remove_prefix(std::min(notes.size(), padded(description + note.n_descsz)));
  }
  return {};
}

std::string id_of_object(const dl_phdr_info* info) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    const auto id = id_in({notes, segment.p_memsz}, segment.p_align);
    if (!id.empty()) return id;
  }
  return {};
}

int visit(dl_phdr_info* info, std::size_t, void* out) {
  const auto address = reinterpret_cast<std::uintptr_t>(&here);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const std::uintptr_t start = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address >= start && address < start + segment.p_memsz) {
      *static_cast<std::string*>(out) = id_of_object(info);
      return 1;
    }
  }
  return 0;
}

bool read_at(int file, std::uint64_t offset, void* into, std::size_t size) {
  return ::pread(file, into, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

}  // namespace

std::string build_id() {
  std::string id;
  ::dl_iterate_phdr(visit, &id);
  return id;
}

std::string build_id_of(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Elf64_Ehdr header;
  if (!file || !read_at(file.get(), 0, &header, sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) {
    return {};
  }
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!read_at(file.get(), header.e_phoff + i * sizeof segment, &segment, sizeof segment)) break;
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMostNotes) continue;
    std::string notes(segment.p_filesz, '\0');
    if (!read_at(file.get(), segment.p_offset, notes.data(), notes.size())) break;
    const auto id = id_in(notes, segment.p_align);
    if (!id.empty()) return id;
  }
  return {};
}

}  // namespace ferry
