#pragma once

#include <elf.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

// Libraries as the dynamic linker sees them, with nothing in them but names and versions.
namespace ferry::oci::test {

struct Library {
  std::vector<std::string> needed;
  std::map<std::string, std::vector<std::string>> wants;
  std::vector<std::string> versions;
};

class Writer {
 public:
  template <typename T>
  std::size_t put(const T& value) {
    const std::size_t at = bytes.size();
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    return at;
  }
  std::string bytes;
};

inline std::string bytes_of(const Library& library) {
  std::string strings(1, '\0');
  const auto name = [&strings](const std::string& text) {
    const std::size_t at = strings.size();
    strings += text + '\0';
    return static_cast<std::uint32_t>(at);
  };
  Writer needs, defines;
  std::size_t left = library.wants.size();
  for (const auto& [soname, versions] : library.wants) {
    Elf64_Verneed need{};
    need.vn_version = 1;
    need.vn_cnt = static_cast<Elf64_Half>(versions.size());
    need.vn_file = name(soname);
    need.vn_aux = sizeof need;
    const std::size_t size = sizeof need + versions.size() * sizeof(Elf64_Vernaux);
    need.vn_next = --left > 0 ? static_cast<Elf64_Word>(size) : 0;
    needs.put(need);
    for (std::size_t i = 0; i < versions.size(); ++i) {
      Elf64_Vernaux version{};
      version.vna_name = name(versions[i]);
      version.vna_next = i + 1 < versions.size() ? sizeof version : 0;
      needs.put(version);
    }
  }
  // The first one is the library's own name.
  std::vector<std::string> defined{"base"};
  defined.insert(defined.end(), library.versions.begin(), library.versions.end());
  for (std::size_t i = 0; i < defined.size(); ++i) {
    Elf64_Verdef version{};
    version.vd_version = 1;
    version.vd_flags = i == 0 ? VER_FLG_BASE : 0;
    version.vd_cnt = 1;
    version.vd_aux = sizeof version;
    version.vd_next = i + 1 < defined.size() ? sizeof version + sizeof(Elf64_Verdaux) : 0;
    defines.put(version);
    defines.put(Elf64_Verdaux{name(defined[i]), 0});
  }
  std::vector<Elf64_Dyn> dynamic;
  const auto entry = [&dynamic](Elf64_Sxword tag, std::uint64_t value) {
    Elf64_Dyn each{};
    each.d_tag = tag;
    each.d_un.d_val = value;
    dynamic.push_back(each);
  };
  for (const auto& soname : library.needed) entry(DT_NEEDED, name(soname));
  // The address of a byte is its place in the file and a page.
  constexpr std::uint64_t kBase = 0x1000;
  const std::size_t start = sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr);
  entry(DT_STRTAB, kBase + start);
  if (!library.wants.empty()) {
    entry(DT_VERNEED, kBase + start + strings.size());
    entry(DT_VERNEEDNUM, library.wants.size());
  }
  entry(DT_VERDEF, kBase + start + strings.size() + needs.bytes.size());
  entry(DT_VERDEFNUM, defined.size());
  entry(DT_NULL, 0);

  Writer file;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = EM_X86_64;
  header.e_phoff = sizeof header;
  header.e_phnum = 2;
  file.put(header);
  const std::size_t tables = start + strings.size() + needs.bytes.size() + defines.bytes.size();
  Elf64_Phdr load{}, dynamic_segment{};
  load.p_type = PT_LOAD;
  load.p_vaddr = kBase;
  load.p_filesz = tables;
  dynamic_segment.p_type = PT_DYNAMIC;
  dynamic_segment.p_offset = tables;
  dynamic_segment.p_filesz = dynamic.size() * sizeof(Elf64_Dyn);
  file.put(load);
  file.put(dynamic_segment);
  file.bytes += strings + needs.bytes + defines.bytes;
  for (const auto& each : dynamic) file.put(each);
  return file.bytes;
}

// A folder that is gone afterwards.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "ferry-oci.XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const std::string& name, const std::string& bytes) const {
    const auto file = path / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  }
  void write(const std::string& name, const Library& library) const {
    write(name, bytes_of(library));
  }
  void link(const std::string& name, const std::string& target) const {
    const auto file = path / name;
    std::filesystem::create_directories(file.parent_path());
    std::filesystem::create_symlink(target, file);
  }
  std::filesystem::path path;
};

}  // namespace ferry::oci::test
