#include "launch/run.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <net/if.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/companion.h"
#include "base/failure.h"
#include "base/kept_library.h"
#include "launch/become.h"

namespace ferry::launch {
namespace {

constexpr char kRunUsage[] =
    "Usage: ferry run [--netdev DEV] [--] PROGRAM [ARGS...]\n\n"
    "Runs a program with Ferry's RDMA devices.\n"
    "  --netdev DEV[,DEV]   network interfaces that become RDMA devices (default: all that are "
    "up)\n";

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::string folders = path != nullptr ? path : "/usr/bin:/bin";
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string folder = end > begin ? folders.substr(begin, end - begin) : ".";
    const std::string candidate = folder + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0 && !std::filesystem::is_directory(candidate)) {
      return candidate;
    }
    begin = end + 1;
  }
  throw Failure("there is no program '" + name + "' in PATH");
}

// `list`, DEV[,DEV]..., if all of them exist here. Throws Failure.
std::string checked_netdevs(const std::string& list) {
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string name = list.substr(begin, end - begin);
    if (::if_nametoindex(name.c_str()) == 0) {
      throw Failure("there is no network interface '" + name + "' here; see: ip address");
    }
    begin = end + 1;
  }
  return list;
}

// The dynamic linker that an ELF file asks for; empty when it asks for none.
std::string interpreter_of(std::ifstream& file, const Elf64_Ehdr& header) {
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    file.seekg(static_cast<std::streamoff>(header.e_phoff + i * sizeof segment));
    if (!file.read(reinterpret_cast<char*>(&segment), sizeof segment)) return {};
    if (segment.p_type != PT_INTERP || segment.p_filesz > 4096) continue;
    std::string name(segment.p_filesz, '\0');
    file.seekg(static_cast<std::streamoff>(segment.p_offset));
    file.read(name.data(), static_cast<std::streamsize>(name.size()));
    return name.c_str();
  }
  return {};
}

}  // namespace

std::string unsuitable(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return "cannot run " + path + ": " + error_text(errno);
  }
  if (S_ISDIR(status.st_mode)) return "cannot run " + path + ": it is a folder";
  if ((status.st_mode & (S_ISUID | S_ISGID)) != 0 && ::geteuid() != 0) {
    return path + " is set-user-id, so that no library can be preloaded into it";
  }
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return {};  // a script, or unreadable: its interpreter gets the library
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) {
    return path + " is not an x86-64 program, which libferry.so is";
  }
  const std::string interpreter = interpreter_of(file, header);
  if (interpreter.empty()) {
    return path + " is statically linked, so that no library can be preloaded into it";
  }
  if (interpreter.find("musl") != std::string::npos) {
    return path + " uses musl (" + interpreter + "); Ferry needs a program for glibc 2.34 or later";
  }
  return {};
}

int run(const std::vector<std::string>& arguments) {
  std::size_t next = 0;
  std::string netdev;
  for (; next < arguments.size(); ++next) {
    const std::string& argument = arguments[next];
    if (argument == "--") {
      ++next;
      break;
    }
    if (argument == "--help" || argument == "-h") {
      std::fputs(kRunUsage, stdout);
      return 0;
    }
    if (argument == "--netdev" && next + 1 < arguments.size()) {
      netdev = checked_netdevs(arguments[++next]);
    } else if (argument == "--netdev") {
      throw Failure("--netdev needs the name of a network interface; see: ferry run --help");
    } else if (argument.starts_with("--netdev=")) {
      netdev = checked_netdevs(argument.substr(9));
    } else if (argument.starts_with('-')) {
      throw Failure("unknown option '" + argument + "'; see: ferry run --help");
    } else {
      break;
    }
  }
  if (next >= arguments.size()) throw Failure("run needs a program; see: ferry run --help");
  const std::vector<std::string> command(arguments.begin() + static_cast<std::ptrdiff_t>(next),
                                         arguments.end());
  const std::string library = kept_library(need_companion("libferry.so"));
  if (void* verbs = ::dlopen("libibverbs.so.1", RTLD_LAZY)) {
    ::dlclose(verbs);
  } else {
    throw Failure("libibverbs.so.1 is missing; install the package libibverbs1");
  }
  const std::string program = find_program(command[0]);
  if (const std::string reason = unsuitable(program); !reason.empty()) throw Failure(reason);

  const char* preloaded = std::getenv("LD_PRELOAD");
  const std::string preload =
      preloaded != nullptr && *preloaded != '\0' ? library + ":" + preloaded : library;
  ::setenv("LD_PRELOAD", preload.c_str(), 1);
  if (!netdev.empty()) ::setenv("FERRY_NETDEV", netdev.c_str(), 1);
  become(program, command);
}

}  // namespace ferry::launch
