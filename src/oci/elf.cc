#include "oci/elf.h"

#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <vector>

namespace ferry::oci {
namespace {

constexpr std::size_t kMostBytes = 4u << 20;    // of one table
constexpr std::size_t kMostEntries = 1u << 16;  // of a list

// A part of the file's address space that is in the file.
struct Segment {
  std::uint64_t address, offset, size;
};

class Reader {
 public:
  explicit Reader(int fd) : fd_(fd) {}

  template <typename T>
  T at(std::uint64_t offset) const {
    T value;
    if (::pread(fd_, &value, sizeof value, static_cast<off_t>(offset)) !=
        static_cast<ssize_t>(sizeof value)) {
      throw ElfError("it is cut off");
    }
    return value;
  }

  std::string text(std::uint64_t offset) const {
    char name[256];
    const ssize_t got = ::pread(fd_, name, sizeof name, static_cast<off_t>(offset));
    if (got <= 0 || ::memchr(name, 0, static_cast<std::size_t>(got)) == nullptr) {
      throw ElfError("a name in it has no end");
    }
    return name;
  }

 private:
  int fd_;
};

struct Dynamic {
  std::vector<std::uint64_t> needed;
  std::uint64_t strings = 0, wants = 0, wants_count = 0, versions = 0, versions_count = 0;
};

std::uint64_t offset_of(const std::vector<Segment>& segments, std::uint64_t address) {
  for (const auto& segment : segments) {
    if (address >= segment.address && address - segment.address < segment.size) {
      return segment.offset + (address - segment.address);
    }
  }
  throw ElfError("a table of it lies outside of it");
}

Dynamic read_dynamic(const Reader& file, const Elf64_Phdr& where) {
  if (where.p_filesz > kMostBytes) throw ElfError("its dynamic section is too large");
  Dynamic dynamic;
  for (std::uint64_t i = 0; (i + 1) * sizeof(Elf64_Dyn) <= where.p_filesz; ++i) {
    const auto entry = file.at<Elf64_Dyn>(where.p_offset + i * sizeof(Elf64_Dyn));
    const std::uint64_t value = entry.d_un.d_val;
    switch (entry.d_tag) {
      case DT_NULL: return dynamic;
      case DT_NEEDED: dynamic.needed.push_back(value); break;
      case DT_STRTAB: dynamic.strings = value; break;
      case DT_VERNEED: dynamic.wants = value; break;
      case DT_VERNEEDNUM: dynamic.wants_count = value; break;
      case DT_VERDEF: dynamic.versions = value; break;
      case DT_VERDEFNUM: dynamic.versions_count = value; break;
      default: break;
    }
  }
  return dynamic;
}

}  // namespace

Elf read_elf(int fd) {
  const Reader file(fd);
  const auto header = file.at<Elf64_Ehdr>(0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) throw ElfError("it is no ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) {
    throw ElfError("it is not for x86-64");
  }
  std::vector<Segment> segments;
  std::optional<Elf64_Phdr> dynamic_segment;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const auto segment = file.at<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment.p_type == PT_LOAD) {
      segments.push_back({segment.p_vaddr, segment.p_offset, segment.p_filesz});
    } else if (segment.p_type == PT_DYNAMIC) {
      dynamic_segment = segment;
    }
  }
  Elf elf;
  if (!dynamic_segment) return elf;
  const Dynamic dynamic = read_dynamic(file, *dynamic_segment);
  const std::uint64_t strings = offset_of(segments, dynamic.strings);
  for (const std::uint64_t name : dynamic.needed) elf.needed.insert(file.text(strings + name));

  // Two linked lists of lists: each entry says how far away the next one is.
  std::size_t entries = 0;
  const auto count = [&entries] {
    if (++entries > kMostEntries) throw ElfError("its lists of versions do not end");
  };
  std::uint64_t at = dynamic.wants_count > 0 ? offset_of(segments, dynamic.wants) : 0;
  for (std::uint64_t i = 0; i < dynamic.wants_count; ++i) {
    count();
    const auto library = file.at<Elf64_Verneed>(at);
    auto& versions = elf.wants[file.text(strings + library.vn_file)];
    std::uint64_t each = at + library.vn_aux;
    for (unsigned k = 0; k < library.vn_cnt; ++k) {
      count();
      const auto version = file.at<Elf64_Vernaux>(each);
      if ((version.vna_flags & VER_FLG_WEAK) == 0) {
        versions.insert(file.text(strings + version.vna_name));
      }
      each += version.vna_next;
    }
    at += library.vn_next;
  }
  at = dynamic.versions_count > 0 ? offset_of(segments, dynamic.versions) : 0;
  for (std::uint64_t i = 0; i < dynamic.versions_count; ++i) {
    count();
    const auto version = file.at<Elf64_Verdef>(at);
    const auto name = file.at<Elf64_Verdaux>(at + version.vd_aux);
    if ((version.vd_flags & VER_FLG_BASE) == 0) {
      elf.versions.insert(file.text(strings + name.vda_name));
    }
    at += version.vd_next;
  }
  return elf;
}

}  // namespace ferry::oci
