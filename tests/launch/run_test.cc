#include "launch/run.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace ferry::launch {
namespace {

// An ELF file with this interpreter, or none.
std::string elf(const std::string& interpreter, int elf_class = ELFCLASS64) {
  const std::string path = "/tmp/ferry-cli-test." + std::to_string(::getpid());
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = static_cast<unsigned char>(elf_class);
  header.e_machine = EM_X86_64;
  header.e_phoff = sizeof header;
  header.e_phnum = interpreter.empty() ? 1 : 2;
  Elf64_Phdr load{};
  load.p_type = PT_LOAD;
  Elf64_Phdr interp{};
  interp.p_type = PT_INTERP;
  interp.p_offset = sizeof header + 2 * sizeof interp;
  interp.p_filesz = interpreter.size() + 1;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(&header), sizeof header);
  out.write(reinterpret_cast<const char*>(&load), sizeof load);
  out.write(reinterpret_cast<const char*>(&interp), sizeof interp);
  out.write(interpreter.c_str(), static_cast<std::streamsize>(interpreter.size() + 1));
  return path;
}

TEST(Unsuitable, KnowsWhichProgramsCannotHaveTheLibrary) {
  EXPECT_EQ(unsuitable("/bin/true"), "");
  EXPECT_EQ(unsuitable(elf("/lib64/ld-linux-x86-64.so.2")), "");
  EXPECT_NE(unsuitable(elf("/lib/ld-musl-x86_64.so.1")).find("uses musl"), std::string::npos);
  EXPECT_NE(unsuitable(elf("")).find("statically linked"), std::string::npos);
  EXPECT_NE(unsuitable(elf("/lib/ld-linux.so.2", ELFCLASS32)).find("not an x86-64 program"),
            std::string::npos);
  std::ofstream(elf(""), std::ios::trunc) << "#!/bin/sh\n";
  EXPECT_EQ(unsuitable("/tmp/ferry-cli-test." + std::to_string(::getpid())), "");
  std::filesystem::remove("/tmp/ferry-cli-test." + std::to_string(::getpid()));
  EXPECT_NE(unsuitable("/nonexistent").find("No such file"), std::string::npos);
  EXPECT_NE(unsuitable("/tmp").find("is a folder"), std::string::npos);
}

}  // namespace
}  // namespace ferry::launch
